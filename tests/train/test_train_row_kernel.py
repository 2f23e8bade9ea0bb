"""Rows moved in one pass are moved as PyTorch moves them in ten."""

from __future__ import annotations

import pytest
import torch

from gandalf.train import row_kernel, workspace
from gandalf.train.row_optimisers import RowAdamW, RowOptions
from gandalf.train.workspace import put_back

pytest.importorskip("numba", reason="numba is an optional library: extra [fast]")


def after(steps, shape, *, weight_decay=0.0, momentum=0.9):
    """A table and its optimiser's state after steps that each meet some of its rows."""
    dice = torch.Generator().manual_seed(5)
    table = torch.randn(shape, generator=dice)
    optimiser = RowAdamW(table, RowOptions(weight_decay=weight_decay, momentum=momentum))
    for step in range(steps):
        labels = torch.randperm(shape[0], generator=dice)[: shape[0] // 2 + step].sort().values
        rows = table[labels]
        gradient = torch.randn(rows.shape, generator=dice) * 10.0 ** torch.randint(
            -6, 3, (1,), generator=dice
        )
        gradient[0] = 0.0  # whose mean square stays 0
        optimiser.update(rows, labels, gradient, 0.01 / (1 + step))
        put_back(table, labels, rows)
    return {"table": table, **optimiser.state}


@pytest.mark.parametrize("shape", [(40, 7), (40,), (40, 33), (40, 1)])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"momentum": 0.5}])
@pytest.mark.parametrize("threads", [1, 3])
def test_one_pass_and_ten(shape, options, threads, monkeypatch):
    expected = after(6, shape, **options)
    met = []
    monkeypatch.setattr(row_kernel, "LARGE", 0)
    monkeypatch.setattr(row_kernel, "PART", 8)
    monkeypatch.setattr(row_kernel.torch, "get_num_threads", lambda: threads)
    kernel = row_kernel.compiled(row_kernel._move)
    monkeypatch.setattr(row_kernel, "compiled", lambda loop: lambda *given: [met.append(1), kernel(*given)])
    found = after(6, shape, **options)
    assert len(met) >= 6 * min(threads, 2 if len(shape) == 2 and shape[1] > 1 else 1)
    for name, tensor in expected.items():
        atol = 1e-6 * float(tensor.abs().max())  # sums of large numbers may come near 0
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=atol, msg=name)


def test_few_rows_and_other_precisions_are_left_to_pytorch(monkeypatch):
    rows = torch.zeros(300, 512)
    assert row_kernel.row_kernel(rows, rows) is not None
    assert row_kernel.row_kernel(rows[:9], rows[:9]) is None
    assert row_kernel.row_kernel(rows.half(), rows) is None
    monkeypatch.setattr(row_kernel, "compiled", lambda loop: None)  # without numba
    assert row_kernel.row_kernel(rows, rows) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_put_back(dtype):
    table, labels = torch.zeros(5, 2, dtype=dtype), torch.tensor([1, 4])
    memory = workspace.Workspace()
    rows = memory.take_rows("rows", table, labels)
    rows += torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert not table.any()
    put_back(table, labels, rows)
    assert table.tolist() == [[0, 0], [1, 2], [0, 0], [0, 0], [3, 4]]
    view = memory.take_rows("rows", table, slice(0, 1))
    view += 7
    put_back(table, slice(0, 1), view)
    assert table[0].tolist() == [7, 7]
