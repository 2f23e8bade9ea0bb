"""Optimisers of an encoder's parts: its word table by sparse gradients, the rest by AdamW or SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gandalf.nets.word_table import WordTable
from gandalf.train.head_update import OptimiserName


@dataclass(frozen=True)
class EncoderOptions:
    """How an encoder is updated. The word table has a rate of its own and no weight decay."""

    optimiser: OptimiserName = "adamw"
    rate: float = 1e-3
    words_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9


class EncoderUpdate:
    """Clip, step, forget the gradients; all rates times the schedule's factor."""

    def __init__(self, encoder: nn.Module, options: EncoderOptions, clip: float) -> None:
        self.clip = clip
        words = [module.weight for module in encoder.modules() if isinstance(module, WordTable)]
        known = {id(weight) for weight in words}
        self.dense = [p for p in encoder.parameters() if id(p) not in known and p.requires_grad]
        self.parts: list[tuple[torch.optim.Optimizer, float]] = []
        if self.dense:
            self.parts.append((_dense(self.dense, options), options.rate))
        if words:
            # Adam whatever the option: SGD would hardly move the words that a text in a million holds.
            self.parts.append((torch.optim.SparseAdam(words, lr=options.words_rate), options.words_rate))

    def step(self, factor: float) -> None:
        """Apply the gradients that lie ready."""
        if self.clip and self.dense:
            nn.utils.clip_grad_norm_(self.dense, self.clip)
        for optimiser, rate in self.parts:
            for group in optimiser.param_groups:
                group["lr"] = max(rate * factor, 1e-12)  # SparseAdam refuses 0
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain numbers of the optimisers, for a checkpoint."""
        tensors: dict[str, Tensor] = {}
        numbers: dict[str, Any] = {}
        for part, (optimiser, _) in enumerate(self.parts):
            for number, entries in optimiser.state_dict()["state"].items():
                for name, value in entries.items():
                    (tensors if isinstance(value, Tensor) else numbers)[f"{part}.{number}.{name}"] = value
        return tensors, numbers

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        found: list[dict[int, dict[str, Any]]] = [{} for _ in self.parts]
        for key, value in {**tensors, **numbers}.items():
            part, number, name = key.split(".", 2)
            kept = value.clone() if isinstance(value, Tensor) else value  # theirs stays as it is
            found[int(part)].setdefault(int(number), {})[name] = kept
        for (optimiser, _), entries in zip(self.parts, found, strict=True):
            optimiser.load_state_dict({**optimiser.state_dict(), "state": entries})


def _dense(parameters: list[nn.Parameter], options: EncoderOptions) -> torch.optim.Optimizer:
    if options.optimiser == "sgd":
        return torch.optim.SGD(
            parameters, lr=options.rate, momentum=options.momentum, weight_decay=options.weight_decay
        )
    betas = (options.momentum, 0.999)
    return torch.optim.AdamW(parameters, lr=options.rate, betas=betas, weight_decay=options.weight_decay)
