"""Optimisers of an encoder's parts: of its word table the rows that a batch meets, of the rest everything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gandalf.nets.word_table import WordTable
from gandalf.train.head_update import RowAdamW, RowOptions
from gandalf.train.rates import OptimiserName
from gandalf.train.scoring import put_back


@dataclass(frozen=True)
class EncoderOptions:
    """How an encoder is updated; the word table has a rate of its own, and decay is for other matrices."""

    optimiser: OptimiserName = "adamw"
    rate: float = 1e-3
    words_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9

    def slowed(self, factor: float) -> EncoderOptions:
        """Return the options with all rates times the factor."""
        return replace(self, rate=factor * self.rate, words_rate=factor * self.words_rate)


class EncoderUpdate:
    """Clip, step, forget the gradients; all rates times the schedule's factor."""

    def __init__(self, encoder: nn.Module, options: EncoderOptions, clip: float) -> None:
        self.options, self.clip = options, clip
        self.tables = [module for module in encoder.modules() if isinstance(module, WordTable)]
        known = {id(table.weight) for table in self.tables}
        self.dense = [p for p in encoder.parameters() if id(p) not in known and p.requires_grad]
        self.layers = _dense(self.dense, options) if self.dense else None
        # Adam whatever the option: SGD would hardly move the words that a text in a million holds.
        self.words = [RowAdamW(table.weight.data, RowOptions("adamw")) for table in self.tables]
        self._met: Tensor | None = None
        self._taken: list[Tensor] = []

    def begin(self, words: Tensor) -> None:
        """Before a batch that meets these words: only their vectors take part."""
        self._met, self._taken = words, [table.narrow(words) for table in self.tables]

    @property
    def leaves(self) -> list[Tensor]:
        """What gradients are of: the parameters, and the word vectors that were taken out."""
        return [*self.dense, *self._taken]

    def step(self, factor: float) -> None:
        """Apply the gradients that lie ready."""
        if self.layers is not None:
            if self.clip:
                nn.utils.clip_grad_norm_(self.dense, self.clip)
            for group in self.layers.param_groups:
                group["lr"] = self.options.rate * factor
            self.layers.step()
            self.layers.zero_grad(set_to_none=True)
        rate = self.options.words_rate * factor
        for table, rows, taken in zip(self.tables, self.words, self._taken, strict=True):
            if taken.grad is not None and self._met is not None:
                rows.update(taken.data, self._met, taken.grad, rate)
                put_back(table.weight.data, self._met, taken.data)
            table.widen()
        self._met, self._taken = None, []

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain numbers of the optimisers, for a checkpoint."""
        tensors: dict[str, Tensor] = {}
        numbers: dict[str, Any] = {}
        entries = {} if self.layers is None else self.layers.state_dict()["state"]
        for number, entry in entries.items():
            for name, value in entry.items():
                (tensors if isinstance(value, Tensor) else numbers)[f"layers.{number}.{name}"] = value
        for number, rows in enumerate(self.words):
            tensors |= {f"words.{number}.{name}": value for name, value in rows.state.items()}
        return tensors, numbers

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        for number, rows in enumerate(self.words):
            rows.load({name: tensors[f"words.{number}.{name}"] for name in rows.state})
        entries: dict[int, dict[str, Any]] = {}
        for key, value in {**tensors, **numbers}.items():
            part, place, name = key.split(".", 2)
            if part == "layers":
                # Steps write into what they are given, and what is given here belongs to the caller.
                copied = value.clone() if isinstance(value, Tensor) else value
                entries.setdefault(int(place), {})[name] = copied
        if self.layers is not None:
            self.layers.load_state_dict({**self.layers.state_dict(), "state": entries})


def _dense(parameters: list[nn.Parameter], options: EncoderOptions) -> torch.optim.Optimizer:
    # Decay is for matrices: a bias, or the weights of a normalisation, decayed to 0 would be another network.
    matrices = [each for each in parameters if each.ndim >= 2]
    others = [each for each in parameters if each.ndim < 2]
    groups = [
        {"params": params, "weight_decay": decay}
        for params, decay in ((matrices, options.weight_decay), (others, 0.0))
        if params
    ]
    if options.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=options.rate, momentum=options.momentum)
    return torch.optim.AdamW(groups, lr=options.rate, betas=(options.momentum, 0.999), fused=True)
