"""An encoder, a head and a loss of pairs from outside the package: what somebody writes who adds one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gandalf.nets.encoder import EncoderKind, TextEncoder
from gandalf.nets.head_kind import HeadKind
from gandalf.nets.word_table import WordTable
from gandalf.train.labels import InBatch
from gandalf.train.orders import Order, Phase
from gandalf.train.pairs.kind import PairData, PairKind, PairStage, weighted_sum


@dataclass(frozen=True)
class ToyOptions:
    dim: int = 8
    dropout: float = 0.0


class ToyEncoder(TextEncoder):
    """The mean of the word vectors, through one layer."""

    started = 0  # calls of `start`, of all

    def __init__(self, vocabulary: int, options: ToyOptions) -> None:
        super().__init__()
        self.dim = options.dim
        self.words = WordTable(vocabulary, options.dim)
        self.layer = nn.Linear(options.dim, options.dim)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        weight = (ids != 0).float()
        weight = weight / weight.sum(dim=1, keepdim=True).clamp_min(1)
        return self.dropout(torch.tanh(self.layer(self.words.weighted_sum(ids, weight))))

    def start(self, settings, tokens) -> None:
        ToyEncoder.started += 1


ENCODER = EncoderKind(ToyEncoder, ToyOptions, lambda settings, length: ToyOptions(settings.dim, 0.1))


def pull(x: Tensor, rows: Tensor, drawn: Tensor, positives, weights=None) -> Tensor:
    """Draw each point to its label and away from the mean label."""
    similarity = (x * rows[drawn]).sum(dim=1) - (x @ rows.mean(dim=0))
    return -weighted_sum(similarity, weights)


def build(data: PairData) -> PairStage:
    points, batch = data.labelled, data.options.pair_batch
    epoch = -(-len(points) // batch)
    order = Order([Phase(points, round(data.options.pair_epochs * epoch))], batch, data.seed)
    return PairStage(order, InBatch(data.seed), pull, epoch)


LOSS = PairKind(build)


class Mean(nn.Module):
    """Rows that are the mean of free rows and label texts, with one weight for each part."""

    def __init__(self, dim: int, parts: int) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.ones(parts))

    def forward(self, rows: list[Tensor]) -> Tensor:
        return sum(share * each for share, each in zip(self.shares, rows, strict=True)) / len(rows)


HEAD = HeadKind(("own",), Mean, row_values=4)
