"""Batch normalisation over the points of all ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gandalf.train.ranks import Ranks


class RankBatchNorm(nn.BatchNorm1d):
    """Means and variances over all ranks, on any device; in use, plain batch normalisation.

    PyTorch's own (`SyncBatchNorm`) runs on GPUs only.
    """

    ranks: Ranks

    def forward(self, input: Tensor) -> Tensor:
        """Normalise."""  # shape: (B, C) or (B, C, n), the same
        if not self.training:
            return super().forward(input)
        x = input.float()
        axes = [axis for axis in range(x.ndim) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        count = x.new_tensor([x.numel() / x.shape[1]])
        total = self.ranks.total(torch.cat([x.sum(axes), count]))  # shape: (C + 1,)
        number = total[-1].detach()
        mean = total[:-1] / number
        centred = x - mean.view(shape)
        variance = self.ranks.total(centred.square().sum(axes)) / number
        self._remember(mean.detach(), variance.detach() * (number / (number - 1)))
        scaled = centred * torch.rsqrt(variance + self.eps).view(shape)
        return (scaled * self.weight.view(shape) + self.bias.view(shape)).to(input.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Move the means and variances that are used later on, as PyTorch does."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        assert self.num_batches_tracked is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        self.num_batches_tracked += 1


def normalise_together(net: nn.Module, ranks: Ranks) -> None:
    """Let the net's batch normalisations count the points of all ranks."""
    for module in net.modules() if ranks.world > 1 else ():
        if type(module) is nn.BatchNorm1d:
            module.__class__ = RankBatchNorm  # the same weights and names: checkpoints and models fit
            assert isinstance(module, RankBatchNorm)
            module.ranks = ranks
