"""Made-up heads and batches, and whether a step of the fused head is right: `python -m bench.head check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from bench.card import Line
from gandalf.nets.heads import Table
from gandalf.train.batches import Points, make_batch
from gandalf.train.kernels.choice import FLOAT8
from gandalf.train.kernels.fused_update import FusedUpdate
from gandalf.train.labels import Chunk, Every
from gandalf.train.row_optimisers import RowOptions

DIM = 768


def material(labels: int, batch: int, block: int, soft: bool = True) -> Iterator[tuple[Tensor, Any]]:
    """Yield endless batches: points of length about 1, and five targets each."""
    random = np.random.default_rng(0)
    while True:
        columns = random.integers(0, labels, (batch, 5))
        values = random.random(batch * 5) if soft else np.ones(batch * 5)
        rows = np.repeat(np.arange(batch), 5)
        targets = csr_array((values, (rows, columns.ravel())), shape=(batch, labels))
        targets.data = np.minimum(targets.data, 1.0)
        points = Points(np.ones((batch, 1), np.int32), targets)
        made = make_batch(points, np.arange(batch), Every(labels, block), 0, torch.device("cuda"))
        yield torch.randn(batch, DIM, device="cuda") * DIM**-0.5, made.chunks


def table(labels: int, dtype: torch.dtype) -> Table:
    """Return a head on the card."""
    with torch.device("meta"):
        head = Table(labels, DIM)
    head.to_empty(device="cuda")
    made = torch.float16 if dtype == FLOAT8 else dtype  # there is nothing that draws float8
    head.rows.data = (torch.randn(labels, DIM, device="cuda", dtype=made) * DIM**-0.5).to(dtype)
    head.bias.data.fill_(-5.0)
    return head


def check(
    options: RowOptions, labels: int, batch: int, block: int, soft: bool, dtype: torch.dtype = torch.float32
) -> Line:
    """Return the largest relative errors of one step against float64, twice: an error that moves is a race.

    Of rows only where they are of float32: others are right on average.
    """
    x, chunks = next(material(labels, batch, block, soft))
    start = table(labels, dtype)
    found = []
    for _ in range(2):
        head = table(labels, dtype)
        head.load_state_dict(start.state_dict())
        fused = FusedUpdate(head, options, torch.bfloat16)
        gradient, loss = fused.step(x, chunks, None, 1.0, True)
        assert loss is not None
        found.append((gradient, head.rows.data, head.bias.data, loss))
    expected = reference(x, chunks, start, options)
    names = ("of points", *(("rows",) if dtype == torch.float32 else ()), "bias", "loss")
    moved = {
        "rows": (found[0][1].double() - start.rows.double(), expected[1] - start.rows.double()),
        "bias": (found[0][2].double() - start.bias.double(), expected[2] - start.bias.double()),
        "of points": (found[0][0].double(), expected[0]),
        "loss": (found[0][3].double(), expected[3]),
    }
    same = all(torch.equal(one.float(), other.float()) for one, other in zip(*found, strict=True))
    errors = {
        name: ((moved[name][0] - moved[name][1]).norm() / moved[name][1].norm()).item() for name in names
    }
    shape = {"labels": labels, "batch": batch, "block": block, "dtype": str(dtype)}
    return {**shape, "soft": soft, "same": same, **errors}


def reference(
    x: Tensor, chunks: tuple[Chunk, ...], head: Table, options: RowOptions
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return one step of SGD in float64 and one piece."""
    points = x.half().double()
    rows, bias = head.rows.data.half().double(), head.bias.data.double()
    targets = torch.zeros(len(x), head.num_labels, dtype=torch.float64, device=x.device)
    for chunk in chunks:
        assert isinstance(chunk.labels, slice)
        targets[chunk.point, chunk.column + chunk.labels.start] = chunk.value.double()
    scores = points @ rows.T + bias
    slopes = torch.sigmoid(scores) - targets
    loss = (nn.functional.softplus(scores) - targets * scores).sum() / len(x)
    of_rows, of_bias = slopes.T @ points / len(x), slopes.sum(dim=0) / len(x)
    moved = (head.rows.data.double() - options.rate * of_rows, bias - options.rate * of_bias)
    return slopes @ rows / len(x), *moved, loss
