"""One text at a time in NumPy gives what PyTorch gives for many."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

from gandalf.model.exact import top_k
from gandalf.nets.bag_of_words import BagOfWords, BagOfWordsOptions
from gandalf.nets.blocks import POINT_BLOCKS, drop_parametrizations
from gandalf.nets.heads import Table
from gandalf.nets.int8_table import Int8Table
from gandalf.wide import plain
from gandalf.wide.plain import best_places, label_scores

IDS = torch.tensor([[3, 4, 4, 9, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [2, 3, 4, 5, 6, 7]])


def encoder(block="astec", centred=False):
    torch.manual_seed(3)
    made = BagOfWords(12, BagOfWordsOptions(dim=8, block=block, centred=centred))
    made.weigh(torch.rand(12))
    for parameter in made.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    made.train()(IDS)  # the power iteration of the spectral norm moves on
    made.fit_to_texts(IDS)
    return made.eval()


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("block", POINT_BLOCKS)
def test_one_text_is_encoded_as_many_are(block, centred):
    made = encoder(block, centred)
    expected = made(IDS).detach().numpy()
    for ids, vector in zip(IDS.numpy(), expected, strict=True):
        np.testing.assert_allclose(made.plain()(ids), vector, atol=1e-6)
    drop_parametrizations(made)  # weights without their parametrisation
    arrays = {name: value.numpy() for name, value in made.state_dict().items()}
    np.testing.assert_allclose(
        plain.PlainBagOfWords.of(block, arrays)(IDS[3].numpy()), expected[3], atol=1e-6
    )


def test_it_is_made_once_and_anew_after_a_change():
    made = encoder()
    assert made.plain() is made.plain()
    for change in (
        lambda: made.residual.linear.parametrizations.weight.original.data.mul_(0.5),
        lambda: made.residual.linear.bias.data.add_(1.0),
        lambda: setattr(made.words, "weight", nn.Parameter(torch.randn(12, 8))),
        lambda: made.train()(IDS),  # changes the vectors of the power iteration alone
    ):
        change()
        expected = made.eval()(IDS).detach().numpy()
        np.testing.assert_allclose(made.plain()(IDS[0].numpy()), expected[0], atol=1e-6)


def test_it_is_copied_and_pickled_with_its_encoder():
    made = encoder("decaf")
    drop_parametrizations(made)  # PyTorch pickles no parametrised weights
    before = made.plain()(IDS[0].numpy())
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        other.words.weight.data.mul_(2.0)
        assert not np.allclose(other.plain()(IDS[0].numpy()), before)
    np.testing.assert_array_equal(made.plain()(IDS[0].numpy()), before)


def test_half_precision_is_left_to_pytorch():
    assert encoder().half().plain() is None


@pytest.mark.parametrize("labels", [1, 6, 7, 15])
def test_scores_in_chunks_are_those_of_one_product(monkeypatch, labels):
    monkeypatch.setattr(plain, "AT_ONCE", 7 * 4)  # 7 rows at once
    rng = np.random.default_rng(labels)
    x, rows, bias = (rng.normal(size=size).astype(np.float32) for size in (4, (labels, 4), labels))
    np.testing.assert_allclose(label_scores(x, rows, bias), rows @ x + bias, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_are_those_of_a_stable_sort(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, rng.integers(1, 30)).astype(np.float32)  # full of ties
    scores[rng.random(len(scores)) < 0.2] = -np.inf
    for k in {1, 3, len(scores), len(scores) + 2}:
        places, values = best_places(scores, k)
        expected = sorted(range(len(scores)), key=lambda at: (-scores[at], at))[:k]
        assert places.tolist() == expected
        np.testing.assert_array_equal(values, scores[expected])


@pytest.mark.parametrize("kind", [Table, Int8Table])
@pytest.mark.parametrize("k", [1, 5, 60])
def test_one_vector_finds_what_a_batch_finds(kind, k):
    torch.manual_seed(k)
    head = Table(50, 8)
    head.bias.data[7] = -torch.inf  # a label that was taken out
    head = head if kind is Table else Int8Table.of(head)
    x = torch.randn(3, 8)
    exclude = csr_array(np.eye(3, 50, k=4) > 0)
    for excluded in (None, exclude):
        ids, scores = top_k(x, head, k, exclude=excluded)
        for at in range(3):
            of_one = None if excluded is None else excluded[[at]]
            found = top_k(x[[at]], head, k, exclude=of_one)
            np.testing.assert_array_equal(found[0][0], ids[at])
            np.testing.assert_allclose(found[1][0], scores[at], atol=1e-5)


def test_scores_that_are_no_numbers_are_told():
    head = Table(5, 4)
    head.rows.data[2] = torch.nan
    with pytest.raises(ValueError, match="the scores are not numbers"):
        top_k(torch.ones(1, 4), head, 1)
