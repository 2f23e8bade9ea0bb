"""Normalise batches over the points of all ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gandalf.train.parallel.ranks import Ranks


class RankBatchNorm(nn.BatchNorm1d):
    """Batch normalisation by the means and variances of all ranks; outside training it is PyTorch's.

    PyTorch's `SyncBatchNorm` runs on GPUs only.
    """

    ranks: Ranks

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a batch."""  # shape: (B, C) or (B, C, n), the same
        if not self.training:
            return super().forward(input)
        x = input.float()
        axes = [axis for axis in range(x.ndim) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        count = x.new_tensor([x.numel() / x.shape[1]])
        total = self.ranks.differentiable_sum(torch.cat([x.sum(axes), count]))  # shape: (C + 1,)
        number = total[-1].detach()
        mean = total[:-1] / number
        centred = x - mean.view(shape)
        variance = self.ranks.differentiable_sum(centred.square().sum(axes)) / number
        self._remember(mean.detach(), variance.detach() * (number / (number - 1)))
        scaled = centred * torch.rsqrt(variance + self.eps).view(shape)
        return (scaled * self.weight.view(shape) + self.bias.view(shape)).to(input.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running means and variances, as PyTorch does."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        assert self.num_batches_tracked is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        self.num_batches_tracked += 1


def normalise_together(net: nn.Module, ranks: Ranks) -> None:
    """Make the batch normalisations of a net count the points of all ranks."""
    for module in net.modules() if ranks.world > 1 else ():
        if type(module) is nn.BatchNorm1d:
            module.__class__ = RankBatchNorm  # the same weights and names: checkpoints and models fit
            assert isinstance(module, RankBatchNorm)
            module.ranks = ranks
