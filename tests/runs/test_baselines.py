"""MixUp, GLaS, synonyms and half of the label points: against plain loops, and as whole runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.special import expit
from small_runs import same, small, small_splits, weights
from small_transformer import WORDS, write_transformer
from torch.nn import functional as F

from gandalf.augment.label_points import Keep, augment_with_mask
from gandalf.augment.synonyms import distinct_words, replace_words
from gandalf.data.dataset import Dataset
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Table
from gandalf.runs.checks import check_recipe
from gandalf.runs.prepare import LEAST_COSINE, MOST_SYNONYMS, near_words
from gandalf.runs.session import run_training
from gandalf.runs.stages import MIXES, glas_regulariser
from gandalf.train.batches import Points, make_batch
from gandalf.train.encoder_update import EncoderOptions
from gandalf.train.glas import Glas
from gandalf.train.labels import Every, Shortlist
from gandalf.train.loop import Training
from gandalf.train.mixup import MixUp
from gandalf.train.orders import Order, Phase, WithLabelPoints
from gandalf.train.row_optimisers import RowOptions
from gandalf.train.stage import Stage

POINTS, LABELS, DIM = 12, 7, 5
MEETINGS = [Every(LABELS, 3), Shortlist(LABELS, LABELS, 0)]


def batch(labels, seed=0):
    """Twelve points with soft targets, some without any, as a batch."""
    generator = np.random.default_rng(seed)
    targets = generator.random((POINTS, LABELS)) * (generator.random((POINTS, LABELS)) < 0.4)
    tokens = generator.integers(1, 30, (POINTS, 4)).astype(np.int32)
    points = Points(tokens, csr_array(targets.astype(np.float32)))
    return points, make_batch(points, np.arange(POINTS), labels, 0, torch.device("cpu"))


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize(
    "labels", [Every(LABELS, 3), Shortlist(LABELS, LABELS, 0)], ids=["every", "shortlist"]
)
def test_mixed_targets_are_the_mixture_of_the_dense_ones(name, labels):
    points, made = batch(labels)
    dense = torch.from_numpy(points.targets.toarray())
    mixed = MixUp(MIXES[name], 0.4, 0)(POINTS, 3, torch.device("cpu"))
    share = mixed.share[:, None]
    wanted = share * dense[mixed.first] + (1 - share) * dense[mixed.second]
    found = torch.zeros_like(wanted)
    for chunk in map(mixed.chunk, made.chunks):
        ids = torch.arange(LABELS)[chunk.labels] if isinstance(chunk.labels, slice) else chunk.labels
        pairs = list(zip(chunk.point.tolist(), chunk.column.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)  # losses meet a pair once
        found[chunk.point, ids[chunk.column]] += chunk.value
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", MIXES)
def test_the_gradient_of_mixed_points_is_autograds(name):
    mixed = MixUp(MIXES[name], 0.4, 1)(POINTS, 0, torch.device("cpu"))
    x = torch.randn(POINTS, DIM, generator=torch.Generator().manual_seed(0), requires_grad=True)
    out = mixed.vectors(x)
    slopes = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    out.backward(slopes)
    torch.testing.assert_close(mixed.gradient(slopes), x.grad)


def test_mixup_step_is_that_of_the_dense_loss():
    """One SGD step of rows with mixed points against autograd on the dense mixture."""
    points, _ = batch(Every(LABELS, 3))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = build_encoder({"kind": "bag-of-words", "dim": DIM, "dropout": 0.0}, 30)
        head = Table(LABELS, DIM)
    before = head.rows.detach().clone().requires_grad_()
    x = encoder(torch.from_numpy(points.tokens.astype(np.int64))).detach()
    order, mix = Order([Phase(np.arange(POINTS), 1)], POINTS, 0), MixUp(MIXES["mixup"], 0.4, 0)
    x = x[order.rows(0)]
    mixed = mix(POINTS, 0, torch.device("cpu"))
    dense = torch.from_numpy(points.targets.toarray())[order.rows(0)]
    share = mixed.share[:, None]
    wanted = share * dense + (1 - share) * dense[mixed.second]
    scores = (share * x + (1 - share) * x[mixed.second]) @ before.T + head.bias.detach()
    F.binary_cross_entropy_with_logits(scores, wanted, reduction="sum").div(POINTS).backward()
    options = RowOptions("sgd", 0.1, momentum=0.0)
    still = EncoderOptions(rate=0.0, words_rate=0.0)
    stage = Stage(
        order, Every(LABELS, 3), encoder=still, head=options, schedule="constant", warm_up=0.0, mix=mix
    )
    Training(encoder, head, points, stage).run()
    torch.testing.assert_close(head.rows.detach(), before.detach() - 0.1 * before.grad, atol=1e-5, rtol=1e-4)


def test_label_mixup_meets_a_label_point_of_each_points_own_labels():
    targets = csr_array(np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], dtype=np.float32))
    order = WithLabelPoints(Order([Phase(np.arange(3), 20)], 3, 0), targets, 3 + np.arange(targets.shape[1]))
    drawn = set()
    for step in range(20):
        rows = order.rows(step)
        for own, other in zip(rows[:3], rows[3:], strict=True):
            drawn.add((int(own), int(other)))
    assert drawn == {(0, 3), (0, 5), (1, 1), (2, 4)}


@pytest.mark.parametrize(
    "labels", [Every(LABELS, 3), Shortlist(LABELS, LABELS, 0)], ids=["every", "shortlist"]
)
def test_the_glas_gradient_is_autograds(labels):
    _, made = batch(labels)
    generator = np.random.default_rng(0)
    similarity = generator.random((LABELS, LABELS)).astype(np.float32)
    similarity = (similarity + similarity.T) / 2
    table = torch.randn(LABELS, DIM, generator=torch.Generator().manual_seed(0), requires_grad=True)
    carried = sorted(
        {
            int(torch.arange(LABELS)[chunk.labels][column])
            for chunk in made.chunks
            for column in chunk.column.tolist()
        }
    )
    rows = table[carried]
    wanted = torch.from_numpy(similarity[np.ix_(carried, carried)])
    (3.0 * (rows @ rows.T - wanted).square().mean()).backward()
    told = Glas(csr_array(similarity), 3.0).gradients(table.detach(), made.chunks)
    found = torch.zeros_like(table)
    for chunk, (columns, slope) in zip(made.chunks, told, strict=True):
        found[torch.arange(LABELS)[chunk.labels][columns]] += slope
    torch.testing.assert_close(found, table.grad)


def test_similarities_are_the_mean_of_both_conditional_probabilities():
    points = Dataset(
        csr_array(np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=np.float32)), ["a"] * 3, ["b"] * 3
    )
    made = glas_regulariser(points, 2.0)
    counts = np.array([[3, 2, 1], [2, 2, 1], [1, 1, 1]], dtype=np.float64)
    own = counts.diagonal()
    wanted = 0.5 * (counts / own[:, None] + counts / own[None, :])
    np.testing.assert_allclose(made.similarity.toarray(), wanted, atol=1e-5)
    graph = label_graph(points, GraphOptions(targets="glas", delta=0.0)).matrix.toarray()
    np.testing.assert_allclose(graph, expit(wanted), atol=1e-6)
    assert glas_regulariser(points, 0.0) is None


def test_a_word_is_replaced_by_a_near_one_and_targets_stay():
    points = Dataset(csr_array(np.eye(2, dtype=np.float32)), ["open a file", "zip"], ["x", "y"])
    near = {"file": ["folder"], "open": ["list", "read"]}
    every = replace_words(points, near, 1.0, np.random.default_rng(0))
    assert every.texts[0] in ("list a folder", "read a folder") and every.texts[1] == "zip"
    assert (every.targets != points.targets).nnz == 0
    none = replace_words(points, near, 0.0, np.random.default_rng(0))
    assert none == points
    many = Dataset(csr_array(np.ones((400, 1), dtype=np.float32)), ["file file"] * 400, ["x"])
    some = " ".join(replace_words(many, near, 0.25, np.random.default_rng(0)).texts).split()
    assert 0.2 < some.count("folder") / len(some) < 0.3
    assert distinct_words(["b a", "a  c"]) == ["a", "b", "c"]


def test_near_words_are_those_of_the_highest_cosine(tmp_path):
    model = write_transformer(tmp_path)
    words = ("compress", "disk", "file", "folder", "list")
    found = near_words(words, str(tmp_path))
    vectors = {word: _vector(model, word) for word in words}
    for word, near in found.items():
        cosines = {other: float(vectors[word] @ vectors[other]) for other in words if other != word}
        wanted = sorted(
            (other for other in cosines if cosines[other] >= LEAST_COSINE), key=lambda o: -cosines[o]
        )
        assert near == wanted[:MOST_SYNONYMS]
    assert set(found) == set(words) and any(found.values())


def _vector(model, word):
    """The mean over the tokens of a text of one word, [CLS] and [SEP] among them, at length 1."""
    ids = torch.tensor([[WORDS.index("[CLS]"), WORDS.index(word), WORDS.index("[SEP]")]])
    with torch.no_grad():
        return F.normalize(model(input_ids=ids).last_hidden_state.mean(dim=1)[0], dim=0)


@pytest.mark.parametrize(
    "settings",
    [
        ("baselines.mix=mixup",),
        ("baselines.mix=label-mixup", "targets.targets=self"),
        ("baselines.glas=1",),
        ("baselines.mix=mixup", "labels.kind=shortlist"),
    ],
    ids=" ".join,
)
def test_runs_learn_and_are_repeated_exactly(settings):
    one = run_training(small_splits(), small(*settings))
    same(one, run_training(small_splits(), small(*settings)))
    plain = run_training(
        small_splits(), small(*(each for each in settings if not each.startswith("baselines")))
    )
    changed = weights(one)["head.rows"] - weights(plain)["head.rows"]
    assert changed.abs().max() > 1e-4


def test_half_of_the_label_points():
    splits = small_splits()
    points, is_label = augment_with_mask(splits.train, csr_array(np.eye(120, dtype=np.float32)), Keep("half"))
    assert is_label.all() and len(points) == 120  # there are fewer labels than half the points
    few = splits.train[np.arange(101)]
    points, is_label = augment_with_mask(few, csr_array(np.eye(120, dtype=np.float32)), Keep("half", seed=3))
    assert is_label.all() and len(points) == 50 and len(set(points.targets.indices.tolist())) == 50


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("baselines.mix=label-mixup", "targets.targets=none"), "label-mixup mixes points with label points"),
        (("baselines.mix=mixup", "targets.label_weight=0.5"), "no weights of their own"),
        (("baselines.glas=1", "head.kind=gated"), "for free rows"),
        (("baselines.mix_alpha=0",), "greater than 0"),
    ],
)
def test_what_has_no_meaning_is_refused(settings, words):
    with pytest.raises(DataError, match=words):
        check_recipe(small(*settings))
