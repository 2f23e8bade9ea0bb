"""Which stored lines are of parts that systems had until commit 0f17dd6, and the mark of such rows."""

from __future__ import annotations

from collections.abc import Iterable

from gandalf.lab.store import Line

CHANGED = ("inceptionxml", "inceptionxml-lf", "siamesexml", "ngame", "renee")  # since commit 0f17dd6
MARK = " †"
MEANING = "†: with [former parts]({docs}systems.md#former-parts), not run again."


def is_former(line: Line) -> bool:
    """Return True if the line's system had other parts when it was measured."""
    # Recipes name the share of a cluster since the commit that followed.
    return line["run"]["system"] in CHANGED and "cluster_share" not in line["recipe"].get("siamese", {})


def marked(name: str, lines: Iterable[Line]) -> str:
    """Return the name of a row, marked if one of its lines is of former parts."""
    return name + MARK if any(map(is_former, lines)) else name
