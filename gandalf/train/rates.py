"""How a rate follows the batch: one rule for every optimiser and every stage.

Every loss here is divided by the points of the batch, so a gradient is a mean over points, and an epoch has
fewer updates the larger the batch is.

SGD moves weights by rate x gradient. Its rate grows with the batch, linearly: then a point moves the weights,
and weight decay shrinks them, as much in an epoch whatever the batch is. So it would be with a loss that is
summed over the batch, at one rate.

Adam divides a gradient by its own size, so what a loss is divided by cancels. Its rate is the length of an
update, does not belong to a loss divided by the batch, and stays.
"""

from __future__ import annotations

from typing import Literal

OptimiserName = Literal["adamw", "sgd"]

RATED_FOR = 256  # points in an update of a classifier that a rate is given for
PAIRS_RATED_FOR = 512  # points or labels in an update of a siamese stage, likewise


def at_batch(rate: float, optimiser: OptimiserName, batch: int, rated_for: int = RATED_FOR) -> float:
    """Return the rate that a batch of this size asks for, of a rate that is given for another size."""
    return rate * (batch / rated_for) if optimiser == "sgd" else rate
