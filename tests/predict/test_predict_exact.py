"""The streamed top k against a full sort of all scores, for every block size, batch and kind of number."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from gandalf.errors import DataError
from gandalf.model.exact import top_k
from gandalf.nets.heads import Table


def head_of(rows, bias):
    head = Table(*rows.shape).to(rows.dtype)
    with torch.no_grad():
        head.rows.copy_(rows)
        head.bias.copy_(bias)
    return head


def by_sorting(x, head, k, exclude=None):
    """The definition: all scores, the dropped ones at -inf, sorted by (score, smaller id)."""
    scores = (x.float() @ head.rows.float().T + head.bias.float()).detach().numpy()
    if exclude is not None:
        scores[exclude.toarray()] = -np.inf
    ids = np.full((len(scores), k), -1)
    best = np.full((len(scores), k), -np.inf, dtype=np.float32)
    for row, values in enumerate(scores):
        left = [label for label in range(len(values)) if values[label] > -np.inf]
        left.sort(key=lambda label: (-values[label], label))
        for place, label in enumerate(left[:k]):
            ids[row, place], best[row, place] = label, values[label]
    return ids, best


@st.composite
def cases(draw):
    """Small whole numbers: sums are exact in every precision, and there are many ties."""
    points, labels, dim = draw(st.integers(1, 7)), draw(st.integers(1, 12)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x, rows = (torch.from_numpy(rng.integers(-2, 3, (n, dim)).astype(np.float32)) for n in (points, labels))
    bias = torch.from_numpy(rng.integers(-1, 2, labels).astype(np.float32))
    share = draw(st.sampled_from([None, 0.0, 0.3, 1.0]))
    exclude = None if share is None else csr_array(rng.random((points, labels)) < share)
    return x, rows, bias, exclude


@given(
    cases(),
    st.integers(1, 14),
    st.integers(1, 13),
    st.integers(1, 8),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64]),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_equals_the_full_sort(case, k, block, batch, dtype, precision):
    x, rows, bias, exclude = case
    head = head_of(rows.to(dtype), bias.to(dtype))
    ids, scores = top_k(x, head, k, exclude=exclude, block=block, batch=batch, precision=precision)
    expected_ids, expected_scores = by_sorting(x, head, k, exclude)
    assert ids.dtype == np.int64 and scores.dtype == np.float32
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)


@pytest.mark.parametrize("block", [1, 7, 100, 333, 1000, 5000])
@pytest.mark.parametrize("k", [1, 5, 100])
def test_real_numbers(block, k):
    generator = torch.Generator().manual_seed(block + k)
    x = torch.randn(40, 16, generator=generator)
    head = head_of(torch.randn(1000, 16, generator=generator), torch.randn(1000, generator=generator))
    exclude = csr_array(np.random.default_rng(0).random((40, 1000)) < 0.05)
    ids, scores = top_k(x, head, k, exclude=exclude, block=block, batch=7)
    expected_ids, expected_scores = by_sorting(x, head, k, exclude)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)


def test_half_precision_finds_candidates_and_float32_ranks_them():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 64, generator=generator)
    head = head_of(torch.randn(3000, 64, generator=generator), torch.zeros(3000))
    expected_ids, expected_scores = top_k(x, head, 10)
    ids, scores = top_k(x, head, 10, block=700, precision=torch.bfloat16)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=1e-5)


def test_no_points_and_no_gradient():
    head = head_of(torch.ones(3, 2), torch.zeros(3))
    ids, scores = top_k(torch.empty(0, 2), head, 2)
    assert ids.shape == scores.shape == (0, 2)
    ids, _ = top_k(torch.ones(1, 2, requires_grad=True), head, 2)
    assert ids.tolist() == [[0, 1]]


def test_memory_is_a_block_and_not_all_labels():
    """The head is asked for one block after the other, never for more."""
    asked = []

    class Watched(Table):
        def block(self, start, stop):
            asked.append((start, stop))
            return super().block(start, stop)

    top_k(torch.ones(5, 2), Watched(10, 2), 3, block=4, batch=3)
    assert asked == [(0, 4), (4, 8), (8, 10)] * 2


def test_bad_arguments_and_diverged_weights_get_a_sentence():
    head = head_of(torch.ones(3, 2), torch.zeros(3))
    with pytest.raises(DataError, match="at least 1"):
        top_k(torch.ones(1, 2), head, 0)
    with pytest.raises(DataError, match="exclude is 2 x 3 where 1 x 3"):
        top_k(torch.ones(1, 2), head, 1, exclude=csr_array((2, 3), dtype=bool))
    with pytest.raises(DataError, match="diverged"):
        top_k(torch.full((1, 2), torch.nan), head, 1)


def test_half_precision_is_not_spent_on_the_bias():
    """Biases near -log L for every label, as heads start with, leave the order to the products."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(50, 64, generator=generator) / 8
    head = head_of(torch.randn(3000, 64, generator=generator) / 8, torch.full((3000,), -50.0))
    np.testing.assert_array_equal(top_k(x, head, 5, precision=torch.bfloat16)[0], top_k(x, head, 5)[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_the_same_on_a_gpu(precision):
    """Points may be on another device than the head; whole numbers have exact sums on both."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-2, 3, (40, 8), generator=generator).float()
    head = head_of(torch.randint(-2, 3, (500, 8), generator=generator).float(), torch.zeros(500))
    exclude = csr_array(np.random.default_rng(0).random((40, 500)) < 0.1)
    expected_ids, expected_scores = by_sorting(x, head, 300, exclude)
    ids, scores = top_k(x, head.cuda(), 300, exclude=exclude, block=64, batch=16, precision=precision)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(scores, expected_scores)
