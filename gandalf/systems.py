"""The systems of the paper's tables, each a recipe that names its parts."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from gandalf.errors import DataError
from gandalf.recipe import Encoder, Head, Recipe, Text, Training


def astec() -> Recipe:
    """Astec: weighted bag of words, residual block, a free row for each label.

    One stage over every label or a shortlist in place of the published surrogate task, two indexes and
    re-ranker: at the sizes where one machine can hold the rows they are not needed.
    """
    return Recipe(system="astec", encoder=Encoder(dim=512, dropout=0.3))


def inceptionxml() -> Recipe:
    """InceptionXML: convolutions over the embedding axis, a free row for each label.

    Trained on every label, as the base model; the detached two-head variant (InceptionXML+) is replaced by
    the shortlist that all systems share.
    """
    return Recipe(
        system="inceptionxml",
        text=Text(max_length=32),
        encoder=Encoder(kind="inception", dropout=0.25, rate=5e-3, words_rate=2e-2),
        head=Head(start="random", rate=1e-2),
        training=Training(epochs=20.0),
    )


SYSTEMS: dict[str, Callable[[], Recipe]] = {"astec": astec, "inceptionxml": inceptionxml}


def recipe(system: str) -> Recipe:
    """The recipe of a system by its name."""
    if system not in SYSTEMS:
        near = get_close_matches(system, SYSTEMS, 1)
        remedy = f"did you mean {near[0]}?" if near else f"choose from {', '.join(SYSTEMS)}"
        raise DataError(f"there is no system {system!r}", remedy=remedy)
    return SYSTEMS[system]()
