"""Encoders by name: what a config and a model folder call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

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
    """The encoder of that `kind`, with the other options given to it."""
    rest = dict(options)
    kind = rest.pop("kind", None)
    if kind not in ENCODERS:
        raise DataError(f"there is no encoder {kind!r}", remedy=f"choose from {', '.join(ENCODERS)}")
    build, options_of = ENCODERS[kind]
    return build(vocabulary, options_of(**rest))


def set_dropout(encoder: TextEncoder, share: float) -> None:
    """Drop this share from now on; what a pre-trained network drops inside, or a last layer, is its own."""
    own: set[nn.Module] = set()
    if isinstance(encoder, Transformer):
        own.update(encoder.model.modules())
    elif isinstance(encoder, Inception):
        own.add(encoder.last_dropout)
    for module in encoder.modules():
        if isinstance(module, nn.Dropout) and module not in own:
            module.p = share
