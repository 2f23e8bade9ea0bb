"""InceptionXML's encoder: convolutions that slide over the embedding axis, not over the words."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from gandalf.errors import DataError
from gandalf.nets.word_table import WordTable

KERNELS = ((4, 0), (8, 2), (16, 6))  # width and circular padding; all of them step by 4
CHANNELS = 32  # filters of each convolution
LAST_KERNEL, STRIDE = 16, 4


@dataclass(frozen=True)
class InceptionOptions:
    """Sizes of an InceptionXML encoder: 32 words of 300 numbers give 480."""

    words: int = 32  # read of a text; shorter ones are padded
    word_dim: int = 300
    dropout: float = 0.25
    last_dropout: float = 0.5


class GatedAttention(nn.Module):
    """X + gate (X X^T / n) P X: every row of X asks the others, along one axis; the gate starts closed.

    Departs from the published form by the mean in place of the sum over the other axis (n entries), which
    keeps the gate's scale the same for both axes.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.project = spectral_norm(nn.Conv1d(size, size, 1, bias=False))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Mix the rows by how alike they are."""  # shape: (B, size, n) -> (B, size, n)
        projected, turned = self.project(x), x.transpose(1, 2)
        # (X X^T) P X and X (X^T P X) are the same; the shorter axis makes the smaller square.
        if x.shape[1] <= x.shape[2]:
            asked = torch.bmm(torch.bmm(x, turned), projected)
        else:
            asked = torch.bmm(x, torch.bmm(turned, projected))
        mixed: Tensor = x + (self.gate / x.shape[2]) * asked
        return mixed


class Inception(nn.Module):
    """Words as channels, embedding as length: 1x1 convolution, widths 4, 8 and 16, one more, a residual."""

    def __init__(self, vocabulary: int, options: InceptionOptions) -> None:
        super().__init__()
        steps = options.word_dim // STRIDE
        if steps < LAST_KERNEL:
            least = STRIDE * LAST_KERNEL
            raise DataError(
                f"its convolutions need words of at least {least} numbers, not {options.word_dim}",
                remedy=f"set encoder.dim to {least} or more",
            )
        self.dim = CHANNELS * ((steps - LAST_KERNEL) // STRIDE + 1)
        self.length = options.words
        # Entries of size 1: the convolutions sum few of them.
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

    def forward(self, ids: Tensor) -> Tensor:
        """Encode a batch of texts."""  # shape: (B, T) -> (B, dim)
        ids = F.pad(ids[:, : self.length], (0, max(0, self.length - ids.shape[1])))
        x = self.dropout(self.words(ids))  # shape: (B, words, word_dim)
        x = self.over_words(x)
        x = self.over_embedding(x.transpose(1, 2)).transpose(1, 2)
        x = self.mix(x)  # shape: (B, 32, word_dim)
        x = self.after(
            torch.cat([convolve(x) for convolve in self.parallel], dim=1)
        )  # shape: (B, 96, word_dim / 4)
        x = self.last(x).flatten(1)  # shape: (B, dim)
        x = x + self.residual(x)
        encoded: Tensor = self.last_dropout(x).float() * self.scale
        return encoded
