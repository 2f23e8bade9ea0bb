"""What training over many GPUs would take, on paper: memory, bytes and seconds of a step by the formulas of
docs/guide/scaling.md, from rates that one GPU was measured at.

    python -m bench.plan                                # 100 million labels, a billion points
    python -m bench.plan --labels 1e7 --points 1e8 --gpus 8 16

Nothing here was run on more than one GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.command import argument_parser

# Measured on one H200 (docs/lab/gpu_log.md; bench/results/head.jsonl and million.jsonl, commit 89234fe).
HEAD_FLOPS = {1_024: 424e12, 2_048: 467e12, 4_096: 519e12}  # operations a second by batch; above, the last
ENCODER_SECONDS = (
    42e-6  # a point, DistilBERT-shaped, up to 32 tokens: 57 ms less 14.5 of the head, 1,024 points
)
ACTIVATIONS = 3.9 * 2**20  # bytes a point: 8.9 GiB with 1,024 at once less 5.9 with 256
# Stated, not measured: bytes a second that a GPU sends, within a machine of eight and between machines.
NVLINK, NETWORK, MACHINE = 450e9, 50e9, 8
# The model: rows of float16 and momentum of bfloat16, biases and theirs of float32; an encoder with AdamW.
DIM, PARAMETERS = 768, 66e6
ROW_BYTES, ENCODER_BYTES = 4 * DIM + 8, 16
TOKENS, PER_POINT = 32, 5
BLOCK_BYTES = 2 * (1 << 27) + 2 * (1 << 16) * DIM  # scores of a block, and the gradient of its rows


@dataclass(frozen=True)
class Plan:
    """A training on so many GPUs."""

    gpus: int
    batch: int
    labels: float
    points: float

    @property
    def memory(self) -> float:
        """Bytes of each GPU."""
        rows = ROW_BYTES * self.labels / self.gpus
        return rows + ENCODER_BYTES * PARAMETERS + BLOCK_BYTES + ACTIVATIONS * self.batch / self.gpus

    @property
    def host(self) -> float:
        """Bytes of each rank's host memory: token ids and targets of all points, which every rank keeps."""
        return (self.points + self.labels) * (4 * TOKENS + 8 * PER_POINT)

    @property
    def sent(self) -> float:
        """Bytes that a rank sends in a step, in rings."""
        ranks = self.gpus
        vectors = 4 * DIM * self.batch
        return (ranks - 1) / ranks * (vectors + 2 * vectors + 2 * 4 * PARAMETERS)

    @property
    def parts(self) -> tuple[float, float, float]:
        """Seconds of a step: head, encoder, messages, one after the other."""
        known = [rate for batch, rate in HEAD_FLOPS.items() if batch <= self.batch]
        head = 6 * self.batch * self.labels / self.gpus * DIM / (known or [HEAD_FLOPS[1_024]])[-1]
        encoder = ENCODER_SECONDS * self.batch / self.gpus
        return head, encoder, self.sent / (NVLINK if self.gpus <= MACHINE else NETWORK)

    @property
    def epoch(self) -> float:
        """Seconds of an epoch, over points and label points."""
        return sum(self.parts) * (self.points + self.labels) / self.batch


def table(plans: Iterable[Plan]) -> str:
    """Return the plans as Markdown."""
    head = (
        "| GPUs | batch | memory of a GPU | sent by a rank, a step | head | encoder | messages | an epoch |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    rows = []
    for plan in plans:
        times = " | ".join(f"{1e3 * part:,.1f} ms" for part in plan.parts)
        size = f"{plan.memory / 1e9:.1f} GB | {plan.sent / 1e6:,.0f} MB"
        rows.append(f"| {plan.gpus} | {plan.batch:,} | {size} | {times} | {plan.epoch / 3600:,.1f} h |")
    return head + "\n".join(rows)


def main() -> None:
    """Print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--labels", type=float, default=1e8)
    parser.add_argument("--points", type=float, default=1e9)
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 64, 256, 512])
    parser.add_argument("--batch", type=int, nargs="+", default=[4_096, 32_768])
    chosen = parser.parse_args()
    plans = [
        Plan(gpus, batch, chosen.labels, chosen.points) for batch in chosen.batch for gpus in chosen.gpus
    ]
    print(table(plans))
    rows = 4 * DIM * chosen.labels / 1e9
    print(f"\nHost memory of every rank: {plans[0].host / 1e9:,.0f} GB. All rows in float32: {rows:,.0f} GB.")


if __name__ == "__main__":
    main()
