"""Encode the texts of a batch, and lead the gradient of their vectors back to the encoder.

Vectors are made for the whole batch at once, in micro-batches, or once for the whole stage if the encoder is
frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from gandalf.train.batches import Batch, Points, sent
from gandalf.train.machine_memory import available_bytes
from gandalf.train.parallel.ranks import Ranks
from gandalf.train.stage import Stage

MEMORY_SHARE = 0.25  # of the free memory, which stored vectors may take
TEXTS_AT_ONCE = 4_096  # encoded at once for storing

Backward = Callable[[Tensor], None]  # takes the gradient of a batch's vectors
Encode = Callable[[Batch, int], tuple[Tensor, Backward]]  # takes a batch and a seed; returns its vectors, too


def seed_generator(device: torch.device, seed: int) -> None:
    """Seed the generator of this device only; `torch.manual_seed` asks every device type, which is slow."""
    generator = torch.default_generator
    if device.type == "cuda":
        generator = torch.cuda.default_generators[device.index or 0]
    generator.manual_seed(seed)


class BatchEncoder:
    """Encode each batch anew, all of it or `stage.micro_batch` texts at a time."""

    def __init__(self, encoder: nn.Module, stage: Stage, device: torch.device, ranks: Ranks) -> None:
        self.encoder, self.stage, self.device, self.ranks = encoder, stage, device, ranks

    def __call__(self, batch: Batch, seed: int) -> tuple[Tensor, Backward]:
        """Return the vectors of all ranks' texts, and the way back from their gradient."""
        share = self.ranks.share(len(batch.tokens))
        parts = torch.split(batch.tokens[share], self.stage.micro_batch or share.stop - share.start)
        learns = not self.stage.frozen
        with torch.set_grad_enabled(learns and len(parts) == 1):
            own = torch.cat([self._encode(part, number, seed) for number, part in enumerate(parts)])
        vectors = self.ranks.gather(own.detach(), len(batch.tokens))
        return vectors, partial(self._lead_back, own, parts, share, seed) if learns else _stop

    def _encode(self, tokens: Tensor, number: int, seed: int) -> Tensor:
        """Return the vectors of a micro-batch; a second call draws the same dropout as the first."""
        if number or self.stage.micro_batch:
            seed_generator(self.device, seed * 4_099 + number)
        return self.vectors(tokens)

    def vectors(self, tokens: Tensor) -> Tensor:
        """Return the vectors of texts, computed at the stage's precision."""  # shape: (B, T) -> (B, dim)
        low = self.stage.dtype != torch.float32
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=low):
            vectors: Tensor = self.encoder(tokens)
        return vectors.float()

    def _lead_back(
        self, own: Tensor, parts: tuple[Tensor, ...], share: slice, seed: int, gradient: Tensor
    ) -> None:
        """Add to the encoder's gradient; micro-batches are encoded again, so memory holds one at a time."""
        with self.ranks.name_lost_ranks():
            if own.requires_grad:
                torch.autograd.backward(own, gradient[share])
                return
            gradients = torch.split(gradient[share], len(parts[0]))
            for number, part in enumerate(parts):
                torch.autograd.backward(self._encode(part, number, seed), gradients[number])


def _stop(gradient: Tensor) -> None:
    """Ignore the gradient: the encoder is frozen."""


def is_worth_storing(points: Points, dim: int, met: int, device: torch.device) -> bool:
    """Return True if points are met more than once each, and the vectors of all points fit in memory."""
    free = available_bytes(device)
    return met > len(points) and (free is None or 4 * dim * len(points) <= MEMORY_SHARE * free)


class StoredVectors:
    """The vectors of all points by a frozen encoder, on the device."""

    @torch.no_grad()
    def __init__(self, encoder: BatchEncoder, points: Points) -> None:
        self.device, ranks = encoder.device, encoder.ranks
        encoder.encoder.eval()
        tokens = points.tokens[ranks.share(len(points))]
        starts = range(0, len(tokens), TEXTS_AT_ONCE)
        parts = (sent(tokens[at : at + TEXTS_AT_ONCE].astype(np.int64), self.device) for at in starts)
        vectors = torch.cat([encoder.vectors(part) for part in parts])
        self.vectors = ranks.gather(vectors, len(points))  # shape: (N, dim)

    def __call__(self, batch: Batch, seed: int) -> tuple[Tensor, Backward]:
        """Return the vectors of the batch's points; their gradient goes nowhere."""
        return self.vectors[sent(batch.rows, self.device)], _stop
