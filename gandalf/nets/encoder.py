"""Define what every encoder of texts has, and what a run must know before it builds an encoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from gandalf.text.tokens import Tokens

if TYPE_CHECKING:
    from gandalf.nets.word_table import WordTable
    from gandalf.wide.plain import PlainBagOfWords


class EncoderSettings(Protocol):
    """Settings of a recipe that encoders read."""

    @property
    def model(self) -> str | None:
        """Folder or package of a pre-trained transformer."""

    @property
    def residual(self) -> Any:  # noqa: ANN401  a name of `blocks`
        """Block behind a bag of words."""

    @property
    def centred(self) -> bool:
        """True to subtract the mean vector of the training texts."""

    @property
    def dim(self) -> int:
        """Numbers in a word's vector."""

    @property
    def dropout(self) -> float:
        """Share of numbers dropped while training."""

    @property
    def last_dropout(self) -> float:
        """Share of numbers dropped before the head."""

    @property
    def attention(self) -> Any:  # noqa: ANN401  a name of `inception`
        """Input of the second attention."""


class TextEncoder(nn.Module, ABC):
    """An encoder: it turns token ids (0 is padding) into vectors of length about 1."""

    dim: int

    @abstractmethod
    def forward(self, ids: Tensor) -> Tensor:
        """Encode a batch of texts."""  # shape: (B, T) -> (B, dim)

    def start(self, settings: EncoderSettings, tokens: Tokens) -> None:
        """Set the weights that are known before the first step; by default there are none."""

    def fit_to_texts(self, ids: Tensor) -> None:
        """Fit the encoder's centre or scale to some training texts, on the device; by default it has none."""

    @property
    def word_table(self) -> WordTable | None:
        """Table of word vectors, shared with rows made of label texts; None if there is none."""
        return None

    @property
    def is_centred(self) -> bool:
        """True if vectors have mean 0 over the training texts, so that first scores can be probabilities."""
        return False

    def set_dropout(self, share: float) -> None:
        """Drop this share of numbers from now on."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = share

    def remember(self) -> None:
        """Cache the vector of every text from now on, if the encoder is slow."""

    def forget(self) -> None:
        """Drop the cache of vectors."""

    def plain(self) -> PlainBagOfWords | None:
        """Return the encoder in NumPy, for one text at a time; None if it has no such form."""
        return None

    def for_export(self) -> nn.Module:
        """Return a module with the same vectors whose operations ONNX has."""
        return self


def evenly(number: int, at_most: int) -> npt.NDArray[np.int64]:
    """Return at most so many places of `number`, evenly spaced."""
    return np.linspace(0, number - 1, min(at_most, number)).astype(np.int64)


def _require_nothing(settings: EncoderSettings) -> None:
    pass


def _any_length(settings: EncoderSettings) -> int | None:
    return None


@dataclass(frozen=True)
class EncoderKind:
    """What a run must know of an encoder before it is built."""

    build: Callable[[int, Any], TextEncoder]  # from the number of tokens and the options
    options: Callable[..., Any]  # dataclass that a model folder keeps
    choose: Callable[[EncoderSettings, int], Any]  # options by settings and tokens read of a text
    require: Callable[[EncoderSettings], None] = _require_nothing  # raises if something is not installed
    longest: Callable[[EncoderSettings], int | None] = _any_length  # tokens of a text; None: any number
    pretrained: bool = False  # has tokens, vectors and layers of its own, and reads few texts at a time
    normalises: bool = False  # over a batch, which needs two points
    small_batches: bool = False  # learns well from small batches, which give small sets more updates
    weighs_tokens: bool = False  # by how many texts have them
