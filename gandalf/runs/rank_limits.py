"""What several ranks cannot start with, said before any work is done."""

from __future__ import annotations

from dataclasses import replace

from gandalf.errors import DataError
from gandalf.recipe import Recipe
from gandalf.train.batches import PointOrder
from gandalf.train.memory import RunShape

_YET = "does not run over several ranks yet"
_ALONE = "leave torchrun out"


def check_ranks(recipe: Recipe, num_labels: int, world: int) -> None:
    """Refuse what does not run over several ranks."""
    if world == 1:
        return
    if world > num_labels:
        what = f"{world} ranks cannot share {num_labels} labels: each needs one of its own"
        raise DataError(what, remedy=f"start {num_labels} ranks at most")
    refused = {
        f"the system {recipe.system} {_YET}": recipe.trees.kind != "none",
        f"the choice of targets (--targets auto) {_YET}": recipe.targets.targets == "auto",
        f"the GLaS regulariser {_YET}": recipe.baselines.glas != 0,
        f"the fit of a memory {_YET}": recipe.memory.kind != "none",
    }
    remedies = (
        _ALONE,
        f"name the targets, or {_ALONE}",
        f"set baselines.glas=0, or {_ALONE}",
        "set memory.kind=none, and add a memory to the model afterwards: gandalf remember",
    )
    for (what, holds), remedy in zip(refused.items(), remedies, strict=True):
        if holds:
            raise DataError(what, remedy=remedy)


def check_shares(order: PointOrder, world: int) -> None:
    """Refuse batches with less than a point for each rank."""
    smallest = min(order.batch, *(len(phase.points) for phase in order.phases))
    if smallest < world:
        what = f"{world} ranks cannot share a batch of {smallest}: each needs a point of its own"
        raise DataError(what, remedy="use a larger --batch, or fewer ranks")


def rank_shape(shape: RunShape, world: int) -> RunShape:
    """What one rank of a run of this shape holds: its labels, and activations of its points."""
    points = -(-shape.batch // world)
    return replace(
        shape,
        labels=-(-shape.labels // world),
        micro_batch=min(shape.micro_batch or points, points) if world > 1 else shape.micro_batch,
    )
