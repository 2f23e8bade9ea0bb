"""Build encoders by their names in recipes and model folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gandalf.errors import DataError
from gandalf.nets.bag_of_words import BagOfWords, BagOfWordsOptions
from gandalf.nets.inception import Inception, InceptionOptions
from gandalf.nets.transformer import Transformer, TransformerOptions

# Each turns token ids into vectors of length about 1, and says as `dim` how long they are.
TextEncoder = BagOfWords | Inception | Transformer

ENCODERS: dict[str, tuple[Callable[..., TextEncoder], type]] = {
    "bag-of-words": (BagOfWords, BagOfWordsOptions),
    "inception": (Inception, InceptionOptions),
    "transformer": (Transformer, TransformerOptions),
}


def build_encoder(options: Mapping[str, Any], vocabulary: int) -> TextEncoder:
    """Return an encoder of `options["kind"]`, built with the other options."""
    rest = dict(options)
    kind = rest.pop("kind", None)
    if kind not in ENCODERS:
        raise DataError(f"there is no encoder {kind!r}", remedy=f"choose from {', '.join(ENCODERS)}")
    build, options_of = ENCODERS[kind]
    return build(vocabulary, options_of(**rest))


def set_dropout(encoder: TextEncoder, share: float) -> None:
    """Set the dropout of an encoder, except inside a pre-trained network and in the last layer of
    Inception."""
    own: set[nn.Module] = set()
    if isinstance(encoder, Transformer):
        own.update(encoder.model.modules())
    elif isinstance(encoder, Inception):
        own.add(encoder.last_dropout)
    for module in encoder.modules():
        if isinstance(module, nn.Dropout) and module not in own:
            module.p = share


@torch.no_grad()
def encode_tokens(encoder: nn.Module, tokens: npt.NDArray[np.int32], batch: int = 4096) -> Tensor:
    """Return the vectors of all texts, without dropout; the encoder is left in evaluation mode."""
    # shape: (N, T) -> (N, dim)
    device = next(encoder.parameters()).device
    encoder.eval()
    found: Tensor | None = None  # filled in place, because a concatenation would take twice the memory
    for start in range(0, len(tokens), batch):
        ids = torch.from_numpy(tokens[start : start + batch].astype(np.int64))
        part = encoder(ids.to(device)).float()
        found = part.new_empty(len(tokens), part.shape[1]) if found is None else found
        found[start : start + batch] = part
    assert found is not None, "no texts"
    return found
