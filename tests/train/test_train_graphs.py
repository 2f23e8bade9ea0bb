"""CUDA graphs of an encoder's layers: used where they fit, gone afterwards, and the same as without them."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from test_train_loop import LABELS, LENGTH, POINTS, SMALL, VOCABULARY, made_up

from gandalf.nets.blocks import POINT_BLOCKS
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Encoded, Table
from gandalf.train import loop
from gandalf.train.encoder_update import EncoderOptions
from gandalf.train.kernels import cuda_graphs as graphs
from gandalf.train.labels import Every
from gandalf.train.loop import Training
from gandalf.train.orders import Order, Phase
from gandalf.train.parallel.ranks import ONE
from gandalf.train.row_optimisers import RowOptions
from gandalf.train.stage import Stage

of_words = pytest.mark.parametrize("kind", ["bag-of-words", "inception"])


def built(kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_encoder({"kind": kind, **SMALL[kind]}, VOCABULARY)


@of_words
def test_layers_behind_the_words_have_all_parameters_but_the_words(kind):
    encoder = built(kind)
    found = {id(each) for each in graphs._Layers(encoder).parameters()}
    assert found == {id(each) for each in encoder.parameters()} - {id(encoder.words.weight)}


@pytest.mark.parametrize("block", [*POINT_BLOCKS, None])
def test_what_is_recorded_uses_every_parameter(block, monkeypatch):
    """PyTorch refuses to record others."""
    shape = {"kind": "inception"} if block is None else {"kind": "bag-of-words", "block": block}
    encoder = build_encoder({**shape, **SMALL[shape["kind"]]}, VOCABULARY)

    def recorded(layers, samples):
        gradients = torch.autograd.grad(layers(*samples).sum(), samples)  # raises where one is not used
        assert len(gradients) == 1 + len([*encoder.parameters()]) - 1  # with the words, without their table
        return layers

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", recorded)
    sample = encoder.look_up(torch.ones(8, LENGTH, dtype=torch.int64)).detach().requires_grad_()
    graphs._record_layers(encoder, sample, torch.float32)


def test_recording_leaves_running_means_as_they_were(monkeypatch):
    encoder = built("inception")
    before = copy.deepcopy(encoder.state_dict())
    moved = []

    def tried(layers, samples):
        """What PyTorch does first: some steps, which move what is counted on the way."""
        layers(*samples)
        moved.extend(
            name for name, each in encoder.state_dict().items() if not torch.equal(each, before[name])
        )
        return layers

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", tried)
    sample = encoder.look_up(torch.ones(8, LENGTH, dtype=torch.int64)).detach().requires_grad_()
    graphs._record_layers(encoder, sample, torch.float32)
    assert moved  # else there would be nothing to put back
    for name, each in encoder.state_dict().items():
        assert torch.equal(each, before[name]), name


@of_words
def test_graphs_do_what_fits_them_and_nothing_after(kind):
    encoder, played = built(kind), []

    def play(x):
        played.append(x.shape)
        return x.flatten(1)[:, : encoder.dim] * 0 + 5

    few, ids = torch.ones(3, LENGTH, dtype=torch.int64), torch.ones(8, LENGTH, dtype=torch.int64)
    with graphs._replace_layers(encoder, encoder.look_up(ids).shape, play):
        encoder.train()
        assert (encoder(ids) == 5).all()
        assert not (encoder(few) == 5).any()  # another shape
        with torch.no_grad():
            assert not (encoder(ids) == 5).any()
        assert not (encoder.eval()(ids) == 5).any()
        assert len(played) == 1
    assert not (encoder.train()(ids) == 5).any() and "apply_layers" not in vars(encoder)


def test_without_a_gpu_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", None)  # to call it would fail
    encoder = built("inception")
    with graphs.recorded(encoder, 8, 1_000, torch.float32):
        assert "apply_layers" not in vars(encoder)


def asked_for(monkeypatch, more=None, head=None, ranks=ONE):
    """What a run lets be recorded: batches of so many points, in a stage of so many steps."""
    asked = []

    def note(encoder, batch, steps, dtype):
        asked.append((batch, steps))
        return nullcontext()

    monkeypatch.setattr(loop, "recorded", note)
    encoder = built("bag-of-words")
    order = Order([Phase(np.arange(POINTS), 6)], 16, seed=3)
    head = Table(LABELS, encoder.dim) if head is None else head(encoder)
    stage = Stage(order, Every(LABELS, 4), **(more or {}))
    training = Training(encoder, head, made_up(), stage, ranks=ranks)
    training.step = 4  # it goes on where another left off
    training._recorded()
    return asked


def test_batches_that_go_through_at_once_are_recorded(monkeypatch):
    assert asked_for(monkeypatch) == [(16, 6)]


class Two(type(ONE)):
    world = 2


@pytest.mark.parametrize(
    "given",
    [
        {"more": {"frozen": True}},
        {"more": {"micro_batch": 4}},
        {"ranks": Two()},
        {
            "more": {"pairs": lambda *given: None},
            "head": lambda encoder: Encoded(encoder, torch.ones(LABELS, 2, dtype=torch.int64), encoder.dim),
        },
    ],
    ids=["frozen", "a part at a time", "several ranks", "label texts too"],
)
def test_what_goes_through_twice_or_is_not_alone_is_not_recorded(given, monkeypatch):
    assert asked_for(monkeypatch, **given) == []


def trained(kind, dtype):
    """Steps on a GPU, the last of them with batches of another size."""
    torch.manual_seed(1)
    encoder = built(kind).cuda()
    head = Table(LABELS, encoder.dim).cuda()
    phases = [Phase(np.arange(POINTS), 40), Phase(np.arange(10), 20)]
    stage = Stage(
        *(Order(phases, 16, seed=3), Every(LABELS, 4)),
        encoder=EncoderOptions("adamw", rate=1e-3, words_rate=1e-3),
        head=RowOptions("adamw", rate=1e-3),
        dtype=dtype,
    )
    training = Training(encoder, head, made_up(), stage)
    training.run()
    return training


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: CUDA graphs run nowhere else")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@of_words
def test_graphs_train_as_the_usual_way_does(kind, dtype, monkeypatch):
    recorded, played = graphs._record_layers, []

    def counted(*given):
        made = recorded(*given)
        return lambda x: played.append(len(x)) or made(x)

    with monkeypatch.context() as patch:
        patch.setattr(graphs, "_record_layers", counted)
        by_graphs = trained(kind, dtype)
    assert played == [16] * 40
    monkeypatch.setattr(graphs, "PAYS_FROM", 10**9)
    usual = trained(kind, dtype)
    for name, tensor in usual.weights().items():
        torch.testing.assert_close(by_graphs.weights()[name], tensor, rtol=1e-3, atol=1e-4, msg=name)
