"""The fused head against the plain one and against float64, by Triton's interpreter or on a GPU."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse import random_array
from small_runs import KilledError, at_step, killed, same, small, small_splits

from gandalf.nets.heads import Table
from gandalf.runs.folder import RunPlace
from gandalf.runs.session import run_training
from gandalf.settings import override
from gandalf.train.batches import Points, make_batch
from gandalf.train.head_update import TableUpdate
from gandalf.train.labels import Every
from gandalf.train.losses import binary_cross_entropy
from gandalf.train.row_optimisers import RowOptions

triton = pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from gandalf.train.kernels import choice, fused_update  # noqa: E402
from gandalf.train.kernels.fused_update import LARGEST, SMALL, Float8Points, FusedUpdate, Tiles  # noqa: E402
from gandalf.train.precision import FLOAT8  # noqa: E402

# The interpreter does things that NumPy advises against.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
INTERPRETED = triton.knobs.runtime.interpret
DEVICE = torch.device("cpu" if INTERPRETED or not torch.cuda.is_available() else "cuda")
on_a_gpu = pytest.mark.skipif(
    DEVICE.type == "cpu",
    reason="needs a GPU: Triton's interpreter has neither products of float8 nor a GPU's NaN",
)
OPTIMISERS = {
    "sgd": RowOptions("sgd", rate=0.5, momentum=0.0),
    "momentum": RowOptions("sgd", rate=0.5, weight_decay=0.01),
    "adamw": RowOptions("adamw", rate=0.01, weight_decay=0.1),
}


@pytest.fixture(autouse=True)
def interpreted():
    if not (INTERPRETED or DEVICE.type == "cuda"):
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
    all_points = Points(tokens, targets.astype(np.float32))
    return all_points, head.to(DEVICE), x.to(DEVICE), torch.from_numpy(weights).to(DEVICE)


def copied(head):
    other = Table(head.num_labels, head.dim).to(DEVICE)
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
        batch = make_batch(all_points, np.arange(points), Every(labels, block), step, DEVICE)
        given = (x, batch.chunks, weights if weighted else None, 0.7, True)
        (expected, loss), (gradient, told) = plain.step(*given), fused.step(*given)
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(told, loss, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(fused.table.rows, plain.table.rows, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(fused.table.bias, plain.table.bias, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(fused.table.rows, head.rows, atol=1e-3)


def test_points_without_targets_and_labels_without_points():
    all_points, head, x, _ = made(40, 16, 18)
    none = Points(all_points.tokens, all_points.targets * 0)
    none.targets.eliminate_zeros()
    plain = TableUpdate(copied(head), OPTIMISERS["sgd"], binary_cross_entropy, torch.float32)
    fused = FusedUpdate(copied(head), OPTIMISERS["sgd"], torch.float32, SMALL)
    batch = make_batch(none, np.arange(18), Every(40, 16), 0, DEVICE)
    expected, _ = plain.step(x, batch.chunks, None, 1.0, False)
    gradient, told = fused.step(x, batch.chunks, None, 1.0, False)
    assert told is None
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(fused.table.rows, plain.table.rows, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_resumed_head_goes_on_as_if_unbroken(optimiser):
    all_points, head, x, _ = made(40, 16, 18)
    one = FusedUpdate(copied(head), OPTIMISERS[optimiser], torch.float32, SMALL)
    batch = make_batch(all_points, np.arange(18), Every(40, 16), 0, DEVICE)
    one.step(x, batch.chunks, None, 1.0, False)
    saved = {name: tensor.clone() for name, tensor in one.tensors().items()}
    other = FusedUpdate(copied(one.table), OPTIMISERS[optimiser], torch.float32, SMALL)
    other.load(saved)
    for each in (one, other):
        each.step(x, batch.chunks, None, 1.0, False)
    assert torch.equal(one.table.rows, other.table.rows) and torch.equal(one.table.bias, other.table.bias)
    assert one.tensors().keys() == other.tensors().keys()


def test_products_of_float16_lose_no_small_slope():
    """Where all labels are unlikely, slopes are a millionth, and their sums move rows and points."""
    all_points, head, x, _ = made(300, 32, 64)
    head.bias.data.fill_(-14.0)
    batch = make_batch(all_points, np.arange(64), Every(300, 128), 0, DEVICE)
    plain = TableUpdate(copied(head), OPTIMISERS["sgd"], binary_cross_entropy, torch.float32)
    fused = FusedUpdate(copied(head), OPTIMISERS["sgd"], torch.bfloat16, SMALL)
    assert fused.dtype == torch.float16
    (expected, loss), (gradient, told) = (
        each.step(x, batch.chunks, None, 1.0, True) for each in (plain, fused)
    )
    torch.testing.assert_close(told, loss, rtol=1e-3, atol=0)
    for one, other in (
        (gradient, expected),
        (fused.table.rows - head.rows, plain.table.rows - head.rows),
        (fused.table.bias - head.bias, plain.table.bias - head.bias),
    ):
        assert (one - other).norm() < 2e-3 * other.norm()
    unmet = torch.ones(300, dtype=torch.bool, device=DEVICE)
    unmet[np.unique(all_points.targets.indices)] = False  # nothing but small slopes moves these
    moved, right = ((each.table.bias - head.bias)[unmet] for each in (fused, plain))
    assert unmet.sum() > 5 and (moved - right).norm() < 1e-2 * right.norm()


def every_number(kind):
    """All that a type can hold, in order."""
    whole = torch.int8 if kind == FLOAT8 else torch.int16
    bits = torch.arange(torch.iinfo(whole).min, torch.iinfo(whole).max + 1).to(whole)
    return bits.view(kind).float().unique()  # what is no number among them


def moved_against(gradient, kind):
    """Rows that begin at 0, after one step against a gradient."""
    head = Table(*gradient.shape).to(DEVICE)
    head.rows.data = torch.zeros(gradient.shape, device=DEVICE).to(kind)
    fused = FusedUpdate(head, RowOptions("sgd", momentum=0.0), torch.float32, SMALL)
    fused.move("rows", slice(0, len(gradient)), gradient.to(DEVICE), 1.0, 1.0, 0)
    return head.rows.detach().float().cpu()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((kind, value) for kind in (torch.bfloat16, torch.float16, FLOAT8) for value in (0.3, -5.3, 200.7)),
        *((FLOAT8, value) for value in (0.0003, 0.003, -0.0149, 0.0157)),  # evenly spaced below 2**-6
    ],
)
def test_rounding_is_to_a_neighbour_and_right_on_average(kind, value):
    labels, dim = 128, 64
    rows = moved_against(torch.full((labels, dim), -value), kind)
    numbers = every_number(kind)
    above = int(torch.searchsorted(numbers, torch.tensor(value)))
    low, high = numbers[above - 1].item(), numbers[above].item()
    assert low < value < high and set(rows.unique().tolist()) == {low, high}
    up = (value - low) / (high - low)
    assert (rows == high).float().mean().item() == pytest.approx(up, abs=0.03)


def test_float8_has_nothing_beyond_its_largest():
    rows = moved_against(torch.tensor([[-1e4], [1e4], [LARGEST]]), FLOAT8)
    assert rows.flatten().tolist() == [LARGEST, -LARGEST, -LARGEST]


@on_a_gpu
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, FLOAT8])
def test_rounding_hides_no_error(kind):
    """A GPU's own way to write what is no number; the interpreter has another."""
    rows = moved_against(torch.tensor([[math.nan, -1.0, math.inf]] * 64), kind)
    assert rows[:, 0].isnan().all() and (rows[:, 1] == 1).all() and not rows[:, 2].isfinite().any()


def test_points_of_float8_use_all_its_range():
    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(0)) * 1e-3
    small = Float8Points.of(x)
    assert small.values.dtype == FLOAT8 and small.values.float().abs().max() == LARGEST
    torch.testing.assert_close(
        small.values.float() * small.unit, x, rtol=2**-4, atol=float(small.unit) * 2**-9
    )
    assert (Float8Points.of(torch.zeros(2, 16)).values.float() == 0).all()


@on_a_gpu
def test_products_of_float8_are_those_of_its_numbers():
    all_points, head, x, _ = made(333, 64, 100)
    head.rows.data = head.rows.data.to(FLOAT8)
    rows, bias = head.rows.double(), head.bias.double().clone()
    fused = FusedUpdate(head, OPTIMISERS["sgd"], torch.bfloat16)
    small = Float8Points.of(x)
    points = small.values.double() * small.unit.double()  # what scores are of; gradients are of x itself
    batch = make_batch(all_points, np.arange(100), Every(333, 128), 0, DEVICE)
    gradient, loss = fused.step(x, batch.chunks, None, 1.0, True)
    scores = points @ rows.T + bias
    targets = torch.from_numpy(all_points.targets.toarray()).to(DEVICE).double()
    slopes = torch.sigmoid(scores) - targets
    expected = slopes @ rows / 100
    assert (gradient - expected).norm() < 2e-3 * expected.norm()
    of_loss = (torch.nn.functional.softplus(scores) - targets * scores).sum() / 100
    torch.testing.assert_close(loss.double(), of_loss, rtol=1e-3, atol=0)
    moved = OPTIMISERS["sgd"].rate * slopes.sum(dim=0) / 100
    assert (bias - head.bias - moved).norm() < 2e-3 * moved.norm()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, FLOAT8])
@pytest.mark.parametrize(("momentum", "rate"), [(0.0, 0.5), (0.9, 0.05)])
def test_small_steps_of_rows_at_low_precision_are_not_lost(momentum, rate, kind):
    """Steps far smaller than what the type can tell apart move a few rows, and the mean as they should."""
    labels, dim = 256, 64
    rate *= {torch.bfloat16: 1, torch.float16: 1 / 8, FLOAT8: 16}[kind]
    points = Points(np.ones((16, 1), np.int32), random_array((16, labels), density=0.0, format="csr"))
    batch = make_batch(points, np.arange(16), Every(labels, labels), 0, DEVICE)
    means = []
    for dtype in (torch.float32, kind):
        head = Table(labels, dim).to(DEVICE)
        with torch.no_grad():
            head.rows.fill_(1.0)
            head.bias.fill_(-1.0)
        head.rows.data = head.rows.data.to(dtype)
        options = RowOptions("sgd", rate=rate, momentum=momentum)
        fused = FusedUpdate(head, options, torch.float32, Tiles(64, 16, 4096))
        for _ in range(20):
            x = torch.full((16, dim), 1e-2 / dim, device=DEVICE)
            fused.step(x, batch.chunks, None, 1.0, False)
            head.bias.data.fill_(-1.0)  # the biases stay
        means.append(1 - head.rows.float().mean().item())
    assert means[1] == pytest.approx(means[0], rel=0.15)
    assert 0 < (head.rows != 1.0).float().mean() < 0.99  # by chance, and not all of them alike


@pytest.mark.parametrize("settings", [(), ("head.optimiser=sgd", "head.rate=1", "targets.label_weight=0.5")])
def test_a_run_by_fused_kernels_is_one_by_plain_ones(settings, monkeypatch, tmp_path):
    """All the way through: blocks, weights, checkpoints and the model."""
    settings = (f"device={DEVICE.type}", "labels.block=50", "training.steps=6", *settings)
    asked = small("training.precision=float32", *settings)
    plain = run_training(small_splits(), asked)
    monkeypatch.setattr(choice, "missing_requirement", lambda *given: None)
    monkeypatch.setattr(fused_update, "DEFAULT", SMALL)
    fused = run_training(small_splits(), override(asked, ["head.kernel=triton"]), RunPlace(tmp_path / "run"))
    torch.testing.assert_close(fused.model.head.rows, plain.model.head.rows, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(fused.model.head.bias, plain.model.head.bias, rtol=1e-3, atol=1e-4)
    for name, kind, least in (("bfloat16", torch.bfloat16, 0.99), ("float8", FLOAT8, 0.95)):
        asked = override(asked, ["head.kernel=auto", f"head.row_precision={name}"])
        rows = run_training(small_splits(), asked, RunPlace(tmp_path / name)).model.head.rows
        assert rows.dtype == torch.float32 and torch.equal(rows, rows.to(kind).float())
        assert torch.nn.functional.cosine_similarity(rows, plain.model.head.rows).min() > least


def test_a_run_with_rows_of_float8_that_was_broken_off_ends_as_if_unbroken(monkeypatch, tmp_path):
    monkeypatch.setattr(choice, "missing_requirement", lambda *given: None)
    monkeypatch.setattr(fused_update, "DEFAULT", SMALL)
    settings = (f"device={DEVICE.type}", "training.precision=float32", "labels.block=50", "training.steps=6")
    asked = small(*settings, "head.kernel=triton", "head.row_precision=float8", "head.optimiser=sgd")
    unbroken = run_training(small_splits(), asked, RunPlace(tmp_path / "unbroken"))
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 3, killed)
        run_training(small_splits(), asked, RunPlace(tmp_path / "broken", minutes=0))
    same(unbroken, run_training(small_splits(), asked, RunPlace(tmp_path / "broken", resume=True)))
