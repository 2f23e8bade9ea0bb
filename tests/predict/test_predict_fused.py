"""The fused search against the plain one, by Triton's interpreter or on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from small_runs import small, small_splits

from gandalf.model.exact import top_k
from gandalf.nets.heads import Table

triton = pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from gandalf.predict import fused, predictor  # noqa: E402
from gandalf.predict.fused import FusedSearch  # noqa: E402
from gandalf.predict.predictor import Predictor  # noqa: E402
from gandalf.runs.session import run_training  # noqa: E402

# The interpreter does things that NumPy advises against.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    if not triton.knobs.runtime.interpret:
        pytest.skip("needs TRITON_INTERPRET=1")
    monkeypatch.setattr(fused, "TILES", (16, 16, 16))
    monkeypatch.setattr(fused, "FIRST", 16)


def made(labels, dim, points, seed=0):
    generator = torch.Generator().manual_seed(seed)
    head = Table(labels, dim)
    with torch.no_grad():
        head.rows.copy_(torch.randn(labels, dim, generator=generator) * 3)
        head.bias.copy_(torch.randn(labels, generator=generator))
    return head, torch.randn(points, dim, generator=generator)


@pytest.mark.parametrize("shape", [(300, 24, 20, 5), (77, 16, 3, 10), (40, 16, 17, 40)])
@pytest.mark.parametrize("filtered", [False, True])
def test_it_finds_what_the_plain_search_finds(shape, filtered):
    labels, dim, points, k = shape
    head, x = made(labels, dim, points)
    drawn = csr_array(random_array((points, labels), density=0.05, format="csr", rng=1))
    exclude = drawn if filtered else None
    ids, scores = FusedSearch(head, torch.float32).best(x, k, exclude)
    expected_ids, expected = top_k(x, head, k, exclude=exclude)
    ids = ids.masked_fill(scores == -torch.inf, -1)
    np.testing.assert_array_equal(ids.numpy(), expected_ids)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("filtered", [False, True])
def test_many_points_come_in_batches_and_places_without_a_label_are_told(filtered, monkeypatch):
    monkeypatch.setattr(fused, "BATCH", 4)
    head, x = made(30, 16, 10)
    exclude = csr_array(np.tile(np.arange(30) >= 3, (10, 1)).astype(np.float32)) if filtered else None
    found, expected = FusedSearch(head, torch.float32)(x, 40, exclude), top_k(x, head, 40, exclude=exclude)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)
    assert (found[0] == -1).sum() == 10 * (37 if filtered else 10)


def test_a_predictor_takes_it_where_it_can_and_pays(monkeypatch):
    model = run_training(small_splits(), small("training.steps=3")).model
    texts = model.label_texts[:20]
    plain = Predictor(model).predict(texts, 4)
    made_of = []

    class Counted(FusedSearch):
        def __init__(self, head):
            made_of.append(head)
            super().__init__(head, torch.float32)

    monkeypatch.setattr(predictor, "FusedSearch", Counted)
    monkeypatch.setattr(predictor, "why_not_fused", lambda rows: None)
    assert Predictor(model).predict(texts, 4) and not made_of  # too few labels
    monkeypatch.setattr(predictor, "LEAST_LABELS", 1)
    by_kernel = Predictor(model)
    for _ in range(2):
        ids, scores = by_kernel.predict(texts, 4)
        np.testing.assert_array_equal(ids, plain[0])
        np.testing.assert_allclose(scores, plain[1], rtol=1e-4)
    assert len(made_of) == 1


def test_equal_scores_go_to_the_smaller_label():
    head, x = made(120, 16, 9)
    with torch.no_grad():
        head.rows.copy_(head.rows[torch.arange(120) % 7])
        head.bias.zero_()
    ids, _ = FusedSearch(head, torch.float32).best(x, 30)
    expected, _ = top_k(x, head, 30)
    np.testing.assert_array_equal(ids.numpy(), expected)


def test_labels_that_do_not_fit_are_looked_at_plainly(monkeypatch):
    """All scores fall short of a threshold's slack: every label survives, and there is no room for them."""
    head, x = made(200, 16, 5)
    with torch.no_grad():
        head.rows.mul_(1e-6)
        head.bias.copy_(torch.linspace(0, 1, 200))
    plain = []
    whole = fused.best_in_block
    monkeypatch.setattr(fused, "best_in_block", lambda *given: plain.append(given[2]) or whole(*given))
    ids, _ = FusedSearch(head, torch.float32).best(x, 3)
    assert plain[0] == (0, 16) and len(plain) > 1  # the later the label, the better: all of a block survive
    np.testing.assert_array_equal(ids.numpy(), np.tile([199, 198, 197], (5, 1)))


def test_low_precision_loses_nobody():
    """Scores of 16-bit numbers, near ones that they cannot tell apart: float32 decides, and all are there."""
    head, x = made(400, 32, 11)
    with torch.no_grad():
        head.rows.copy_(head.rows[:1] + 1e-4 * head.rows)  # all nearly the same
    wrong = (x.half().float() @ head.rows.half().float().T + head.bias).topk(5).indices
    ids, _ = FusedSearch(head, torch.float16).best(x, 5)
    expected, _ = top_k(x, head, 5)
    np.testing.assert_array_equal(ids.numpy(), expected)
    with torch.no_grad():
        head.bias.zero_()
    ids, _ = FusedSearch(head, torch.float16).best(x, 5)
    wrong = (x.half().float() @ head.rows.half().float().T).topk(5).indices
    expected, _ = top_k(x, head, 5)
    np.testing.assert_array_equal(ids.numpy(), expected)
    assert (wrong.numpy() != expected).any()  # by low precision alone it would be


def test_the_slack_covers_what_rounding_can_do():
    random = np.random.default_rng(0)
    for dim in (8, 768, 4096):
        x, rows = (torch.from_numpy(random.standard_normal((200, dim)) ** 3).float() for _ in range(2))
        off = (x.bfloat16().double() @ rows.bfloat16().double().T - x.double() @ rows.double().T).abs()
        assert (off <= fused.SLACK * x.norm(dim=1)[:, None] * rows.norm(dim=1)[None, :]).all()


def test_rows_that_are_no_numbers_are_refused():
    head, _ = made(20, 16, 2)
    with torch.no_grad():
        head.rows[3, 3] = torch.nan
    with pytest.raises(fused.DataError, match="not numbers"):
        FusedSearch(head)
