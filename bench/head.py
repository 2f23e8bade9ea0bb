"""The fused head on a GPU: is it right, how near the chip's limit, and in how much memory.

    python -m bench.head check                  # against float64, on fresh random inputs
    python -m bench.head ceilings               # matrix product and copy of this card
    python -m bench.head products               # the three products alone, and what could replace them
    python -m bench.head sweep --labels 131073  # tiles and blocks
    python -m bench.head blocks --labels 1305265  # large blocks alone
    python -m bench.head steps                  # the table: labels x batch, fused, plain and PyTorch's own

Each command prints a table and appends lines to --out. Steps follow one another without pause, on rotating
inputs, and their share is of a matrix product measured in turn with them (`bench.card`); `alone_ms` is the
median of steps that a rested card is given one by one, `replayed_ms` that of one batch's step as a CUDA
graph, without the time that a host takes to launch it. Parts are timed one by one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.card import Line, Work, ceilings, milliseconds, recorded, rested, without_pause
from bench.command import argument_parser
from bench.head_check import DIM, check, material, table
from bench.machine import RESULTS, machine
from gandalf.lab.store import append
from gandalf.train.head_update import TableUpdate
from gandalf.train.kernels.choice import FLOAT8
from gandalf.train.kernels.fused_update import FusedUpdate, Tiles
from gandalf.train.labels import Chunk
from gandalf.train.losses import binary_cross_entropy
from gandalf.train.row_optimisers import RowOptions

LABELS, BATCHES = (131_073, 501_070, 1_305_265), (1_024, 2_048, 4_096)
SGD = RowOptions("sgd", rate=0.05)


# ---- how fast


def fused_step(labels: int, batch: int, block: int, dtype: torch.dtype, tiles: Tiles | None = None) -> Line:
    """Time and memory of a step, and of its parts for one block."""
    torch.cuda.empty_cache()
    update = FusedUpdate(table(labels, dtype), SGD, torch.bfloat16, tiles or Tiles())
    step = rotating(update, labels, batch, block)
    return {
        **{"block": block, "dtype": str(dtype)},
        **stepped(step, labels, batch),
        "replayed_ms": rested(recorded(step)),
        "parts_ms": parts(update, *next(material(labels, batch, block))),
        "tiles": asdict(update.tiles),
    }


def rotating(update: FusedUpdate | TableUpdate, labels: int, batch: int, block: int) -> Work:
    """Return a function that steps on four batches in turn."""
    source = material(labels, batch, block)
    batches = [next(source) for _ in range(4)]
    return lambda n: update.step(*batches[n % 4], None, 1.0, False)


def stepped(step: Work, labels: int, batch: int) -> Line:
    """Measure a step: peak memory, time alone and without pause, share of a product in turn with it."""
    step(0)
    torch.cuda.reset_peak_memory_stats()
    step(1)
    peak = torch.cuda.max_memory_allocated() / 2**30
    found = {"alone_ms": rested(step), **without_pause(step)}
    tflops = 6 * batch * labels * DIM / found["ms"] / 1e9
    found |= {"tflops": tflops, "share": tflops / found["product_tflops"], "gib": peak}
    return {"labels": labels, "batch": batch, **found}


def parts(update: FusedUpdate, x: Tensor, chunks: tuple[Chunk, ...]) -> dict[str, float]:
    """Return the milliseconds of what is done for the first block."""
    chunk, points = chunks[0], x.to(update.dtype)
    labels = slice(0, chunk.size)
    rows, bias = update.table.rows.data[labels], update.table.bias.data[labels]
    low, small = update.low(rows), update._as_float8(x)
    scores = low @ points.T
    of_rows, of_points = scores @ points, low.T @ scores
    sums = torch.empty(len(low), device="cuda"), torch.zeros(len(low), dtype=torch.int64, device="cuda")
    work: dict[str, Callable[[int], object]] = {
        "cast": lambda _: update.low(rows),
        "scores": lambda _: update.scores(rows, small) if small else torch.mm(low, points.T, out=scores),
        "slopes": lambda _: update.slopes(scores, bias, None, sums[0], False),
        "targets": lambda _: update.subtract(scores, chunk, None, sums[1]),
        "of points": lambda _: torch.mm(low.T, scores, out=of_points),
        "of rows": lambda _: torch.mm(scores, points, out=of_rows),
        "move": lambda _: update.move("rows", labels, of_rows, 1e-9, 0.0, 0),
    }
    return {name: milliseconds(each) for name, each in work.items()}


def plain_step(labels: int, batch: int, block: int) -> Line:
    """Measure a step of `TableUpdate`, without fused kernels."""
    torch.cuda.empty_cache()
    update = TableUpdate(table(labels, torch.float32), SGD, binary_cross_entropy, torch.bfloat16)
    return stepped(rotating(update, labels, batch, block), labels, batch)


def linear_step(labels: int, batch: int) -> Line:
    """Measure a step of PyTorch's Linear under autocast with its fused AdamW, as most would write it."""
    torch.cuda.empty_cache()
    layer = nn.Linear(DIM, labels, device="cuda")
    optimiser = torch.optim.AdamW(layer.parameters(), fused=True)
    x, chunks = next(material(labels, batch, labels))
    targets = torch.zeros(batch, labels, device="cuda")
    targets[chunks[0].point, chunks[0].column] = chunks[0].value

    def step(_: int) -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = layer(x.requires_grad_())
        loss = nn.functional.binary_cross_entropy_with_logits(scores.float(), targets, reduction="sum")
        torch.autograd.backward(loss)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return stepped(step, labels, batch)


TILES = (
    Tiles(),
    Tiles(16, 128),
    Tiles(4, 512),
    Tiles(2, 1024),
    Tiles(4, 256),
    Tiles(16, 256),
    Tiles(8, 512, warps=8),
    Tiles(2, 2048, warps=8),
    Tiles(values=2048),
    Tiles(values=4096, warps=8),
)
LARGE = (65_536, 101_376, 135_168, 202_752, 270_336)  # the first is what a run takes for 2,048 points
BLOCKS = (8_448, 16_896, 33_792, 67_584, 135_168)  # 128 x 132 / 2 and on: whole waves of tiles on 132 cores


def sweep(labels: int, batch: int) -> Iterator[Line]:
    """Yield shapes of tiles at one size of block, then sizes of blocks with the best of them."""
    tried = [fused_step(labels, batch, BLOCKS[2], torch.float16, tiles) for tiles in TILES]
    yield from tried
    best = min(tried, key=lambda line: float(line["ms"]))
    for block in BLOCKS:
        yield fused_step(labels, batch, block, torch.float16, Tiles(**best["tiles"]))


def products(block: int, batch: int) -> Line:
    """Return the milliseconds of the products of one block alone, by PyTorch; scores also of float8."""
    points, rows = (torch.randn(n, DIM, device="cuda").half() * DIM**-0.5 for n in (batch, block))
    scores, velocity = (torch.empty(block, width, device="cuda").half() for width in (batch, DIM))
    small, one = [each.to(torch.float8_e4m3fn) for each in (points, rows)], torch.ones((), device="cuda")
    work: dict[str, Callable[[int], object]] = {
        "scores": lambda _: torch.mm(rows, points.T, out=scores),
        "scores, float8": lambda _: torch._scaled_mm(
            small[1], small[0].T, scale_a=one, scale_b=one, out_dtype=torch.float16, use_fast_accum=True
        ),
        "of points": lambda _: rows.T @ scores,
        "of rows": lambda _: torch.mm(scores, points, out=velocity),
        "of rows, added to a velocity": lambda _: velocity.addmm_(scores, points, beta=0.9, alpha=1e-3),
    }
    found = {name: milliseconds(each) for name, each in work.items()}
    three = found["scores"] + found["of points"] + found["of rows"]
    flops = 6 * batch * block * DIM
    return {"block": block, "batch": batch, "parts_ms": found, "ms": three, "tflops": flops / three / 1e9}


# ---- the command


def lines(chosen: argparse.Namespace) -> Iterator[Line]:
    """Yield what the command measures, line by line."""
    if chosen.what == "check":
        options = RowOptions("sgd", rate=0.05, momentum=0.0)
        shapes = ((5_003, 256, 5_003), (9_001, 333, 2_048), (300, 1_000, 128))
        for dtype, soft, shape in product((torch.float32, FLOAT8), (True, False), shapes):
            yield check(options, *shape, soft, dtype)
        return
    top = ceilings()
    yield top
    if chosen.what == "products":
        yield from (_with_share(products(block, chosen.batch), top) for block in (*BLOCKS[2:], 131_072))
    if chosen.what == "sweep":
        yield from (_with_share(line, top) for line in sweep(chosen.labels, chosen.batch))
    if chosen.what == "blocks":
        tried = (fused_step(chosen.labels, chosen.batch, block, torch.float16) for block in LARGE)
        yield from (_with_share(line, top) for line in tried)
    if chosen.what == "steps":
        yield from (_with_share(line, top) for line in steps(chosen.block))


def steps(fused_block: int) -> Iterator[Line]:
    """Yield the table: labels x batch, fused, plain and PyTorch's own."""
    for labels, batch in product(LABELS, BATCHES):
        for dtype in (torch.float16, FLOAT8, torch.float32):
            yield fused_step(labels, batch, fused_block, dtype)
        yield {"plain": True, **plain_step(labels, batch, 1 << 16)}
        if labels == LABELS[0]:
            yield {"linear": True, **linear_step(labels, batch)}


def _with_share(line: Line, top: Line) -> Line:
    """Add the share of a rested card's product; it is the line's share where none was measured in turn."""
    alone = line["ms"] / line.get("alone_ms", line["ms"]) * line["tflops"] / top["matmul_tflops"]
    return {"share": alone, **line, "share_of_rested": alone}


def main() -> None:
    """Measure, print, keep."""
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=("check", "ceilings", "products", "sweep", "blocks", "steps"))
    parser.add_argument("--labels", type=int, default=LABELS[0])
    parser.add_argument("--batch", type=int, default=2_048)
    parser.add_argument("--block", type=int, default=BLOCKS[-1])
    parser.add_argument("--out", type=Path, default=RESULTS / "head.jsonl")
    parser.add_argument("--commit", help="of the code, where git cannot tell")
    chosen = parser.parse_args()
    about = machine(chosen.commit)
    for line in lines(chosen):
        print(_short(line), flush=True)
        append(chosen.out, {"what": chosen.what, **line, "machine": about})


def _short(line: Line) -> str:
    """Return the line with numbers of four digits."""
    return json.dumps(json.loads(json.dumps(line), parse_float=lambda text: float(f"{float(text):.4g}")))


if __name__ == "__main__":
    main()
