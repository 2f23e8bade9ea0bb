"""Record the layers of an encoder as CUDA graphs: one launch each way replaces hundreds.

A step of InceptionXML's encoder is about six hundred small kernels, which a CPU launches more slowly than a
GPU runs them. After the word table all batches have the same shapes, so one recording serves every step.
Random numbers are those of usual training: a replay begins at the generator's seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gandalf.nets.word_table import WordEncoder

PAYS_FROM = 50  # steps of a stage; recording takes as long as about ten steps


class _Layers(nn.Module):
    """The layers after a word table, as a module with their parameters only."""

    def __init__(self, encoder: WordEncoder) -> None:
        super().__init__()
        self.layers = nn.ModuleList(each for each in encoder.children() if each is not encoder.words)
        self.apply_layers = encoder.apply_layers

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers to word vectors."""
        return self.apply_layers(x)


@contextmanager
def recorded(encoder: nn.Module, batch: int, steps: int, dtype: torch.dtype) -> Iterator[None]:
    """Replay graphs of a word encoder's layers in the body, if the stage is on a GPU and has enough steps.

    Graphs serve training batches of this size; the layers handle everything else as usual.
    """
    device = next(encoder.parameters()).device
    if device.type != "cuda" or not isinstance(encoder, WordEncoder) or steps < PAYS_FROM:
        yield
        return
    with torch.no_grad():
        sample = encoder.look_up(torch.zeros(batch, 1, dtype=torch.int64, device=device))
    with _replace_layers(encoder, sample.shape, _record_layers(encoder, sample.requires_grad_(), dtype)):
        yield


@contextmanager
def _replace_layers(
    encoder: WordEncoder, shape: torch.Size, graphs: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """Use the graphs for training batches of this shape in the body."""
    usual = encoder.apply_layers

    def graphs_if_they_fit(x: Tensor) -> Tensor:
        fits = encoder.training and x.requires_grad and x.shape == shape
        return graphs(x) if fits else usual(x)

    encoder.apply_layers = graphs_if_they_fit  # type: ignore[method-assign]
    try:
        yield
    finally:
        del encoder.apply_layers  # uncovers the method of the class


def _record_layers(encoder: WordEncoder, sample: Tensor, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return the layers as graphs; restore running means, which the recording changes."""
    layers = _Layers(encoder).train()
    names, weights = zip(*layers.named_parameters(), strict=True)
    # Record with other parameters in the same memory. Else PyTorch would make the weights' gradients wait for
    # the stream of the recording at every step.
    recorded_weights = [nn.Parameter(each.detach()) for each in weights]
    before = [each.clone() for each in layers.buffers()]

    def run(x: Tensor, *given: Tensor) -> Tensor:
        output: Tensor = functional_call(layers, dict(zip(names, given, strict=True)), (x,))
        return output

    low = dtype != torch.float32
    with (
        torch.autocast(sample.device.type, dtype=torch.bfloat16, enabled=low, cache_enabled=False),
        warnings.catch_warnings(),
    ):
        # PyTorch warns of its own warm-up, which runs on another stream than the recording.
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")
        graphs = torch.cuda.make_graphed_callables(run, (sample, *recorded_weights))
    for buffer, value in zip(layers.buffers(), before, strict=True):
        buffer.copy_(value)
    return lambda x: graphs(x, *weights)  # type: ignore[return-value]
