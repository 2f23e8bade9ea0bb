"""The training loop: resumed is unbroken, hooks come when they should, and what can be learnt is learnt."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from small_transformer import small_bert
from torch.nn import functional as F

from gandalf.nets.encoders import ENCODERS, build_encoder
from gandalf.nets.heads import Table
from gandalf.train.batches import Points
from gandalf.train.checkpoint import Checkpoints
from gandalf.train.encoder_update import EncoderOptions
from gandalf.train.labels import Every, Shortlist
from gandalf.train.loop import Training
from gandalf.train.orders import Order, Phase
from gandalf.train.row_optimisers import ROWS, RowOptions
from gandalf.train.stage import Stage

VOCABULARY, LENGTH, POINTS, LABELS, STEPS = 60, 6, 40, 15, 12
SMALL = {
    "bag-of-words": {"dim": 24},
    "inception": {"words": LENGTH, "word_dim": 128},
    "transformer": {"config": small_bert()},
}


def made_up(seed=0):
    """Points of random words; soft targets, a few without any, and weights."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, VOCABULARY, (POINTS, LENGTH)).astype(np.int32)
    tokens[np.arange(LENGTH) >= generator.integers(1, LENGTH + 1, (POINTS, 1))] = 0
    targets = generator.random((POINTS, LABELS)) * (generator.random((POINTS, LABELS)) < 0.2)
    return Points(tokens, csr_array(targets.astype(np.float32)), generator.random(POINTS).astype(np.float32))


LABELS_OF = {"every": lambda: Every(LABELS, 4), "shortlist": lambda: Shortlist(LABELS, 3, 0)}


@dataclass(frozen=True)
class Kind:
    """One way to train."""

    encoder: str = "bag-of-words"
    optimiser: str = "adamw"
    labels: str = "every"
    dtype: torch.dtype = torch.float32
    more: dict = field(default_factory=dict)

    def training(self, points=None, order=None) -> Training:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            encoder = build_encoder({"kind": self.encoder, **SMALL[self.encoder]}, VOCABULARY)
            head = Table(LABELS, encoder.dim)
        phases = [Phase(np.arange(POINTS), 5), Phase(np.arange(POINTS // 2), STEPS - 5)]
        stage = Stage(
            order or Order(phases, 16, seed=3),
            LABELS_OF[self.labels](),
            encoder=EncoderOptions(self.optimiser, rate=1e-2, words_rate=1e-2),
            head=RowOptions(self.optimiser, rate=1e-2),
            dtype=self.dtype,
            seed=7,
            **self.more,
        )
        return Training(encoder, head, points or made_up(), stage)


class Refresh:
    """New hard negatives by the model as it is."""

    def every(self, training):
        return 3

    def __call__(self, training):
        labels = training.stage.labels
        if isinstance(labels, Shortlist):
            with torch.no_grad():
                ids = torch.from_numpy(training.points.tokens.astype(np.int64))
                scores = training.encoder.eval()(ids) @ training.head.rows.T
            labels.refresh(scores.topk(2).indices.numpy().astype(np.int32))
        return False


class At:
    """Calls the function at certain steps, and stops there if it says so."""

    def __init__(self, every, function=lambda training: False):
        self.steps, self.function, self.calls = every, function, []

    def every(self, training):
        return self.steps

    def __call__(self, training):
        self.calls.append(training.step)
        return self.function(training)


every_kind = pytest.mark.parametrize(
    "kind",
    [
        Kind(encoder, optimiser, labels, dtype)
        for encoder in ENCODERS
        for optimiser in ROWS
        for labels in LABELS_OF
        for dtype in (torch.float32, torch.bfloat16)
    ],
    ids=lambda kind: f"{kind.encoder}-{kind.optimiser}-{kind.labels}-{kind.dtype}".replace("torch.", ""),
)


def same(first, second):
    assert first.keys() == second.keys()
    different = [name for name, tensor in first.items() if not torch.equal(tensor, second[name])]
    assert not different


@every_kind
@pytest.mark.parametrize("broken", [4, 6])
def test_a_resumed_run_ends_as_an_unbroken_one(kind, broken, tmp_path):
    unbroken = kind.training()
    unbroken.run([Refresh()])

    first = kind.training()
    first.run([Refresh(), At(broken, lambda training: True)])
    assert first.step == broken
    tensors, numbers = first.state()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(tensors, numbers)

    second = kind.training()
    with torch.no_grad():  # whatever it starts from, it is overwritten
        for each in second.weights().values():
            each.add_(1)
    second.load(*checkpoints.latest())
    if kind.labels == "shortlist":
        second.stage.labels.refresh(first.stage.labels.hardest)
    second.run([Refresh()])
    assert second.step == unbroken.step == STEPS
    assert second.loss == unbroken.loss
    same(second.state()[0], unbroken.state()[0])
    assert second.state()[1] == unbroken.state()[1]


def test_what_was_loaded_is_not_changed_by_going_on():
    first = Kind().training()
    first.run([At(4, lambda training: True)])
    tensors, numbers = first.state()
    before, json_before = copy.deepcopy(tensors), json.dumps(numbers)
    second = Kind().training()
    second.load(tensors, numbers)
    second.run()
    same(tensors, before)
    assert json.dumps(numbers) == json_before


def test_hooks_change_nothing():
    plain, watched = Kind().training(), Kind().training()
    plain.run()
    watched.run([At(1), At(5)])
    same(plain.state()[0], watched.state()[0])


def test_two_seeds_differ():
    first, second = Kind().training(), Kind().training()
    second.stage = replace(second.stage, seed=8)
    first.run()
    second.run()
    assert not torch.equal(first.head.rows, second.head.rows)


@pytest.mark.parametrize(
    ("every", "calls"),
    [(1, list(range(1, 13))), (5, [5, 10, 12]), (4, [4, 8, 12]), (12, [12]), (100, [12])],
)
def test_hooks_are_called_in_time_and_at_the_end(every, calls):
    hook, other = At(every), At(3)
    training = Kind().training()
    training.run([hook, other])
    assert hook.calls == calls
    assert other.calls == [3, 6, 9, 12]


def test_every_hook_due_is_called_even_when_one_stops_the_run():
    stopping, also, later = At(6, lambda training: True), At(3), At(4)
    training = Kind().training()
    training.run([stopping, also, later])
    assert training.step == 6
    assert stopping.calls == [6] and also.calls == [3, 6] and later.calls == [4]
    training.run([also, later])
    assert also.calls == [3, 6, 9, 12] and later.calls == [4, 8, 12]


def test_the_loss_is_known_when_a_hook_asks():
    losses = []
    training = Kind().training()
    training.run([At(5, lambda training: losses.append(training.loss) or False)])
    assert len(losses) == 3 and np.isfinite(losses).all() and len(set(losses)) == 3


def test_no_two_steps_drop_the_same_numbers():
    drawn = []
    Kind().training().run([At(1, lambda training: drawn.append(torch.rand(1).item()) or False)])
    assert len(set(drawn)) == STEPS


def test_a_finished_training_does_nothing_more():
    training = Kind().training()
    training.run()
    before = {name: each.clone() for name, each in training.weights().items()}
    hook = At(1)
    training.run([hook])
    assert hook.calls == []
    same(training.weights(), before)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_random_numbers_of_others_are_left_alone(encoder):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    np_before = np.random.get_state()[1].copy()  # noqa: NPY002  the global one is what is looked at
    Kind(encoder).training().run([At(2)])
    assert torch.equal(torch.rand(3), expected)
    assert (np.random.get_state()[1] == np_before).all()  # noqa: NPY002


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("labels", LABELS_OF)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_can_be_learnt_is_learnt(encoder, labels, dtype):
    """A label's points hold its word among others: P@1 must reach 1, and the loss fall."""
    generator = np.random.default_rng(0)
    label = np.arange(POINTS) % LABELS
    tokens = generator.integers(LABELS + 1, VOCABULARY, (POINTS, 3)).astype(np.int32)
    tokens[:, 1] = label + 1
    points = Points(tokens, csr_array((np.ones(POINTS, np.float32), (np.arange(POINTS), label))))
    training = Kind(encoder, labels=labels, dtype=dtype).training(
        points, Order([Phase(np.arange(POINTS), 150)], POINTS, seed=0)
    )
    losses = []
    training.run([At(30, lambda training: losses.append(training.loss) or False)])
    with torch.no_grad():
        x = training.encoder.eval()(torch.from_numpy(tokens.astype(np.int64)))
        scores = x @ training.head.rows.T + training.head.bias
    assert (scores.argmax(dim=1).numpy() == label).all()
    assert losses[-1] < 0.5 * losses[0]


def test_one_step_is_the_step_of_plain_autograd():
    """Encoder and head together, dense and in one graph, by AdamW from torch."""
    training = Kind(more={"clip": 0.5, "schedule": "constant", "warm_up": 0.0}).training()
    encoder, head = copy.deepcopy(training.encoder), copy.deepcopy(training.head)
    training.run([At(1, lambda training: True)])

    points, rows = training.points, training.stage.order.rows(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7 * 1_000_003)
        x = encoder.train()(torch.from_numpy(points.tokens[rows].astype(np.int64)))
    targets = torch.from_numpy(points.targets.toarray()[rows])
    weight = torch.from_numpy(points.weights[rows])[:, None].expand_as(targets)
    scores = x @ head.rows.T + head.bias
    loss = F.binary_cross_entropy_with_logits(scores, targets, weight=weight, reduction="sum") / len(rows)
    loss.backward()
    assert training.loss == pytest.approx(loss.item(), rel=1e-5)
    dense = [each for name, each in encoder.named_parameters() if name != "words.weight"]
    torch.nn.utils.clip_grad_norm_(dense, 0.5)
    torch.optim.AdamW([*dense, *head.parameters()], lr=1e-2, weight_decay=0.0).step()
    torch.optim.AdamW([encoder.words.weight], lr=1e-2, weight_decay=0.0).step()  # unmet words stay
    for part, other in ((training.encoder, encoder), (training.head, head)):
        for name, each in part.state_dict().items():
            torch.testing.assert_close(each, other.state_dict()[name], rtol=1e-4, atol=2e-5, msg=name)


def test_a_shortened_stage_ends_early_and_its_schedule_goes_the_whole_way():
    training = Kind().training()
    progress = []
    training.run(
        [
            At(4, lambda each: each.shorten(3) or False),
            At(1, lambda each: progress.append(each.progress) or False),
        ]
    )
    assert training.step == training.steps == 7 < STEPS and training.shortened
    assert progress == pytest.approx([1 / 12, 2 / 12, 3 / 12, 4 / 12, 5 / 9, 7 / 9, 1])


def test_a_stage_is_never_made_longer():
    training = Kind().training()
    training.shorten(STEPS + 5)
    assert training.steps == STEPS and not training.shortened
    training.run()
    unbroken = Kind().training()
    unbroken.run()
    same(training.weights(), unbroken.weights())


def test_a_shortened_run_is_resumed_to_the_same_end(tmp_path):
    unbroken = Kind().training()
    unbroken.run([At(4, lambda each: each.step == 4 and each.shorten(5))])

    first = Kind().training()
    first.run([At(4, lambda each: each.shorten(5) or True)])
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(*first.state())
    second = Kind().training()
    second.load(*checkpoints.latest())
    second.run()
    assert second.step == unbroken.step == 9
    same(second.weights(), unbroken.weights())
