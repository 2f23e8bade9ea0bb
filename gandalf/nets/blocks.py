"""Define the small blocks of Astec, DECAF and ECLARE, which follow a sum of word vectors.

Every linear map in a block has spectral norm 1 and starts as the identity, so a block starts close to the
identity.
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
    """Return a linear map of spectral norm 1 that starts as the identity."""
    linear = nn.Linear(dim, dim)
    nn.init.eye_(linear.weight)
    nn.init.zeros_(linear.bias)
    return spectral_norm(linear)


def drop_parametrizations(network: nn.Module) -> None:
    """Replace parametrised weights by their values, for prediction; this ends the network's training."""
    network.eval()
    for part in [*network.modules()]:
        for name in [*getattr(part, "parametrizations", ())]:
            parametrize.remove_parametrizations(part, name)


class Residual(nn.Module):
    """Astec's block: y + dropout(relu(W y)) with y = dropout(relu(x))."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.linear = identity_linear(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of the layer to its input."""  # shape: (B, dim) -> (B, dim)
        x = self.dropout(F.relu(x))
        found: Tensor = x + self.dropout(F.relu(self.linear(x)))
        return found


class Gated(nn.Module):
    """DECAF's block: sigmoid(a) W dropout(relu(x)) + sigmoid(b) x, with gates that start half open."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.linear = identity_linear(dim)
        self.dropout = nn.Dropout(dropout)
        self.of_layer = nn.Parameter(torch.zeros(dim))
        self.of_input = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Add the layer and its input, each times its gate."""  # shape: (B, dim) -> (B, dim)
        layer = self.linear(self.dropout(F.relu(x)))
        of_layer, of_input = (torch.sigmoid(gate).to(x.dtype) for gate in (self.of_layer, self.of_input))
        found: Tensor = of_layer * layer + of_input * x
        return found


class Scaled(nn.Module):
    """ECLARE's block: k W dropout(relu(x)) + x, with one number k that starts at 1."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.linear = identity_linear(dim)
        self.dropout = nn.Dropout(dropout)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Add the scaled layer to its input."""  # shape: (B, dim) -> (B, dim)
        found: Tensor = self.scale.to(x.dtype) * self.linear(self.dropout(F.relu(x))) + x
        return found


class Document(nn.Module):
    """A block for points, as in DECAF and ECLARE: dropout(relu(block(x)))."""

    def __init__(self, block: nn.Module, dropout: float) -> None:
        super().__init__()
        self.block = block
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors of points."""  # shape: (B, dim) -> (B, dim)
        found: Tensor = self.dropout(F.relu(self.block(x)))
        return found


# Blocks for points and for label texts. The two have separate weights.
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
