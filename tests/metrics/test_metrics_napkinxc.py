"""An independent implementation agrees, on random data without ties (it does not define their order)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from gandalf.data.dataset import Dataset, Splits
from gandalf.metrics.evaluate import evaluate
from gandalf.metrics.propensity import inverse_propensities

oracle = pytest.importorskip("napkinxc.metrics", reason="napkinxc is not installed: pip install '.[oracle]'")

POINTS, LABELS, K = 400, 60, 5


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    truth = (rng.random((POINTS, LABELS)) < 0.05).astype(np.float32)  # some points have no true label
    train = (rng.random((500, LABELS)) < np.geomspace(0.001, 0.5, LABELS)).astype(np.float32)
    shown = rng.random((POINTS, LABELS)) < rng.random((POINTS, 1)) * 0.3  # some have fewer than 5 candidates
    scores = np.where(shown, rng.permutation(POINTS * LABELS).reshape(POINTS, LABELS) + 1.0, 0.0)
    assert (truth.sum(axis=1) == 0).any() and (shown.sum(axis=1) < K).any()
    assert (shown | (truth > 0))[:, -1].any()  # its macro average runs up to the last label it sees
    return csr_array(train), csr_array(truth), csr_array(scores)


def test_agrees_with_napkinxc(data):
    train, truth, scores = data
    found = evaluate(scores, Splits(Dataset(train), Dataset(truth)), ks=range(1, K + 1))
    weights = oracle.Jain_et_al_inverse_propensity(csr_matrix(train), A=0.55, B=1.5)
    frequencies = np.count_nonzero(train.toarray(), axis=0)
    assert inverse_propensities(frequencies, train.shape[0]) == pytest.approx(np.ravel(weights))
    true, ranked = csr_matrix(truth), csr_matrix(scores)
    want = {
        "P": oracle.precision_at_k(true, ranked, k=K),
        "R": oracle.recall_at_k(true, ranked, k=K),
        "nDCG": oracle.ndcg_at_k(true, ranked, k=K),
        "PSP": oracle.psprecision_at_k(true, ranked, np.ravel(weights), k=K),
        "PSnDCG": oracle.psndcg_at_k(true, ranked, np.ravel(weights), k=K),
        "C": oracle.coverage_at_k(true, ranked, k=K),
        "macroP": oracle.macro_precision_at_k(true, ranked, k=K),
    }
    for name, values in want.items():
        ours = [found[f"{name}@{k}"] for k in range(1, K + 1)]
        assert ours == pytest.approx(100 * values), name
