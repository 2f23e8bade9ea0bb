"""Vectors of points by an encoder that stays as it is: each text is read once, not once an epoch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gandalf.train.batches import Points, sent
from gandalf.train.machine_memory import available_bytes
from gandalf.train.parallel.ranks import ONE, Ranks

SHARE = 0.25  # of the free memory: with more, the encoder reads every batch anew
CHUNK = 4_096  # texts read at once


def worth_keeping(points: Points, dim: int, met: int, device: torch.device) -> bool:
    """Whether points are met more than once each, and there is room for the vectors of all of them."""
    free = available_bytes(device)
    return met > len(points) and (free is None or 4 * dim * len(points) <= SHARE * free)


class FrozenVectors:
    """The vectors of all points, on the device."""

    def __init__(
        self,
        encoder: nn.Module,
        points: Points,
        dtype: torch.dtype,
        device: torch.device,
        ranks: Ranks = ONE,
    ) -> None:
        self.device = device
        own = points.tokens[ranks.share(len(points))]
        starts = range(0, len(own), CHUNK)
        encoder.eval()
        with (
            torch.no_grad(),
            torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype != torch.float32),
        ):
            parts = [encoder(sent(own[at : at + CHUNK].astype(np.int64), device)).float() for at in starts]
        self.vectors = ranks.gather(torch.cat(parts), len(points))  # shape: (N, dim)

    def __call__(self, rows: npt.NDArray[np.int64]) -> Tensor:
        """Vectors of these points."""  # shape: (B, dim)
        return self.vectors[sent(rows, self.device)]
