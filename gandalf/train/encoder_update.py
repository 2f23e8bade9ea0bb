"""Update an encoder: of its word table only the rows that a batch meets, of other layers all weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gandalf.nets.word_table import WordTable
from gandalf.train.rates import OptimiserName
from gandalf.train.row_optimisers import RowAdamW, RowOptions
from gandalf.train.workspace import put_back


@dataclass(frozen=True)
class EncoderOptions:
    """How an encoder is updated. Words have their own rate; only other matrices decay."""

    optimiser: OptimiserName = "adamw"
    rate: float = 1e-3
    words_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9

    def slowed(self, factor: float) -> EncoderOptions:
        """Return the options with all rates times the factor."""
        return replace(self, rate=factor * self.rate, words_rate=factor * self.words_rate)


class EncoderUpdate:
    """The optimisers of an encoder's layers and of its word table."""

    def __init__(self, encoder: nn.Module, options: EncoderOptions, clip: float) -> None:
        self.options, self.clip = options, clip
        self.tables = [module for module in encoder.modules() if isinstance(module, WordTable)]
        of_words = {id(table.weight) for table in self.tables}
        self.dense = [p for p in encoder.parameters() if id(p) not in of_words and p.requires_grad]
        self.layers = _layer_optimiser(self.dense, options) if self.dense else None
        # Always Adam: SGD would hardly move words that one text in a million has.
        self.words = [RowAdamW(table.weight.data, RowOptions("adamw")) for table in self.tables]
        self._met: Tensor | None = None
        self._taken: list[Tensor] = []

    def begin(self, words: Tensor) -> None:
        """Prepare for a batch with these words: only their vectors take part."""
        self._met, self._taken = words, [table.narrow(words) for table in self.tables]

    @property
    def leaves(self) -> list[Tensor]:
        """Tensors that receive gradients: the parameters, and the vectors of the batch's words."""
        return [*self.dense, *self._taken]

    def step(self, factor: float) -> None:
        """Clip and apply the gradients, with rates times `factor`, and clear them."""
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
        """Return tensors and plain numbers of the optimisers, for a checkpoint."""
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
        """Load what `state` returned."""
        for number, rows in enumerate(self.words):
            rows.load({name: tensors[f"words.{number}.{name}"] for name in rows.state})
        entries: dict[int, dict[str, Any]] = {}
        for key, value in {**tensors, **numbers}.items():
            part, place, name = key.split(".", 2)
            if part == "layers":
                # Copy: steps write into these tensors, which belong to the caller.
                copied = value.clone() if isinstance(value, Tensor) else value
                entries.setdefault(int(place), {})[name] = copied
        if self.layers is not None:
            self.layers.load_state_dict({**self.layers.state_dict(), "state": entries})


def _layer_optimiser(parameters: list[nn.Parameter], options: EncoderOptions) -> torch.optim.Optimizer:
    # Only matrices decay: biases and weights of a normalisation must not tend to 0.
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
