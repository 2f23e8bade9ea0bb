"""Parts of a run by their definitions: rows at the start, vectors of all points, hard negatives."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from gandalf.nets.encoders import build_encoder, encode_tokens
from gandalf.nets.heads import Table
from gandalf.runs import stages as shortlists
from gandalf.runs.build import start_from_points
from gandalf.runs.stages import likeliest_labels
from gandalf.train.batches import Points

POINTS, LABELS, VOCABULARY, DIM = 25, 9, 30, 6


def parts(seed=0):
    """An encoder, a head, and points with soft targets; the last two labels have no point."""
    generator = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = build_encoder({"kind": "bag-of-words", "dim": DIM, "dropout": 0.5}, VOCABULARY)
        head = Table(LABELS, DIM)
    tokens = generator.integers(1, VOCABULARY, (POINTS, 4)).astype(np.int32)
    targets = generator.random((POINTS, LABELS)) * (generator.random((POINTS, LABELS)) < 0.4)
    targets[:, -2:] = 0
    return encoder, head, Points(tokens, csr_array(targets.astype(np.float32)))


@pytest.mark.parametrize("batch", [1, 4, POINTS, 100])
def test_all_points_are_encoded_in_their_order_and_without_dropout(batch):
    encoder, _, points = parts()
    found = encode_tokens(encoder.train(), points.tokens, batch=batch)
    for row in range(POINTS):
        with torch.no_grad():
            alone = encoder.eval()(torch.from_numpy(points.tokens[[row]].astype(np.int64)))
        torch.testing.assert_close(found[[row]], alone)
    assert found.shape == (POINTS, DIM) and not found.requires_grad


def test_rows_start_at_the_direction_of_the_mean_of_their_points():
    encoder, head, points = parts()
    drawn, bias = head.rows.detach().clone(), head.bias.detach().clone()
    start_from_points(encoder, head, points, None)
    vectors, targets = encode_tokens(encoder, points.tokens).numpy(), points.targets.toarray()
    for label in range(LABELS - 2):
        mean = sum(targets[row, label] * vectors[row] for row in range(POINTS))
        expected = torch.from_numpy(mean / np.linalg.norm(mean))
        torch.testing.assert_close(head.rows[label].detach(), expected)
    assert torch.equal(head.rows[-2:], drawn[-2:])  # without points there is no direction
    assert torch.equal(head.bias, bias) and head.rows.requires_grad


def clustered(labels=2000, dim=16, seed=0):
    """Rows that lie as learnt ones do, in groups, and points near them; biases that matter."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(40, dim, generator=generator)
    head = Table(labels, dim)
    with torch.no_grad():
        head.rows.copy_(
            centres[torch.arange(labels) % 40] + 0.3 * torch.randn(labels, dim, generator=generator)
        )
        head.bias.copy_(torch.randn(labels, generator=generator))
    return head.rows.detach()[::7] + 0.1 * torch.randn(
        len(range(0, labels, 7)), dim, generator=generator
    ), head


def best(vectors, head, number):
    scores = vectors @ head.rows.detach().T + head.bias.detach()
    return scores.topk(number).indices.numpy()


@pytest.fixture
def by_index_alone(monkeypatch):
    """The exact way would pass too."""
    monkeypatch.setattr(shortlists, "top_k", None)


@pytest.mark.usefixtures("by_index_alone")
def test_an_index_finds_nearly_all_of_the_likeliest():
    vectors, head = clustered()
    found, expected = likeliest_labels(vectors, head, 10, torch.float32)[0], best(vectors, head, 10)
    shared = [
        len(set(one) & set(other)) for one, other in zip(found.tolist(), expected.tolist(), strict=True)
    ]
    assert found.shape == expected.shape and found.dtype == np.int64
    assert np.mean(shared) > 9


@pytest.mark.usefixtures("by_index_alone")
def test_points_may_be_looked_up_a_few_at_a_time(monkeypatch):
    vectors, head = clustered()
    whole = likeliest_labels(vectors, head, 10, torch.float32)[0]
    monkeypatch.setattr(shortlists, "POINTS_AT_ONCE", 50)
    assert np.mean(likeliest_labels(vectors, head, 10, torch.float32)[0] == whole) > 0.999


@pytest.mark.parametrize("number", [3, 100])
def test_without_the_library_they_are_found_exactly(number, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    vectors, head = clustered(labels=30)
    found = likeliest_labels(vectors, head, min(number, 30), torch.float32)[0]
    assert (found == best(vectors, head, min(number, 30))).all()
