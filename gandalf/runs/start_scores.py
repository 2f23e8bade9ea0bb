"""The scores that training starts from: rows scaled and biases set so that they are probabilities at once.

Rows start as directions. Their scores say which labels are near, but all lie within a tenth of each other,
while the labels' log-odds differ by 5. Training then learns the frequencies first, and forgets the directions
on the way: docs/training.md has the figures.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gandalf.nets.heads import Table
from gandalf.train.batches import Points
from gandalf.train.parallel.ranks import ONE, Ranks

# Standard deviation of a label's scores over the training texts. On four development sets the start has its
# lowest loss between 0.5 and 1.0, and its highest P@1 about here.
SPREAD = 0.9
# Long free rows would win the softmax of an attention from the first update on, and label texts would say
# nothing: ECLARE's rows stay about as long as they are.
SPREADS: dict[str, float] = {"table": SPREAD, "gated": SPREAD, "attention": 0.1}  # by the kind of head
BLOCK = 1 << 16  # rows at a time


@torch.no_grad()
def start_scores(
    table: Table,
    points: Points,
    vectors: Tensor,
    own: slice,
    spread: float = SPREAD,
    ranks: Ranks = ONE,
) -> None:
    """Scale all rows by one number, and start each bias where the label's mean probability is its frequency.

    `vectors` are those of some texts (S x dim), `own` the labels that the table is of; the one number is that
    of all ranks' labels. For scores with the standard deviation s around m, the mean of exp(score) is
    exp(m + s^2 / 2): the bias makes up for it.
    """
    mean = vectors.mean(dim=0)
    centred = vectors - mean
    covariance = centred.T @ centred / max(len(vectors), 1)  # shape: (dim, dim)
    parts = torch.split(table.rows.data, BLOCK)
    variance = torch.cat([((rows @ covariance) * rows).sum(dim=1) for rows in parts])  # shape: (own labels,)
    total = sum(ranks.values_of_all(float(variance.sum(dtype=torch.float64))))
    mean_variance = total / points.targets.shape[1]
    scale = spread / max(mean_variance**0.5, 1e-6)
    table.rows.data.mul_(scale)
    frequency = (_count(points, own) + 0.5) / (len(points) + 1)  # 0.5: a label without points has odds, too
    shift = table.rows.data @ mean + 0.5 * scale**2 * variance
    table.bias.data.copy_(torch.logit(frequency) - shift)


def evenly(number: int, at_most: int) -> npt.NDArray[np.int64]:
    """Return the places of at most so many points, evenly spaced."""
    return np.linspace(0, number - 1, min(at_most, number)).astype(np.int64)


def _count(points: Points, own: slice) -> Tensor:
    """Return the sum of each label's targets."""  # shape: (own labels,)
    return torch.from_numpy(np.asarray(points.targets.sum(axis=0), dtype=np.float32).ravel()[own])
