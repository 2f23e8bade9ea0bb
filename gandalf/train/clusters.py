"""Cut points into clusters of equal size, by halving all clusters level by level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from gandalf.errors import DataError

Ints = npt.NDArray[np.int64]

ROUNDS = 10  # most rounds of 2-means; on large clusters the last rounds move a few points in a thousand
GATHERED = 1 << 28  # most numbers of vectors that are copied at once, unless one cluster has more


@torch.no_grad()
def clusters(vectors: Tensor, size: int, seed: int) -> Ints:
    """Return the cluster of each vector, 0 to K - 1; no cluster has more than `size` points.

    Balanced spherical 2-means halves all points, then the halves, until they are small enough. So K is a
    power of two (or N if `size` is 1), and the sizes of two clusters differ by at most one. Only the
    directions of the vectors count. The same vectors on the same kind of device give the same clusters.
    Memory is needed for one more copy of the vectors.
    """
    if size < 1:
        raise DataError(f"clusters of {size} points cannot be made", remedy="give a size of at least 1")
    number = len(vectors)
    if size == 1:
        return np.arange(number)
    generator = torch.Generator().manual_seed(seed)  # on the CPU, so that every device draws the same numbers
    members = torch.arange(number, device=vectors.device)[None]  # shape: (K, m), -1 where a row is shorter
    while members.shape[1] > size:
        draws = torch.rand(len(members), generator=generator, dtype=torch.float64).to(vectors.device)
        at_once = max(1, GATHERED // (members.shape[1] * max(1, vectors.shape[1])))
        parts = zip(torch.split(members, at_once), torch.split(draws, at_once), strict=True)
        members = torch.cat([_halve(vectors, part, draw) for part, draw in parts])
    found = np.empty(number, dtype=np.int64)
    rows = members.cpu().numpy()
    cluster, place = np.nonzero(rows >= 0)
    found[rows[cluster, place]] = cluster
    return found


def _halve(vectors: Tensor, members: Tensor, draws: Tensor) -> Tensor:
    """Return the halves of all clusters."""  # (K, m), (K,) -> (2K, (m + 1) // 2)
    known = members >= 0
    points = vectors[members.clamp(min=0)].float()  # shape: (K, m, d)
    points /= points.norm(dim=2, keepdim=True).clamp_min_(1e-12)
    points[~known] = 0
    count = known.sum(dim=1)  # shape: (K,), m or m - 1
    first = (count + 1) // 2  # points of each cluster's first half
    centres = _first_centres(points, known, draws)
    near = torch.zeros_like(known)  # whether a point is in the first half; shape: (K, m)
    for _ in range(ROUNDS):
        order = _rank_members(points, known, centres)
        before, near = near, torch.zeros_like(known)
        near.scatter_(1, order, torch.arange(order.shape[1], device=order.device) < first[:, None])
        if torch.equal(before, near):
            break
        # A product, because a scattered sum on a GPU adds in an order that changes from run to run.
        sides = torch.stack([near, ~near], dim=1).to(points.dtype)  # shape: (K, 2, m)
        centres = F.normalize(torch.bmm(sides, points), dim=2)
    return _cut_rows(members.gather(1, order), first, count)


def _first_centres(points: Tensor, known: Tensor, draws: Tensor) -> Tensor:
    """Return a random point of each cluster, and the point least similar to it."""  # shape: (K, 2, d)
    cluster = torch.arange(len(points), device=points.device)
    one = points[cluster, (draws * known.sum(dim=1)).long()]  # shape: (K, d)
    likeness = torch.bmm(points, one[:, :, None]).squeeze(2)  # shape: (K, m)
    other = points[cluster, likeness.masked_fill(~known, torch.inf).argmin(dim=1)]
    return torch.stack([one, other], dim=1)


def _rank_members(points: Tensor, known: Tensor, centres: Tensor) -> Tensor:
    """Return the places of points, those nearest to the first centre first, and empty places last.

    For these centres, no other split into halves of these sizes has a larger sum of similarities.
    """  # shape: (K, m)
    likeness = torch.bmm(points, centres.mT)  # shape: (K, m, 2)
    nearer = (likeness[:, :, 0] - likeness[:, :, 1]).masked_fill(~known, -torch.inf)
    return torch.sort(nearer, dim=1, descending=True, stable=True).indices


def _cut_rows(ranked: Tensor, first: Tensor, count: Tensor) -> Tensor:
    """Cut each row after its `first` members; return both pieces of all rows."""  # shape: (2K, (m + 1) // 2)
    place = torch.arange((ranked.shape[1] + 1) // 2, device=ranked.device)
    start = torch.stack([torch.zeros_like(first), first], dim=1)[:, :, None]  # shape: (K, 2, 1)
    end = torch.stack([first, count], dim=1)[:, :, None]
    rank = (start + place).flatten(1)  # shape: (K, 2 * h)
    halves = ranked.gather(1, rank.clamp(max=ranked.shape[1] - 1)).masked_fill(
        rank >= end.expand(-1, -1, len(place)).flatten(1), -1
    )
    return halves.reshape(-1, len(place))
