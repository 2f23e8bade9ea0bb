"""Define InceptionXML's encoder: convolutions along the embedding axis, not along the words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from gandalf.errors import DataError
from gandalf.nets.encoder import EncoderKind, EncoderSettings
from gandalf.nets.word_table import WordEncoder, WordTable

KERNELS = ((4, 0), (8, 2), (16, 6))  # width and circular padding; all have stride 4
WIDEST, MARGIN = KERNELS[-1]  # windows of the widest kernel contain those of the others in their middle
AttentionName = Literal["self", "cross"]
CHANNELS = 32  # filters of each convolution
LAST_KERNEL, STRIDE = 16, 4


@dataclass(frozen=True)
class InceptionOptions:
    """Sizes of an InceptionXML encoder: 32 words of 300 numbers give 480."""

    words: int = 32  # words read of a text; shorter texts are padded
    word_dim: int = 300
    dropout: float = 0.25
    last_dropout: float = 0.5
    # Input of the second attention. Models until commit 0f17dd6 do not store this option, and have "self".
    attention: AttentionName = "self"


class GatedAttention(nn.Module):
    """X + gate (X Y^T / n) P Y: every row of X attends to the rows of Y along one axis; the gate starts at 0.

    Y is X itself, or the input of the first attention. The published form has a sum over the other axis (n
    entries); here it is a mean, so that the gate has the same scale for both axes.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.project = spectral_norm(nn.Conv1d(size, size, 1, bias=False))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        """Add rows of `other` to the rows of `x`, weighted by their similarity."""
        # shape: (B, size, n), the same -> the same
        project = self.project.weight  # shape: (size, size, 1)
        transposed = other.transpose(1, 2)  # shape: (B, n, size)
        assert isinstance(project, Tensor)
        weight = project.flatten(1)
        # (X Y^T P) Y and X (Y^T P Y) are equal; choose the order with the smaller intermediate matrix.
        if x.shape[1] <= x.shape[2]:
            attended = torch.bmm(torch.bmm(x, transposed) @ weight, other)
        else:
            mixing = torch.bmm(F.linear(transposed, weight), other)
            attended = torch.bmm(mixing, x.transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = x + (self.gate / x.shape[2]) * attended
        return mixed


def convolve(x: Tensor, *convolutions: nn.Module) -> Tensor:
    """Compute parallel convolutions of stride 4 as one product; narrow kernels are padded with zeros."""
    # shape: (B, n, C) -> (B, m, D)
    weights = [each.get_parameter("weight") for each in convolutions]
    # shape: (D, C, 16)
    wide = torch.cat([F.pad(each, [(WIDEST - each.shape[2]) // 2] * 2) for each in weights])
    bias = torch.cat([each.get_parameter("bias") for each in convolutions])
    windows = x.unfold(1, WIDEST, STRIDE).transpose(2, 3)  # shape: (B, m, 16, C)
    return F.linear(windows.flatten(2), wide.transpose(1, 2).flatten(1), bias)


class Inception(WordEncoder):
    """InceptionXML: convolutions with words as channels and the embedding as length, then a residual layer.

    A 1x1 convolution is followed by kernels of width 4, 8 and 16 in parallel, and by one more convolution.
    """

    def __init__(self, vocabulary: int, options: InceptionOptions) -> None:
        super().__init__()
        steps = options.word_dim // STRIDE
        if steps < LAST_KERNEL:
            least = STRIDE * LAST_KERNEL
            raise DataError(
                f"its convolutions need words of at least {least} numbers, not {options.word_dim}",
                remedy=f"set encoder.dim to {least} or more",
            )
        if options.attention not in get_args(AttentionName):
            what = f"there is no attention {options.attention!r}"
            raise DataError(what, remedy=f"choose from {', '.join(get_args(AttentionName))}")
        self.crosses = options.attention == "cross"
        self.dim = CHANNELS * ((steps - LAST_KERNEL) // STRIDE + 1)
        self.length = options.words
        # Vectors with entries of size 1, because the convolutions sum only a few of them.
        self.words = WordTable(vocabulary, options.word_dim, length=options.word_dim**0.5)
        self.dropout = nn.Dropout(options.dropout)
        self.over_words = GatedAttention(options.words)
        self.over_embedding = GatedAttention(options.word_dim)
        self.mix = nn.Sequential(nn.Conv1d(options.words, CHANNELS, 1), nn.GELU(), nn.BatchNorm1d(CHANNELS))
        self.parallel = nn.ModuleList(
            nn.Conv1d(CHANNELS, CHANNELS, width, STRIDE, padding, padding_mode="circular")
            for width, padding in KERNELS
        )
        self.after = nn.Sequential(
            nn.GELU(), nn.BatchNorm1d(CHANNELS * len(KERNELS)), nn.Dropout(options.dropout)
        )
        self.last = nn.Sequential(
            nn.Conv1d(CHANNELS * len(KERNELS), CHANNELS, LAST_KERNEL, STRIDE),
            nn.GELU(),
            nn.BatchNorm1d(CHANNELS),
        )
        self.residual = nn.Sequential(
            nn.Dropout(options.dropout), nn.Linear(self.dim, self.dim), nn.GELU(), nn.BatchNorm1d(self.dim)
        )
        self.last_dropout = nn.Dropout(options.last_dropout)
        self.scale = self.dim**-0.5  # vectors of length about 1, as every head expects

    def set_dropout(self, share: float) -> None:
        """Drop this share of numbers from now on; the share before the head stays."""
        last = self.last_dropout.p
        super().set_dropout(share)
        self.last_dropout.p = last

    def look_up(self, ids: Tensor) -> Tensor:
        """Return the vectors of the first words, padded to `words`."""
        # shape: (B, T) -> (B, words, word_dim)
        ids = F.pad(ids[:, : self.length], (0, max(0, self.length - ids.shape[1])))
        found: Tensor = self.words(ids)
        return found

    def apply_layers(self, x: Tensor) -> Tensor:
        """Apply all layers; convolutions are matrix products with channels last."""
        # shape: (B, words, word_dim) -> (B, dim)
        x = self.dropout(x)
        attended = self.over_words(x, x)
        other = x if self.crosses else attended
        x = self.over_embedding(attended.transpose(1, 2), other.transpose(1, 2)).transpose(1, 2)
        mix, *rest = self.mix
        x = F.linear(x.transpose(1, 2), mix.get_parameter("weight").flatten(1), mix.get_parameter("bias"))
        x = _apply_flat(rest, x)  # shape: (B, word_dim, 32)
        x = torch.cat([x[:, -MARGIN:], x, x[:, :MARGIN]], dim=1)  # circular padding
        x = _apply_flat(self.after, convolve(x, *self.parallel))  # shape: (B, word_dim / 4, 96)
        last, *rest = self.last
        x = _apply_flat(rest, convolve(x, last))  # shape: (B, dim / 32, 32)
        x = x.transpose(1, 2).flatten(1)  # shape: (B, dim)
        x = x + self.residual(x)
        encoded: Tensor = self.last_dropout(x).float() * self.scale
        return encoded


def _apply_flat(layers: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Apply layers that work on channels (the last axis) or numbers."""  # shape: (B, n, C), the same
    flat = x.flatten(0, 1)
    for layer in layers:
        flat = layer(flat)
    return flat.view(x.shape)


def _choose(settings: EncoderSettings, max_length: int) -> InceptionOptions:
    shares = (settings.dropout, settings.last_dropout)
    return InceptionOptions(max_length, settings.dim, *shares, settings.attention)


KIND = EncoderKind(Inception, InceptionOptions, _choose, normalises=True)
