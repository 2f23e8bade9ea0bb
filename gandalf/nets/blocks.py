"""The small blocks that stand behind a sum of word vectors, as Astec, DECAF and ECLARE each have them.

Every linear map in them has spectral norm 1 and starts as the identity, so a block begins close to its input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

BlockName = Literal["astec", "decaf", "eclare"]


def identity_linear(dim: int) -> nn.Module:
    """A linear map of spectral norm 1, started at the identity."""
    linear = nn.Linear(dim, dim)
    nn.init.eye_(linear.weight)
    nn.init.zeros_(linear.bias)
    return spectral_norm(linear)


def settle(network: nn.Module) -> None:
    """Put what weights come to in place of what they are computed from at each call; nothing learns then."""
    network.eval()
    for part in [*network.modules()]:
        for name in [*getattr(part, "parametrizations", ())]:
            parametrize.remove_parametrizations(part, name)


class Residual(nn.Module):
    """Astec's: y + dropout(relu(W y)) of y = dropout(relu(x))."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.linear = identity_linear(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the layer says to its input."""  # shape: (B, dim) -> (B, dim)
        x = self.dropout(F.relu(x))
        found: Tensor = x + self.dropout(F.relu(self.linear(x)))
        return found


class Gated(nn.Module):
    """DECAF's: sigmoid(a) W dropout(relu(x)) + sigmoid(b) x, a gate for each number, half open at first."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.linear = identity_linear(dim)
        self.dropout = nn.Dropout(dropout)
        self.of_layer = nn.Parameter(torch.zeros(dim))
        self.of_input = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Weigh the layer and its input."""  # shape: (B, dim) -> (B, dim)
        layer = self.linear(self.dropout(F.relu(x)))
        of_layer, of_input = (torch.sigmoid(gate).to(x.dtype) for gate in (self.of_layer, self.of_input))
        found: Tensor = of_layer * layer + of_input * x
        return found


class Scaled(nn.Module):
    """ECLARE's: k W dropout(relu(x)) + x, with one number k that starts at 1."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.linear = identity_linear(dim)
        self.dropout = nn.Dropout(dropout)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Add the layer to its input."""  # shape: (B, dim) -> (B, dim)
        found: Tensor = self.scale.to(x.dtype) * self.linear(self.dropout(F.relu(x))) + x
        return found


class Document(nn.Module):
    """A block as DECAF and ECLARE put it on points: dropout(relu(block(x)))."""

    def __init__(self, block: nn.Module, dropout: float) -> None:
        super().__init__()
        self.block = block
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """What a point's vector is made by."""  # shape: (B, dim) -> (B, dim)
        found: Tensor = self.dropout(F.relu(self.block(x)))
        return found


# Of points, and of labels: the same block with weights of its own, where a system has one.
POINT_BLOCKS: dict[BlockName, Callable[[int, float], nn.Module]] = {
    "astec": Residual,
    "decaf": lambda dim, dropout: Document(Gated(dim, dropout), dropout),
    "eclare": lambda dim, dropout: Document(Scaled(dim, dropout), dropout),
}
LABEL_BLOCKS: dict[BlockName, Callable[[int, float], nn.Module]] = {
    "astec": Residual,
    "decaf": Gated,
    "eclare": Scaled,
}
