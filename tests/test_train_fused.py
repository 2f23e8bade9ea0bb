"""The fused head against the plain one and against float64, by Triton's interpreter or on a GPU."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse import random_array
from small_runs import small, small_splits

from gandalf.nets.heads import Table
from gandalf.runs import hardware
from gandalf.runs.run import Place, train
from gandalf.settings import override
from gandalf.train.batches import Points, make_batch
from gandalf.train.head_update import RowOptions, TableUpdate
from gandalf.train.labels import Every
from gandalf.train.losses import binary_cross_entropy

triton = pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from gandalf.train import fused_update, loop  # noqa: E402
from gandalf.train.fused_update import SMALL, FusedUpdate, Tiles  # noqa: E402

# The interpreter does things that NumPy advises against.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
CPU = torch.device("cpu")
OPTIMISERS = {
    "sgd": RowOptions("sgd", rate=0.5, momentum=0.0),
    "momentum": RowOptions("sgd", rate=0.5, weight_decay=0.01),
    "adamw": RowOptions("adamw", rate=0.01, weight_decay=0.1),
}


@pytest.fixture(autouse=True)
def interpreted():
    if not (triton.knobs.runtime.interpret or torch.cuda.is_available()):
        pytest.skip("needs a GPU, or TRITON_INTERPRET=1")


def made(labels, dim, points, seed=0):
    """Points, soft and hard targets, and a head that is not at its start."""
    random = np.random.default_rng(seed)
    targets = random_array((points, labels), density=min(1.0, 3 / labels), rng=random, format="csr")
    targets.data[: len(targets.data) // 2] = 1.0
    tokens = np.ones((points, 1), dtype=np.int32)
    weights = random.random(points).astype(np.float32)
    head = Table(labels, dim)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.rows.copy_(torch.randn(labels, dim, generator=generator))
        head.bias.copy_(torch.randn(labels, generator=generator) - 2)
    x = torch.randn(points, dim, generator=generator) / math.sqrt(dim)
    return Points(tokens, targets.astype(np.float32)), head, x, torch.from_numpy(weights)


def copied(head):
    other = Table(head.num_labels, head.dim)
    other.load_state_dict(head.state_dict())
    return other


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(70, 24, 20, 70), (70, 40, 33, 32), (33, 16, 5, 16), (70, 8, 9, 5)])
def test_every_step_is_that_of_the_plain_head(optimiser, weighted, shape):
    """Ragged last blocks, many blocks, tiles that are not full, several steps, points of unequal weight."""
    labels, dim, points, block = shape
    all_points, head, x, weights = made(labels, dim, points)
    options = OPTIMISERS[optimiser]
    plain = TableUpdate(copied(head), options, binary_cross_entropy, torch.float32)
    fused = FusedUpdate(copied(head), options, torch.float32, SMALL)
    for step in range(3):
        batch = make_batch(all_points, np.arange(points), Every(labels, block), step, CPU)
        given = (x, batch.chunks, weights if weighted else None, 0.7, True)
        (expected, loss), (gradient, told) = plain.step(*given), fused.step(*given)
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(told, loss, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(fused.head.rows, plain.head.rows, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(fused.head.bias, plain.head.bias, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(fused.head.rows, head.rows, atol=1e-3)


def test_points_without_targets_and_labels_without_points():
    all_points, head, x, _ = made(40, 16, 18)
    none = Points(all_points.tokens, all_points.targets * 0)
    none.targets.eliminate_zeros()
    plain = TableUpdate(copied(head), OPTIMISERS["sgd"], binary_cross_entropy, torch.float32)
    fused = FusedUpdate(copied(head), OPTIMISERS["sgd"], torch.float32, SMALL)
    batch = make_batch(none, np.arange(18), Every(40, 16), 0, CPU)
    expected, _ = plain.step(x, batch.chunks, None, 1.0, False)
    gradient, told = fused.step(x, batch.chunks, None, 1.0, False)
    assert told is None
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(fused.head.rows, plain.head.rows, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_resumed_head_goes_on_as_if_unbroken(optimiser):
    all_points, head, x, _ = made(40, 16, 18)
    one = FusedUpdate(copied(head), OPTIMISERS[optimiser], torch.float32, SMALL)
    batch = make_batch(all_points, np.arange(18), Every(40, 16), 0, CPU)
    one.step(x, batch.chunks, None, 1.0, False)
    saved = {name: tensor.clone() for name, tensor in one.tensors().items()}
    other = FusedUpdate(copied(one.head), OPTIMISERS[optimiser], torch.float32, SMALL)
    other.load(saved)
    for each in (one, other):
        each.step(x, batch.chunks, None, 1.0, False)
    assert torch.equal(one.head.rows, other.head.rows) and torch.equal(one.head.bias, other.head.bias)
    assert one.tensors().keys() == other.tensors().keys()


def test_products_of_float16_lose_no_small_slope():
    """Where all labels are unlikely, slopes are a millionth, and their sums move rows and points."""
    all_points, head, x, _ = made(300, 32, 64)
    head.bias.data.fill_(-14.0)
    batch = make_batch(all_points, np.arange(64), Every(300, 128), 0, CPU)
    plain = TableUpdate(copied(head), OPTIMISERS["sgd"], binary_cross_entropy, torch.float32)
    fused = FusedUpdate(copied(head), OPTIMISERS["sgd"], torch.bfloat16, SMALL)
    assert fused.dtype == torch.float16
    (expected, loss), (gradient, told) = (
        each.step(x, batch.chunks, None, 1.0, True) for each in (plain, fused)
    )
    torch.testing.assert_close(told, loss, rtol=1e-3, atol=0)
    for one, other in (
        (gradient, expected),
        (fused.head.rows - head.rows, plain.head.rows - head.rows),
        (fused.head.bias - head.bias, plain.head.bias - head.bias),
    ):
        assert (one - other).norm() < 2e-3 * other.norm()
    unmet = torch.ones(300, dtype=torch.bool)
    unmet[np.unique(all_points.targets.indices)] = False  # nothing but small slopes moves these
    moved, right = ((each.head.bias - head.bias)[unmet] for each in (fused, plain))
    assert unmet.sum() > 5 and (moved - right).norm() < 1e-2 * right.norm()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("momentum", "rate"), [(0.0, 0.5), (0.9, 0.05)])
def test_small_steps_of_rows_at_low_precision_are_not_lost(momentum, rate, kind):
    """Steps far smaller than what the type can tell apart move a few rows, and the mean as they should."""
    labels, dim = 256, 64
    rate = rate / 8 if kind == torch.float16 else rate
    points = Points(np.ones((16, 1), np.int32), random_array((16, labels), density=0.0, format="csr"))
    batch = make_batch(points, np.arange(16), Every(labels, labels), 0, CPU)
    means = []
    for dtype in (torch.float32, kind):
        head = Table(labels, dim)
        with torch.no_grad():
            head.rows.fill_(1.0)
            head.bias.fill_(-1.0)
        head.rows.data = head.rows.data.to(dtype)
        options = RowOptions("sgd", rate=rate, momentum=momentum)
        fused = FusedUpdate(head, options, torch.float32, Tiles(64, 16, 4096))
        for _ in range(20):
            fused.step(torch.full((16, dim), 1e-2 / dim), batch.chunks, None, 1.0, False)
            head.bias.data.fill_(-1.0)  # the biases stay
        means.append(1 - head.rows.float().mean().item())
    assert means[1] == pytest.approx(means[0], rel=0.15)
    assert 0 < (head.rows != 1.0).float().mean() < 0.99  # by chance, and not all of them alike


@pytest.mark.parametrize("settings", [(), ("head.optimiser=sgd", "head.rate=1", "targets.label_weight=0.5")])
def test_a_run_by_fused_kernels_is_one_by_plain_ones(settings, monkeypatch, tmp_path):
    """All the way through: blocks, weights, checkpoints and the model."""
    asked = small("labels.block=50", "training.steps=6", "training.precision=float32", *settings)
    plain = train(small_splits(), asked)
    monkeypatch.setattr(loop, "missing", lambda device, dtype: None)
    monkeypatch.setattr(hardware, "missing", lambda device, dtype: None)
    monkeypatch.setattr(fused_update, "DEFAULT", SMALL)
    fused = train(small_splits(), override(asked, ["head.kernel=triton"]), Place(tmp_path / "run"))
    torch.testing.assert_close(fused.model.head.rows, plain.model.head.rows, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(fused.model.head.bias, plain.model.head.bias, rtol=1e-3, atol=1e-4)
    low = train(small_splits(), override(asked, ["head.kernel=auto", "head.row_precision=bfloat16"]))
    assert low.model.head.rows.dtype == torch.float32
    assert torch.equal(low.model.head.rows, low.model.head.rows.bfloat16().float())
    alike = torch.nn.functional.cosine_similarity(low.model.head.rows, plain.model.head.rows)
    assert alike.min() > 0.99
