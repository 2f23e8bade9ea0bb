"""The update of a table chunk by chunk, against plain autograd and torch.optim with all labels at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch.nn import functional as F

from gandalf.nets.heads import Table
from gandalf.train.batches import Points, make_batch
from gandalf.train.head_update import TableUpdate
from gandalf.train.labels import Chunk, Every, Shortlist
from gandalf.train.losses import binary_cross_entropy
from gandalf.train.row_optimisers import ROWS, RowOptions

CPU = torch.device("cpu")
STEPS = 4


class Reference:
    """The definition: float64, one optimiser of torch for each label, stepped when the label is met."""

    def __init__(self, head: Table, options: RowOptions) -> None:
        self.rows = [row.double().clone().requires_grad_() for row in head.rows.detach()]
        self.bias = [bias.double().clone().requires_grad_() for bias in head.bias.detach()]
        self.optimisers = [
            _optimiser([row, bias], options) for row, bias in zip(self.rows, self.bias, strict=True)
        ]

    def step(self, x, targets, weights, met, rate):
        """Loss and gradient of x, with the targets of all labels as a dense array."""
        x = x.double().requires_grad_()
        if not met:
            return 0.0, torch.zeros_like(x)
        rows, bias = torch.stack([self.rows[m] for m in met]), torch.stack([self.bias[m] for m in met])
        weight = None if weights is None else weights.double()[:, None].expand(len(x), len(met))
        scores = x @ rows.T + bias
        wanted = torch.from_numpy(targets[:, met]).double()
        loss = F.binary_cross_entropy_with_logits(scores, wanted, weight=weight, reduction="sum") / len(x)
        loss.backward()
        for label in met:
            self.optimisers[label].param_groups[0]["lr"] = rate
            self.optimisers[label].step()
            self.optimisers[label].zero_grad()
        return loss.item(), x.grad


def _optimiser(parameters, options):
    if options.optimiser == "sgd":
        return torch.optim.SGD(
            parameters, lr=1.0, momentum=options.momentum, weight_decay=options.weight_decay
        )
    betas = (options.momentum, options.beta2)
    return torch.optim.AdamW(parameters, lr=1.0, betas=betas, weight_decay=options.weight_decay)


@dataclass(frozen=True)
class Case:
    """A few steps on random points."""

    points: int = 5
    labels: int = 7
    dim: int = 4
    soft: bool = True
    weighted: bool = True
    seed: int = 0

    def steps(self):
        """x, targets and weights of every step; some points have no label at all."""
        generator = np.random.default_rng(self.seed)
        for _ in range(STEPS):
            targets = (generator.random((self.points, self.labels)) < 0.3).astype(np.float32)
            targets[generator.random(self.points) < 0.3] = 0
            if self.soft:
                targets *= generator.random(targets.shape).astype(np.float32)
            x = torch.from_numpy(generator.normal(size=(self.points, self.dim)).astype(np.float32))
            weights = generator.random(self.points).astype(np.float32) if self.weighted else None
            yield x, targets, weights

    def head(self) -> Table:
        """The same rows every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            head = Table(self.labels, self.dim)
            torch.nn.init.normal_(head.bias)
        return head


cases = st.builds(
    Case,
    points=st.integers(1, 6),
    labels=st.integers(1, 9),
    dim=st.integers(1, 5),
    soft=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 10**6),
)
options = st.builds(
    RowOptions,
    optimiser=st.sampled_from(sorted(ROWS)),
    rate=st.sampled_from([1e-3, 1e-2]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    momentum=st.sampled_from([0.0, 0.9]),
)


def batch_of(targets, weights, labels, step):
    tokens = np.ones((len(targets), 1), dtype=np.int32)
    return make_batch(Points(tokens, csr_array(targets), weights), np.arange(len(targets)), labels, step, CPU)


def ids(chunk: Chunk, num_labels: int) -> list[int]:
    return torch.arange(num_labels)[chunk.labels].tolist()


def both(case: Case, how: RowOptions, labels, dtype=torch.float32):
    """Train the table and the reference side by side; yield what each says after every step."""
    head = case.head()
    update, reference = TableUpdate(head, how, binary_cross_entropy, dtype), Reference(head, how)
    for step, (x, targets, weights) in enumerate(case.steps()):
        batch = batch_of(targets, weights, labels, step)
        met = [label for chunk in batch.chunks for label in ids(chunk, case.labels)]
        factor, before = 0.5 + step / 4, head.rows.detach().clone()
        gradient, loss = update.step(x, batch.chunks, batch.weights, factor, with_loss=True)
        expected = reference.step(x, targets, batch.weights, met, how.rate * factor)
        yield head, before, met, (loss, gradient), expected, reference


def close(found, expected, tolerance):
    torch.testing.assert_close(found.double(), expected.double(), rtol=tolerance, atol=tolerance)


def equals_reference(case, how, labels, tolerance=2e-5):
    for head, _, _, (loss, gradient), (its_loss, its_gradient), reference in both(case, how, labels):
        assert loss.item() == pytest.approx(its_loss, rel=1e-5, abs=1e-6)
        close(gradient, its_gradient, tolerance)
        close(head.rows.detach(), torch.stack(reference.rows).detach(), tolerance)
        close(head.bias.detach(), torch.stack(reference.bias).detach(), tolerance)


@given(cases, options)
def test_streamed_equals_dense_whatever_the_block(case, how):
    for block in range(1, case.labels + 2):
        equals_reference(case, how, Every(case.labels, block))


@given(cases, options, st.integers(0, 3))
def test_a_shortlist_equals_autograd_on_its_labels(case, how, drawn):
    labels = Shortlist(case.labels, drawn, case.seed)
    hard = np.random.default_rng(case.seed).integers(-1, case.labels, (case.points, 2))
    labels.refresh(hard.astype(np.int32))
    equals_reference(case, how, labels)


@given(cases, options)
def test_rows_that_are_not_met_stay_bitwise(case, how):
    for head, before, met, *_ in both(case, how, Shortlist(case.labels, 1, case.seed)):
        others = [label for label in range(case.labels) if label not in met]
        assert torch.equal(head.rows[others], before[others])


@pytest.mark.parametrize("optimiser", ROWS)
@pytest.mark.parametrize("value", [False, True])
def test_blocks_change_nothing_that_matters_and_the_value_nothing_at_all(optimiser, value):
    case, how = Case(40, 33, 16), RowOptions(optimiser, 1e-2)
    found = []
    for block in (5, 33, 33):
        head = case.head()
        update = TableUpdate(head, how, binary_cross_entropy, torch.float32)
        for step, (x, targets, weights) in enumerate(case.steps()):
            batch = batch_of(targets, weights, Every(case.labels, block), step)
            asked = value if len(found) < 2 else not value
            _, loss = update.step(x, batch.chunks, batch.weights, 1.0, with_loss=asked)
            assert (loss is None) is not asked
        found.append(head.rows.detach())
    close(found[0], found[1], 1e-6)
    assert torch.equal(found[1], found[2])


@pytest.mark.parametrize("labels", [Every(300, 64), Every(300, 300), Shortlist(300, 100, 0)])
def test_low_precision_is_near(labels):
    """SGD's step is the gradient itself, so its error is the gradient's: a few parts in 256."""
    case = Case(64, 300, 32)
    how = RowOptions("sgd", rate=1.0, momentum=0.0)
    found = both(replace(case, seed=1), how, labels, torch.bfloat16)
    head, before, met, (loss, gradient), (its_loss, its_gradient), reference = next(iter(found))
    assert loss.item() == pytest.approx(its_loss, rel=5e-3)
    assert torch.norm(gradient - its_gradient) < 0.02 * torch.norm(its_gradient)
    moved = (head.rows.detach() - before)[met]
    wanted = (torch.stack(reference.rows).detach() - before)[met]
    assert torch.norm(moved - wanted) < 0.02 * torch.norm(wanted)
    assert head.rows.dtype == torch.float32 and gradient.dtype == torch.float32


@pytest.mark.parametrize("optimiser", ROWS)
def test_low_precision_learns_as_high_precision(optimiser):
    case, how = Case(64, 50, 16, seed=2), RowOptions(optimiser, 1e-2)
    *_, (head, _, _, (loss, _), (its_loss, _), reference) = both(
        case, how, Every(case.labels, 17), torch.bfloat16
    )
    assert loss.item() == pytest.approx(its_loss, rel=1e-2)
    moved = torch.stack(reference.rows).detach() - case.head().rows.detach()
    wrong = head.rows.detach() - torch.stack(reference.rows).detach()
    assert torch.norm(wrong) < 0.1 * torch.norm(moved)


def test_state_names_every_tensor_of_the_optimiser():
    head = Table(3, 2)
    names = {
        "adamw": {"rows.mean", "rows.square", "rows.met", "bias.mean", "bias.square", "bias.met"},
        "sgd": {"rows.velocity", "bias.velocity"},
    }
    for optimiser, expected in names.items():
        update = TableUpdate(head, RowOptions(optimiser), binary_cross_entropy, torch.float32)
        assert set(update.tensors()) == expected


@given(cases, st.integers(1, 9))
def test_loss_and_its_gradient_by_autograd(case, block):
    """The loss alone, in float64, far from zero too: nothing overflows and nothing is lost."""
    x, targets, weights = next(case.steps())
    del x
    generator = torch.Generator().manual_seed(case.seed)
    for chunk in batch_of(targets, weights, Every(case.labels, block), 0).chunks:
        scores = 40 * torch.randn(case.points, chunk.size, dtype=torch.float64, generator=generator)
        wanted = torch.from_numpy(targets[:, chunk.labels]).double()
        weight = None if weights is None else torch.from_numpy(weights).double()
        free = scores.clone().requires_grad_()
        expected = F.binary_cross_entropy_with_logits(
            free, wanted, weight=None if weight is None else weight[:, None], reduction="sum"
        )
        expected.backward()
        found = binary_cross_entropy(
            scores, replace(chunk, value=chunk.value.double()), weight, with_loss=True
        )
        torch.testing.assert_close(found, expected.detach())
        torch.testing.assert_close(scores, free.grad)
