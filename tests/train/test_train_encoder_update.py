"""A step of the encoder: words by an Adam of their own each, the layers by theirs, gradients clipped."""

from __future__ import annotations

import copy

import pytest
import torch

from gandalf.nets.encoders import build_encoder
from gandalf.train.encoder_update import EncoderOptions, EncoderUpdate
from gandalf.train.row_optimisers import ROWS

VOCABULARY, DIM = 60, 24


def layers():
    """An encoder that drops nothing, so that two of them stay alike."""
    return build_encoder({"kind": "bag-of-words", "dim": DIM, "dropout": 0.0}, VOCABULARY)


@pytest.mark.parametrize("optimiser", ROWS)
def test_words_move_as_by_an_adam_of_their_own_each_and_the_rest_by_its_own(optimiser):
    """Several steps, rates that change, tokens that repeat: as the optimisers of torch, one for each word."""
    encoder = layers()
    other = copy.deepcopy(encoder)
    options = EncoderOptions(optimiser, rate=1e-2, words_rate=3e-2, weight_decay=0.5, momentum=0.8)
    update = EncoderUpdate(encoder, options, clip=0.0)
    layer = other.residual.linear
    dense = [
        {"params": [layer.parametrizations.weight.original], "weight_decay": 0.5},
        {"params": [layer.bias], "weight_decay": 0.0},
    ]
    its = {
        "adamw": lambda: torch.optim.AdamW(dense, betas=(0.8, 0.999)),
        "sgd": lambda: torch.optim.SGD(dense, momentum=0.8),
    }[optimiser]()
    rows = [each.clone().requires_grad_() for each in other.words.weight.detach()]
    of_rows = [torch.optim.Adam([each]) for each in rows]
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        ids = torch.randint(0, VOCABULARY // 3 * (1 + step % 3), (8, 5), generator=generator)
        wanted = torch.randn(8, DIM, generator=generator)
        met = torch.cat([ids.flatten(), torch.zeros(1, dtype=torch.int64)]).unique()
        with torch.no_grad():
            other.words.weight.copy_(torch.stack(rows))
        update.begin(met)
        for net in (encoder, other):
            net.train()(ids).backward(wanted)
        factor = 1 / (step + 1)
        update.step(factor)
        for group in its.param_groups:
            group["lr"] = 1e-2 * factor
        its.step()
        its.zero_grad()
        for word in met.tolist():
            of_rows[word].param_groups[0]["lr"] = 3e-2 * factor
            rows[word].grad = other.words.weight.grad[word].clone()
            of_rows[word].step()
        other.words.weight.grad = None
        assert all(each.grad is None for each in encoder.parameters())
    with torch.no_grad():
        other.words.weight.copy_(torch.stack(rows))
    for name, each in encoder.state_dict().items():
        torch.testing.assert_close(each, other.state_dict()[name], rtol=1e-4, atol=1e-5, msg=name)


def test_gradients_of_the_layers_are_clipped():
    """By SGD without momentum a step is the gradient, whose norm may not be more than the limit."""
    encoder = layers()
    update = EncoderUpdate(encoder, EncoderOptions("sgd", rate=1.0, momentum=0.0), clip=0.25)
    before = [each.detach().clone() for each in update.dense]
    update.begin(torch.arange(13))
    x = encoder.train()(torch.arange(1, 13).view(2, 6))
    x.backward(100 * torch.ones_like(x))
    update.step(1.0)
    moved = sum(((each - old) ** 2).sum() for each, old in zip(update.dense, before, strict=True))
    assert moved.sqrt().item() == pytest.approx(0.25, rel=1e-4)
