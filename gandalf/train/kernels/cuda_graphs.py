"""Layers of an encoder recorded as CUDA graphs: one launch each way in place of hundreds.

A step of InceptionXML's encoder is some six hundred small kernels, which a host launches more slowly than a
GPU runs them. Behind the word table nothing depends on a batch but the numbers, so what is recorded once can
be played at every step. Random numbers are drawn as they would be: a replay begins at the generator's seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gandalf.nets.word_table import WordEncoder

PAYS_FROM = 50  # steps of a stage: recording takes as long as some ten


class _Behind(nn.Module):
    """The layers behind a word table, as a module that has their parameters and no others."""

    def __init__(self, encoder: WordEncoder) -> None:
        super().__init__()
        self.layers = nn.ModuleList(each for each in encoder.children() if each is not encoder.words)
        self.behind = encoder.behind

    def forward(self, x: Tensor) -> Tensor:
        """What the encoder makes of its word vectors."""
        return self.behind(x)


@contextmanager
def recorded(encoder: nn.Module, batch: int, steps: int, dtype: torch.dtype) -> Iterator[None]:
    """Train an encoder of words by graphs in a stage of so many steps on a GPU; others as they are.

    Graphs are of batches of this size. Whatever has another shape, or is not training, goes the usual way.
    """
    device = next(encoder.parameters()).device
    if device.type != "cuda" or not isinstance(encoder, WordEncoder) or steps < PAYS_FROM:
        yield
        return
    with torch.no_grad():
        sample = encoder.look_up(torch.zeros(batch, 1, dtype=torch.int64, device=device))
    with _switched(encoder, sample.shape, _graphs(encoder, sample.requires_grad_(), dtype)):
        yield


@contextmanager
def _switched(encoder: WordEncoder, shape: torch.Size, graphs: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let graphs do what they can."""
    usual = encoder.behind

    def behind(x: Tensor) -> Tensor:
        fits = encoder.training and x.requires_grad and x.shape == shape
        return graphs(x) if fits else usual(x)

    encoder.behind = behind  # type: ignore[method-assign]
    try:
        yield
    finally:
        del encoder.behind  # its class's own again


def _graphs(encoder: WordEncoder, sample: Tensor, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Record; running means and the like, which the first tries moved, are put back."""
    layers = _Behind(encoder).train()
    names, weights = zip(*layers.named_parameters(), strict=True)
    # Recorded with others in the same memory, so that gradients of the weights themselves stay as they are:
    # PyTorch would have them wait for the stream of the recording at every step. Layers ask for parameters.
    same = [nn.Parameter(each.detach()) for each in weights]
    before = [each.clone() for each in layers.buffers()]

    def run(x: Tensor, *given: Tensor) -> Tensor:
        found: Tensor = functional_call(layers, dict(zip(names, given, strict=True)), (x,))
        return found

    low = dtype != torch.float32
    with (
        torch.autocast(sample.device.type, dtype=torch.bfloat16, enabled=low, cache_enabled=False),
        warnings.catch_warnings(),
    ):
        # PyTorch warns of its own first tries, which it makes on one stream and the recording on another.
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")
        graphs = torch.cuda.make_graphed_callables(run, (sample, *same))
    for buffer, value in zip(layers.buffers(), before, strict=True):
        buffer.copy_(value)
    return lambda x: graphs(x, *weights)  # type: ignore[return-value]
