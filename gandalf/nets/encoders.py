"""Build encoders by name, and encode many texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gandalf.nets.encoder import EncoderKind, TextEncoder
from gandalf.nets.kinds import ENCODERS


def encoder_kind(name: str) -> EncoderKind:
    """Return a kind of encoder by its name."""
    found: EncoderKind = ENCODERS.load(name)
    return found


def build_encoder(options: Mapping[str, Any], vocabulary: int) -> TextEncoder:
    """Build the encoder of that `kind` with the other options; its weights are drawn at random."""
    rest = dict(options)
    kind = encoder_kind(rest.pop("kind", None))
    return kind.build(vocabulary, kind.options(**rest))


@torch.no_grad()
def encode_tokens(encoder: nn.Module, tokens: npt.NDArray[np.int32], batch: int = 4096) -> Tensor:
    """Return the vectors of all texts, without dropout; the encoder is left in evaluation mode."""
    # shape: (N, T) -> (N, dim)
    device = next(encoder.parameters()).device
    encoder.eval()
    vectors: Tensor | None = None  # filled in place, because a concatenation would take twice the memory
    for start in range(0, len(tokens), batch):
        ids = torch.from_numpy(tokens[start : start + batch].astype(np.int64))
        part = encoder(ids.to(device)).float()
        vectors = part.new_empty(len(tokens), part.shape[1]) if vectors is None else vectors
        vectors[start : start + batch] = part
    assert vectors is not None, "no texts"
    return vectors
