"""Scale rates with the batch: one rule for every optimiser and every stage.

Every loss is divided by the points of the batch, so a gradient is a mean over points. A larger batch has
fewer updates in an epoch.

SGD moves weights by rate x gradient. Its rate grows linearly with the batch. Then a point moves the weights,
and weight decay shrinks them, by the same amount in an epoch with any batch.

Adam divides a gradient by its size, so the division by the batch cancels. Its rate is the length of an update
and stays.
"""

from __future__ import annotations

from typing import Literal

OptimiserName = Literal["adamw", "sgd"]

RATED_FOR = 256  # points of a batch for which a classifier's rate is given
PAIRS_RATED_FOR = 512  # points or labels of a batch for which a siamese stage's rate is given


def at_batch(rate: float, optimiser: OptimiserName, batch: int, rated_for: int = RATED_FOR) -> float:
    """Return the rate for a batch of this size from a rate for batches of `rated_for`."""
    return rate * (batch / rated_for) if optimiser == "sgd" else rate
