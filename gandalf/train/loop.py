"""The one training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gandalf.errors import DataError
from gandalf.nets.heads import Composed, Encoded, Head
from gandalf.train.batches import Batch, PointOrder, Points, batches
from gandalf.train.frozen import FrozenVectors, worth_keeping
from gandalf.train.glas import Glas
from gandalf.train.guidance import Guidance
from gandalf.train.head_update import HeadUpdate, RowOptions
from gandalf.train.kernels.choice import KernelName, table_update
from gandalf.train.kernels.cuda_graphs import recorded
from gandalf.train.labels import LabelSelection
from gandalf.train.losses import Loss, binary_cross_entropy
from gandalf.train.mixup import MixUp
from gandalf.train.optimisers import EncoderOptions, EncoderUpdate
from gandalf.train.pairs.kind import PairLoss
from gandalf.train.parallel.ranks import ONE, Ranks
from gandalf.train.schedules import SCHEDULES, ScheduleName
from gandalf.train.text_updates import ComposedUpdate, PairUpdate


@dataclass(frozen=True)
class Stage:
    """A stretch of training: what is met in which order, by which loss and at which rates."""

    order: PointOrder
    labels: LabelSelection
    loss: Loss = binary_cross_entropy
    pairs: PairLoss | None = None  # in place of the loss, where points and label texts are learnt as pairs
    guidance: Guidance | None = None  # of the label texts' vectors, in a stage of pairs
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    head: RowOptions = field(default_factory=RowOptions)
    kernel: KernelName = "torch"  # of a table that meets every label
    schedule: ScheduleName = "one-cycle"
    warm_up: float = 0.1
    clip: float = 1.0
    dtype: torch.dtype = torch.float32  # of matrix products
    seed: int = 0
    micro_batch: int = 0  # texts encoded at once, and again on the way back; 0: all of a batch, once
    frozen: bool = False  # the encoder stays as it is
    mix: MixUp | None = None  # of the encoder's vectors and their targets
    glas: Glas | None = None  # what else free rows are told
    seen: Callable[[npt.NDArray[np.int64], Tensor], None] | None = None  # is shown points and their vectors


class Hook(Protocol):
    """What happens between steps: validation, checkpoints, logs, new hard negatives."""

    def every(self, training: Training) -> int:
        """Number of steps between two calls."""
        ...

    def __call__(self, training: Training) -> bool:
        """Do it; True ends the training."""
        ...


def _go_on(training: Training) -> bool:
    return False


class Training:
    """Everything that changes while training: weights, the optimisers' state and the step."""

    def __init__(
        self,
        encoder: nn.Module,
        head: Head,
        points: Points,
        stage: Stage,
        before: int = 0,
        ranks: Ranks = ONE,
    ) -> None:
        self.encoder, self.head, self.points, self.stage = encoder, head, points, stage
        self.ranks = ranks  # each has the encoder, and of the labels those that its head is of
        # Encoded labels are made anew for each batch, and all ranks have all of those.
        self.owners: Ranks = ONE if isinstance(head, Encoded) else ranks
        self.before = before  # steps of the stages before this one
        self.device = next(encoder.parameters()).device
        encoder.requires_grad_(not stage.frozen)  # words that rows of labels are made of stay, too
        learnt = nn.ModuleList([*([] if stage.frozen else [encoder]), *head.learnt()])
        self.encoder_update = EncoderUpdate(learnt, stage.encoder, stage.clip)
        self.head_update = _head_update(head, stage, points.targets.shape[1] // ranks.world)
        self._frozen: FrozenVectors | Literal[False] | None = None  # None: to be seen
        self.step = 0
        self.steps = stage.order.steps  # of this stage; `shorten` lowers it
        self._bend: tuple[int, float] = (0, 0.0)  # step of the last `shorten`, and `way` there
        self.loss = float("nan")  # of a recent step

    @property
    def way(self) -> float:
        """Share of the schedule that is behind: straight from the bend to 1 at the last step."""
        step, share = self._bend
        return share + (1 - share) * (self.step - step) / (self.steps - step)

    @property
    def shortened(self) -> bool:
        """Return True if the stage will end before its last planned step."""
        return self.steps < self.stage.order.steps

    def shorten(self, left: int) -> None:
        """End after at most so many further steps; the schedule goes the rest of its way in these."""
        if self.step + left < self.steps:
            self._bend = (self.step, self.way)
            self.steps = self.step + left

    @property
    def all_steps(self) -> int:
        """Number of steps so far, those of earlier stages among them."""
        return self.before + self.step

    def run(self, hooks: Iterable[Hook] = (), between: Callable[[Training], bool] = _go_on) -> None:
        """Train from the present step to the end, or until a hook says stop.

        `between` is called after every step, and after the hooks where some are due; True ends the training.
        """
        hooks = list(hooks)
        # Every step draws from a seed of its own, so there is no state of a generator to keep or to spoil.
        with (
            torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []),
            self._recorded(),
        ):
            while self.step < self.steps:
                due = {id(hook): self._next(hook) for hook in hooks}
                stretch = range(self.step, min([self.steps, *due.values()]))
                for batch in self._batches(stretch):
                    self._train(batch, value=self.step + 1 == stretch.stop)
                    self.step += 1
                    if self.step < stretch.stop and between(self):
                        return
                stops = [hook(self) for hook in hooks if self.step in (due[id(hook)], self.steps)]
                if between(self) or any(stops):
                    return

    def _recorded(self) -> AbstractContextManager[None]:
        """With the encoder's layers as CUDA graphs, where a batch goes through them at once and alone."""
        parts = self.stage.frozen or self.stage.micro_batch or isinstance(self.head, Encoded)
        if parts or self.ranks.world > 1 or self.step == self.steps:
            return nullcontext()
        batch = len(self.stage.order.rows(self.step))
        return recorded(self.encoder, batch, self.steps, self.stage.dtype)

    def _next(self, hook: Hook) -> int:
        every = hook.every(self)
        return (self.step // every + 1) * every

    def _batches(self, steps: range) -> Iterator[Batch]:
        own = self.owners.share(self.points.targets.shape[1])
        return batches(self.points, self.stage.order, self.stage.labels, steps, self.device, own)

    def _train(self, batch: Batch, value: bool) -> None:
        self._draw_from(self._seed())
        factor = SCHEDULES[self.stage.schedule](self.way, self.stage.warm_up)
        for part, learns in ((self.encoder, not self.stage.frozen), (self.head, True)):
            if part.training != learns:  # a hook has been here
                part.train(learns)
        self.encoder_update.begin(batch.words)
        share = self.ranks.share(len(batch.tokens))
        parts = torch.split(batch.tokens[share], self.stage.micro_batch or share.stop - share.start)
        own = None
        x = self._known(batch) if self.stage.frozen else None
        if x is None:
            with torch.set_grad_enabled(not self.stage.frozen and len(parts) == 1):
                own = torch.cat([self._encoded(part, number) for number, part in enumerate(parts)])
            # shape: (B, dim), or with the labels' (B + C, dim)
            x = self.ranks.gather(own.detach(), len(batch.tokens))
        if self.stage.seen is not None:
            self.stage.seen(batch.rows, x[: len(batch.rows)])
        gradient, loss = self._head_step(x, batch, factor, value)
        if own is not None and not self.stage.frozen:
            self._lead_back(own, parts, gradient[share])
        self.ranks.sum_gradients(self.encoder_update.leaves)
        self.encoder_update.step(factor)
        if loss is not None:
            self.loss = float(loss)

    def _lead_back(self, own: Tensor, parts: tuple[Tensor, ...], gradient: Tensor) -> None:
        """From the gradient of this rank's vectors to the encoder's."""
        with self.ranks.name_lost_ranks():
            if own.requires_grad:
                torch.autograd.backward(own, gradient)
                return
            # What was not kept is made again, a part at a time: memory for one part does for all.
            slopes = torch.split(gradient, len(parts[0]))
            for number, part in enumerate(parts):
                torch.autograd.backward(self._encoded(part, number), slopes[number])

    def _seed(self) -> int:
        """Of what is drawn in this step: what ranks drop of their points and labels is each one's own."""
        return self.stage.seed * 1_000_003 + self.step + self.ranks.rank * 1_000_000_007

    def _draw_from(self, seed: int) -> None:
        # Of this device alone: `torch.manual_seed` asks every kind of device there may be, which takes time.
        generator = torch.default_generator
        if self.device.type == "cuda":
            generator = torch.cuda.default_generators[self.device.index or 0]
        generator.manual_seed(seed)

    def _head_step(self, x: Tensor, batch: Batch, factor: float, value: bool) -> tuple[Tensor, Tensor | None]:
        """Let the head learn from the vectors, mixed where the stage says so; the gradient of x."""
        if self.stage.mix is None:
            gradient, loss = self.head_update.step(x, batch.chunks, batch.weights, factor, value)
        else:
            mixed = self.stage.mix(len(x), self.step, self.device)
            chunks = tuple(map(mixed.chunk, batch.chunks))
            slopes, loss = self.head_update.step(mixed.vectors(x), chunks, None, factor, value)
            gradient = mixed.gradient(slopes)
        gradient = self.owners.sum_in_place(gradient, "gradient of the vectors")
        return gradient, None if loss is None else self.owners.sum_in_place(loss, "control")

    def _known(self, batch: Batch) -> Tensor | None:
        """Vectors of the batch by an encoder that stays as it is, read once and kept; None: not kept."""
        if self._frozen is None:
            met = (self.steps - self.step) * self.stage.order.batch
            self._frozen = False
            if not self.ranks.any_rank(not worth_keeping(self.points, self.head.dim, met, self.device)):
                self._frozen = FrozenVectors(
                    self.encoder, self.points, self.stage.dtype, self.device, self.ranks
                )
        return self._frozen(batch.rows) if self._frozen else None

    def _encoded(self, tokens: Tensor, number: int) -> Tensor:
        """Vectors of a part of the batch, with the same dropout whenever they are made."""
        if number or self.stage.micro_batch:
            self._draw_from(self._seed() * 4_099 + number)
        low = self.stage.dtype != torch.float32
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=low):
            found: Tensor = self.encoder(tokens)
        return found.float()

    def weights(self) -> dict[str, Tensor]:
        """Weights and buffers of encoder and head, the tensors themselves."""
        parts = (("encoder", self.encoder), ("head", self.head))
        return {f"{part}/{name}": each for part, net in parts for name, each in net.state_dict().items()}

    @torch.no_grad()
    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Take back what `weights` gave."""
        for name, tensor in self.weights().items():
            tensor.copy_(weights[name])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that a checkpoint must hold: tensors, and numbers that go into JSON."""
        tensors, numbers = self.encoder_update.state()
        flat = self.weights() | {f"encoder_update/{name}": tensor for name, tensor in tensors.items()}
        flat |= {f"head_update/{name}": tensor for name, tensor in self.head_update.tensors().items()}
        found = {"step": self.step, "before": self.before, "encoder_update": numbers}
        return flat, found | ({"shortened": [*self._bend, self.steps]} if self.shortened else {})

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        self.load_weights(tensors)
        of_encoder = {
            name.removeprefix("encoder_update/"): tensor
            for name, tensor in tensors.items()
            if name.startswith("encoder_update/")
        }
        self.encoder_update.load(of_encoder, numbers["encoder_update"])
        of_head = self.head_update.tensors()
        if not all(f"head_update/{name}" in tensors for name in of_head):
            what = "the checkpoint's rows were trained by other kernels (plain or fused) than are used here"
            raise DataError(what, remedy="resume with --head-kernel torch or triton, as it was begun")
        self.head_update.load({name: tensors[f"head_update/{name}"] for name in of_head})
        self.step = int(numbers["step"])
        if "shortened" in numbers:
            step, share, self.steps = numbers["shortened"]
            self._bend = (step, share)


def _head_update(head: Head, stage: Stage, labels: int) -> HeadUpdate:
    """Return the update of a head; `labels` are those of each rank."""
    if isinstance(head, Encoded):
        if stage.pairs is None:
            raise DataError("a head of encoded label texts learns from pairs, and the stage has no such loss")
        return PairUpdate(stage.pairs, stage.guidance)
    if isinstance(head, Composed):
        return ComposedUpdate(head, stage.head, stage.loss, stage.dtype)
    return table_update(head, stage, labels)
