"""The paper's own figures, for data sets that are the paper's; its known misprints are left out."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from typing import Any

FILE = "paper.json"


@lru_cache(maxsize=1)
def _figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((resources.files("gandalf.lab") / FILE).read_text("utf-8"))
    return found


def published(data: str, study: str, system: str) -> dict[str, dict[str, float]]:
    """Rows of the paper's table of that study, in percent; nothing for sets that the paper has not."""
    found: dict[str, dict[str, float]] = _figures().get(data, {}).get(study, {}).get(system, {})
    return found


def sets() -> tuple[str, ...]:
    """The paper's data sets."""
    return tuple(_figures())
