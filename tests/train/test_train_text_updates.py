"""Updates of heads that read label texts, against plain autograd with all labels at once."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn
from torch.nn import functional as F

from gandalf.errors import DataError
from gandalf.nets.bag_of_words import BagOfWords, BagOfWordsOptions
from gandalf.nets.heads import Composed, Encoded, Table
from gandalf.nets.label_text import Attention, Frozen, GatedSum, LabelText
from gandalf.train.batches import LabelWords, Points, make_batch
from gandalf.train.encoder_update import EncoderOptions, EncoderUpdate
from gandalf.train.head_update import ComposedUpdate, PairUpdate
from gandalf.train.labels import Every, InBatch, Shortlist
from gandalf.train.loop import Training
from gandalf.train.losses import binary_cross_entropy
from gandalf.train.orders import Order, Phase
from gandalf.train.pairs.triplet import triplet
from gandalf.train.row_optimisers import RowOptions
from gandalf.train.stage import Stage

CPU = torch.device("cpu")
POINTS, LABELS, WORDS, DIM, LENGTH = 12, 9, 25, 6, 5


def material(seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, WORDS, (POINTS, LENGTH)).astype(np.int32)
    tokens[::3, 3:] = 0
    targets = (generator.random((POINTS, LABELS)) < 0.3) * generator.random((POINTS, LABELS))
    targets[np.arange(POINTS), generator.integers(LABELS, size=POINTS)] = 1
    words = (generator.random((LABELS, WORDS)) < 0.2) * generator.random((LABELS, WORDS))
    words[:, 0] = 0
    bags = csr_array(words.astype(np.float32))
    weights = generator.random(POINTS).astype(np.float32)
    return Points(tokens, csr_array(targets.astype(np.float32)), weights, LabelWords(bags)), bags


def parts(kind, bags, seed=0, frozen=False):
    """Encoder and head without dropout, so that a reference can repeat them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = BagOfWords(WORDS, BagOfWordsOptions(DIM, 0.0, "eclare"))
        number = {"gated": 1, "attention": 2}[kind]
        made = [LabelText(encoder.words, bags, DIM, "eclare", 0.0) for _ in range(number)]
        mix = GatedSum(DIM, 2) if kind == "gated" else Attention(DIM, 3, 0.0)
        kept = [Frozen(each) for each in made] if frozen else made
        return encoder.eval(), Composed(Table(LABELS, DIM), kept, mix).eval()


def labels_of(name):
    if name == "shortlist":
        return Shortlist(LABELS, random=3, seed=1)
    return Every(LABELS, int(name))


def dense(encoder, head, batch, targets, weights):
    """Loss over the labels met by its definition, with every gradient by autograd."""
    met = torch.cat([torch.arange(LABELS)[chunk.labels] for chunk in batch.chunks])
    x = encoder(batch.tokens).detach().requires_grad_()
    free = head.table.rows.detach()[met].clone().requires_grad_()
    bias = head.table.bias.detach()[met].clone().requires_grad_()
    scores = x @ head.mixed(free, met).T + bias
    wanted = torch.from_numpy(targets[:, met.numpy()])
    each = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none").sum(dim=1)
    loss = (torch.from_numpy(weights) * each).sum() / len(x)
    loss.backward()
    return loss.item(), x.grad, met, free.grad, bias.grad


@pytest.mark.parametrize("kind", ["gated", "attention"])
@pytest.mark.parametrize("labels", ["9", "4", "1", "shortlist"])
def test_chunk_by_chunk_is_all_at_once(kind, labels):
    points, bags = material()
    rows = np.arange(POINTS)
    batch = make_batch(points, rows, labels_of(labels), 0, CPU)
    one, other = parts(kind, bags), parts(kind, bags)
    loss, of_x, met, of_rows, of_bias = dense(*one, batch, points.targets.toarray(), points.weights)
    encoder, head = other
    options = RowOptions("sgd", rate=1.0, momentum=0.0)
    update = ComposedUpdate(head, options, binary_cross_entropy, torch.float32)
    before = copy.deepcopy(head.table.state_dict())
    words = encoder.words.narrow(batch.words)
    found, told = update.step(encoder(batch.tokens).detach(), batch.chunks, batch.weights, 1.0, True)
    encoder.words.widen()
    assert told is not None and told.item() == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(found, of_x, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(before["rows"][met] - head.table.rows[met], of_rows, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(before["bias"][met] - head.table.bias[met], of_bias, rtol=1e-4, atol=1e-6)
    learnt = zip(one[1].named_parameters(), head.parameters(), strict=True)
    for (name, expected), gathered in learnt:
        if not name.startswith("table."):
            torch.testing.assert_close(gathered.grad, expected.grad, rtol=1e-4, atol=1e-6, msg=name)
    expected = one[0].words.weight.grad
    assert expected is not None and words.grad is not None
    torch.testing.assert_close(words.grad, expected[batch.words], rtol=1e-4, atol=1e-6)
    unmet = np.setdiff1d(np.arange(WORDS), batch.words.numpy())
    assert not expected[unmet].any()  # no word that matters was left behind


@pytest.mark.parametrize("labels", [Every(LABELS, 4), Shortlist(LABELS, random=3, seed=1), InBatch(0)])
def test_a_batch_knows_the_words_of_its_texts_and_of_its_labels(labels):
    points, bags = material()
    batch = make_batch(points, np.array([1, 4]), labels, 3, CPU)
    met = np.concatenate([np.arange(LABELS)[_ids(chunk)] for chunk in batch.chunks])
    expected = {0, *points.tokens[[1, 4]].ravel().tolist(), *bags[met].indices.tolist()}
    assert batch.words.tolist() == sorted(expected)


def _ids(chunk):
    return chunk.labels if isinstance(chunk.labels, slice) else chunk.labels.numpy()


def test_the_state_of_an_update_can_be_taken_back():
    points, bags = material()
    batch = make_batch(points, np.arange(POINTS), Every(LABELS, 4), 0, CPU)

    def run(steps, state=None):
        encoder, head = parts("attention", bags)
        update = ComposedUpdate(head, RowOptions("adamw", 0.1), binary_cross_entropy, torch.float32)
        for step in range(steps):
            if state is not None and step == 2:
                update.load(state[0])
                head.table.load_state_dict(state[1])
            update.step(encoder(batch.tokens).detach(), batch.chunks, None, 1.0, False)
        kept = {name: each.clone() for name, each in update.tensors().items()}
        return kept, {name: each.clone() for name, each in head.table.state_dict().items()}

    after = run(2)
    for one, other in zip(run(4), run(4, after), strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


# ---- in the loop


def training(kind, steps=60, frozen_rows=False, **more):
    points, bags = material()
    encoder, head = parts(kind, bags, frozen=frozen_rows)
    order = Order([Phase(np.arange(POINTS), steps)], 6, seed=0)
    rates = {"encoder": EncoderOptions(rate=1e-2, words_rate=1e-2), "head": RowOptions("adamw", 1e-2)}
    return Training(encoder, head, points, Stage(order, Every(LABELS, 4), **rates, **more))


@pytest.mark.parametrize("kind", ["gated", "attention"])
def test_everything_in_the_head_learns(kind):
    run = training(kind)
    before = {name: each.clone() for name, each in run.head.named_parameters()}
    run._train_batch(next(run._batches(range(0, 1))), with_loss=True)
    first, run.step = run.loss, 1
    for name, each in run.head.named_parameters():
        assert not torch.equal(each, before[name]), name
    run.run()
    assert run.loss < 0.7 * first


def test_a_frozen_encoder_stays_as_it_is_and_the_table_learns():
    points, _ = material()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder, head = BagOfWords(WORDS, BagOfWordsOptions(DIM, 0.5)), Table(LABELS, DIM)
    before = copy.deepcopy(encoder.state_dict())
    rows = head.rows.detach().clone()
    stage = Stage(Order([Phase(np.arange(POINTS), 5)], 6, seed=0), Every(LABELS, 4), frozen=True)
    Training(encoder, head, points, stage).run()
    assert all(torch.equal(each, before[name]) for name, each in encoder.state_dict().items())
    assert not torch.equal(head.rows, rows)


def test_a_frozen_encoders_words_stay_where_rows_are_made_of_them():
    run = training("attention", steps=5, frozen=True)
    before = {name: each.clone() for name, each in run.encoder.state_dict().items()}
    blocks = [each.clone() for each in run.head.parts.parameters()]
    run.run()
    assert all(torch.equal(each, before[name]) for name, each in run.encoder.state_dict().items())
    moved = zip(run.head.parts.parameters(), blocks, strict=True)
    assert not all(torch.equal(each, old) for each, old in moved)


# ---- pairs


def tokens_of_labels():
    tokens = np.random.default_rng(5).integers(1, WORDS, (LABELS, 4)).astype(np.int32)
    tokens[::3, -1] = 0
    return tokens


@pytest.mark.parametrize("width", [3, 4, 7])  # of the points' tokens; the labels' have 4
def test_pairs_give_the_encoder_the_gradient_of_both_sides(width):
    points, _ = material()
    tokens = tokens_of_labels()
    own = np.resize(points.tokens, (POINTS, width))
    points = Points(own, points.targets, None, label_tokens=tokens)
    batch = make_batch(points, np.arange(POINTS), InBatch(0), 0, CPU)
    (chunk,) = batch.chunks
    met = {0, *own.ravel().tolist(), *tokens[chunk.labels.numpy()].ravel().tolist()}
    assert batch.words.tolist() == sorted(met)
    one, other = (parts("gated", csr_array((LABELS, WORDS)))[0] for _ in range(2))
    x = F.normalize(one(torch.from_numpy(own).long()), dim=1)
    rows = F.normalize(one(torch.from_numpy(tokens)[chunk.labels].long()), dim=1)
    expected = triplet(x, rows, chunk.drawn, (chunk.point, chunk.column)) / POINTS
    expected.backward()
    update = PairUpdate(triplet)
    y = other(batch.tokens)
    gradient, told = update.step(y.detach(), batch.chunks, None, 1.0, True)
    y.backward(gradient)
    assert told is not None and told.item() == pytest.approx(expected.item(), rel=1e-5)
    for (name, left), right in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(right.grad, left.grad, rtol=1e-4, atol=1e-6, msg=name)
    assert update.tensors() == {}


def test_a_point_draws_one_of_its_own_labels_and_all_true_pairs_are_known():
    points, _ = material()
    truth = points.targets.toarray() > 0
    drawn = set()
    for step in range(40):
        (chunk,) = make_batch(points, np.arange(POINTS), InBatch(0), step, CPU).chunks
        ids, own = chunk.labels.numpy(), chunk.drawn.numpy()
        assert truth[np.arange(POINTS), ids[own]].all() and set(ids[own]) == set(ids)
        told = np.zeros((POINTS, len(ids)), dtype=bool)
        told[chunk.point.numpy(), chunk.column.numpy()] = True
        assert (told == truth[:, ids]).all()
        drawn |= set(zip(range(POINTS), ids[own].tolist(), strict=True))
    assert drawn == set(zip(*(each.tolist() for each in np.nonzero(truth)), strict=True))  # each some time


def test_pairs_without_a_loss_of_pairs_are_refused():
    tokens = torch.from_numpy(tokens_of_labels())
    points, _ = material()
    encoder = parts("gated", csr_array((LABELS, WORDS)))[0]
    stage = Stage(Order([Phase(np.arange(POINTS), 5)], 6, seed=0), InBatch(0))
    with pytest.raises(DataError, match="learns from pairs, and the stage has no such loss"):
        Training(encoder, Encoded(encoder, tokens, DIM), points, stage)


def test_the_word_table_is_updated_once_for_texts_and_labels():
    _, bags = material()
    encoder, head = parts("attention", bags)
    update = EncoderUpdate(nn.ModuleList([encoder, *head.learnt()]), EncoderOptions(), clip=1.0)
    assert len(update.tables) == 1
