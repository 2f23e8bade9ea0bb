"""Training and prediction at the shape of LF-AmazonTitles-1.3M on one GPU: memory, time, where it goes.

    python -m bench.million memory     # a whole step, DistilBERT-shaped encoder: peak memory
    python -m bench.million epoch      # MiniLM-shaped and InceptionXML encoders: steps, an epoch at that pace
    python -m bench.million predict    # exact top 100, one query and 1,024

Weights, words and targets are random: nothing is learnt, and everything costs what it costs. An epoch is over
2.25 million training points and 1.3 million label points.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.card import Line, ceilings, milliseconds
from bench.command import argument_parser
from bench.machine import RESULTS, machine
from bench.made_up import random_points
from gandalf.lab.store import append
from gandalf.model.exact import top_k
from gandalf.nets.encoders import TextEncoder, build_encoder
from gandalf.nets.heads import Table
from gandalf.predict.fused import FusedSearch
from gandalf.train.batches import Points
from gandalf.train.encoder_update import EncoderOptions
from gandalf.train.kernels.choice import FLOAT8
from gandalf.train.labels import Every
from gandalf.train.loop import Training
from gandalf.train.orders import Order, Phase
from gandalf.train.row_optimisers import RowOptions
from gandalf.train.stage import Stage

POINTS, LABELS, LENGTH, PER_POINT = 2_248_619, 1_305_265, 32, 20
WORDS, BLOCK = 30_522, 33_792
SHAPES: dict[str, dict[str, Any]] = {
    "distilbert": {"model_type": "distilbert", "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072},
    "minilm": {
        **{"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12},
        "intermediate_size": 1536,
    },
}
# Of the steps whose memory is measured: batch, momentum, texts at a time, rows.
STEPS = (
    *((1_024, 0.0, micro, torch.float16) for micro in (0, 256)),
    *((batch, momentum, 256, torch.float16) for batch, momentum in ((1_024, 0.9), (2_048, 0.0))),
    *((1_024, 0.0, micro, FLOAT8) for micro in (0, 256, 128)),
)


def encoder(name: str) -> TextEncoder:
    """Return an encoder of that shape with weights as they are drawn."""
    if name == "inception":
        options: dict[str, Any] = {"kind": name, "words": LENGTH, "word_dim": 300}
    else:
        options = {"kind": "transformer", "config": SHAPES[name], "dropout": 0.5}
    return build_encoder(options, WORDS).cuda()


def rows(number: int) -> Points:
    """Return so many random points."""
    return random_points((number, LABELS), WORDS, LENGTH, PER_POINT, shortest=4)


def training(
    name: str, points: Points, batch: int, momentum: float, micro: int, dtype: torch.dtype = torch.float16
) -> Training:
    """Return a run of that encoder with a fused head of such rows, before its first step."""
    net = encoder(name)
    with torch.device("meta"):
        head = Table(LABELS, net.dim)
    head.to_empty(device="cuda")
    drawn = torch.empty(LABELS, net.dim, dtype=torch.float16, device="cuda").normal_(0, 0.02)
    head.rows.data = drawn.to(dtype)
    head.bias.data.fill_(-10.0)
    stage = Stage(
        Order([Phase(np.arange(len(points)), 10**6)], batch, seed=0),
        Every(LABELS, BLOCK),
        encoder=EncoderOptions(rate=1e-5, words_rate=1e-5),
        head=RowOptions("sgd", rate=0.05, momentum=momentum),
        kernel="triton",
        dtype=torch.bfloat16,
        micro_batch=micro,
    )
    return Training(net, head, points, stage)


def stepped(run: Training, steps: int) -> float:
    """Return the seconds of so many steps, after some to warm up."""
    started = 0.0
    with run._recorded():
        for number, batch in enumerate(run._batches(range(0, steps + 5))):
            if number == 5:
                torch.cuda.synchronize()
                started = time.perf_counter()
            run._train_batch(batch, with_loss=False)
            run.step += 1
        torch.cuda.synchronize()
        return time.perf_counter() - started


def memory() -> Iterator[Line]:
    """Yield the peak memory of whole steps."""
    points = rows(20_000)
    for batch, momentum, micro, dtype in STEPS:
        yield {
            **{"batch": batch, "momentum": momentum, "micro_batch": micro, "dtype": str(dtype)},
            **remembered(training("distilbert", points, batch, momentum, micro, dtype)),
        }


def remembered(run: Training) -> Line:
    """Return what steps of this run take, without what it took to make the run."""
    forget()
    seconds = stepped(run, 10) / 10
    reserved = torch.cuda.max_memory_reserved() / 2**30
    return {"ms": seconds * 1e3, "allocated_gib": allocated(), "reserved_gib": reserved}


def epoch(batch: int, steps: int) -> Iterator[Line]:
    """Yield the time of steps, the head's share of it, and the time of an epoch at that pace."""
    points, top = rows(200_000), ceilings()
    for name in ("minilm", "inception"):
        forget()
        yield {"encoder": name, **paced(training(name, points, batch, 0.9, 0), steps, top["matmul_tflops"])}


def paced(run: Training, steps: int, top: float) -> Line:
    """Return the time of a step of this run."""
    batch = run.stage.order.batch
    seconds = stepped(run, steps) / steps
    (given,) = run._batches(range(0, 1))
    x = torch.randn(batch, run.head.dim, device="cuda")
    of_head = milliseconds(lambda _: run.head_update.step(x, given.chunks, None, 1.0, False), times=10)
    flops = 6 * batch * LABELS * run.head.dim / of_head / 1e9
    return {
        **{"batch": batch, "ms": seconds * 1e3, "head_ms": of_head, "head_tflops": flops},
        "head_share_of_matmul": flops / top,
        "epoch_seconds": seconds * (POINTS + LABELS) / batch,
        "allocated_gib": allocated(),
    }


def forget() -> None:
    """Count memory anew, without what runs before have left."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def allocated() -> float:
    """Return the most memory that was in use at once, in GiB."""
    return torch.cuda.max_memory_allocated() / 2**30


def predict() -> Iterator[Line]:
    """Time the exact top 100 of all labels, by the fused search and by the plain one."""
    head = Table(LABELS, 768)
    head.rows.data = torch.randn(LABELS, 768) * 0.5
    head = head.cuda()
    search = FusedSearch(head)
    for batch in (1, 1_024):
        x = torch.randn(batch, 768, device="cuda")
        fused = milliseconds(lambda _: search.best(x, 100), times=10)  # noqa: B023
        plain = milliseconds(lambda _: top_k(x, head, 100), times=3, warm=1)  # noqa: B023
        ids, _ = search.best(x, 100)
        same = float((ids.cpu().numpy() == top_k(x, head, 100)[0]).mean())
        yield {"batch": batch, "ms": fused, "qps": batch / fused * 1e3, "plain_ms": plain, "same": same}


def main() -> None:
    """Measure, print, keep."""
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=("memory", "epoch", "predict"))
    parser.add_argument("--batch", type=int, default=1_024)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path, default=RESULTS / "million.jsonl")
    parser.add_argument("--commit", help="of the code, where git cannot tell")
    chosen = parser.parse_args()
    about = machine(chosen.commit)
    measure = {"memory": memory, "epoch": lambda: epoch(chosen.batch, chosen.steps), "predict": predict}
    for line in measure[chosen.what]():
        print(json.dumps(line), flush=True)
        append(chosen.out, {"what": chosen.what, **line, "machine": about})


if __name__ == "__main__":
    main()
