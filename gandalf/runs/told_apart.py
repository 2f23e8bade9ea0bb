"""Settings by which a checkpoint is known as a run's own, and those that one of an older release may lack."""

from __future__ import annotations

from typing import Any

from gandalf.recipe import Baselines, Recipe
from gandalf.settings import to_dict
from gandalf.train.rates import at_batch


def told_apart(recipe: Recipe) -> dict[str, Any]:
    """Return the settings of a run, without those that older checkpoints lack and that make no difference."""
    found = to_dict(recipe)
    if recipe.baselines == Baselines():
        del found["baselines"]
    if not recipe.training.last_stretch:
        del found["training"]["last_stretch"]
    if not recipe.targets.own_weight:
        del found["targets"]["own_weight"]
    if recipe.siamese.kind == "none":
        del found["siamese"]["cluster_share"]
    if recipe.siamese.kind != "decoupled":
        del found["siamese"]["softmax_temperature"], found["siamese"]["label_points"]
    if not recipe.siamese.guidance:
        del found["siamese"]["guidance"]
    if _attends_as_before(recipe):
        del found["encoder"]["attention"]
    del found["memory"], found["search"], found["trees"]["terms"], found["trees"]["cost"]
    # Before, no rate followed the batch: a run whose rates do is another.
    parts = {"encoder": recipe.encoder.optimiser, "head": recipe.head.optimiser}
    times = {part: at_batch(1.0, optimiser, recipe.training.batch) for part, optimiser in parts.items()}
    return {**found, "rates": times} if set(times.values()) != {1.0} else found


def _attends_as_before(recipe: Recipe) -> bool:
    """Return True if no encoder is made by the setting `encoder.attention`, or one as it was before that."""
    encoder = recipe.encoder
    return encoder.kind != "inception" or encoder.attention == "self" or encoder.from_model is not None
