"""Train an encoder and a head: the one training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gandalf.errors import DataError
from gandalf.nets.heads import Composed, Encoded, Head
from gandalf.train.batches import Batch, Points, batches
from gandalf.train.encoder_update import EncoderUpdate
from gandalf.train.encoding import BatchEncoder, Encode, StoredVectors, is_worth_storing, seed_generator
from gandalf.train.head_update import ComposedUpdate, HeadUpdate, PairUpdate
from gandalf.train.kernels.choice import table_update
from gandalf.train.kernels.cuda_graphs import recorded
from gandalf.train.parallel.ranks import ONE, Ranks
from gandalf.train.schedules import SCHEDULES
from gandalf.train.stage import Stage


class Hook(Protocol):
    """Work between steps: validation, checkpoints, logs, new hard negatives."""

    def every(self, training: Training) -> int:
        """Return the number of steps between two calls."""
        ...

    def __call__(self, training: Training) -> bool:
        """Do the work; return True to end the training."""
        ...


@dataclass(frozen=True)
class Periodic:
    """Hook that calls an action every so many steps, and never ends the training."""

    steps: int
    action: Callable[[Training], None]

    def every(self, training: Training) -> int:
        """Return the number of steps between two calls."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Call the action."""
        self.action(training)
        return False


def _go_on(training: Training) -> bool:
    return False


class Training:
    """Everything that changes during a stage: weights, the optimisers' state and the step."""

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
        self.ranks = ranks  # each has the whole encoder and one shard of the labels
        # Every rank encodes all labels of a batch, so these are not cut into shards.
        self.label_ranks: Ranks = ONE if isinstance(head, Encoded) else ranks
        self.before = before  # steps of the stages before this one
        self.device = next(encoder.parameters()).device
        encoder.requires_grad_(not stage.frozen)  # also freezes words that rows of labels share
        learnt = nn.ModuleList([*([] if stage.frozen else [encoder]), *head.learnt()])
        self.encoder_update = EncoderUpdate(learnt, stage.encoder, stage.clip)
        self.head_update = _make_head_update(head, stage, points.targets.shape[1] // ranks.world)
        self.step = 0
        self.steps = stage.order.steps  # of this stage; `shorten` lowers it
        self._shortened_at: tuple[int, float] = (0, 0.0)  # step of the last `shorten`, and `progress` there
        self.loss = float("nan")  # of a recent step

    def run(self, hooks: Iterable[Hook] = (), between: Callable[[Training], bool] = _go_on) -> None:
        """Train from the present step to the end, or until a hook or `between` returns True.

        `between` is called after every step, and after the hooks of the step.
        """
        hooks = list(hooks)
        cuda = [self.device] if self.device.type == "cuda" else []
        # Every step is seeded by itself, so the generator's state need not be kept.
        with torch.random.fork_rng(devices=cuda), self._recorded():
            while self.step < self.steps:
                due = {id(hook): self._next_call(hook) for hook in hooks}
                stretch = range(self.step, min([self.steps, *due.values()]))
                for batch in self._batches(stretch):
                    self._train_batch(batch, with_loss=self.step + 1 == stretch.stop)
                    self.step += 1
                    if self.step < stretch.stop and between(self):
                        return
                stops = [hook(self) for hook in hooks if self.step in (due[id(hook)], self.steps)]
                if between(self) or any(stops):
                    return

    def _next_call(self, hook: Hook) -> int:
        every = hook.every(self)
        return (self.step // every + 1) * every

    def _batches(self, steps: range) -> Iterator[Batch]:
        shard = self.label_ranks.share(self.points.targets.shape[1])
        return batches(self.points, self.stage.order, self.stage.labels, steps, self.device, shard)

    def _train_batch(self, batch: Batch, with_loss: bool) -> None:
        """Take one step: encode the batch, move the head, lead the gradient back, move the encoder."""
        seed = self._step_seed()
        seed_generator(self.device, seed)
        factor = SCHEDULES[self.stage.schedule](self.progress, self.stage.warm_up)
        self._set_modes()
        self.encoder_update.begin(batch.words)
        x, lead_back = self._encode(batch, seed)  # shape: (B, dim), or with encoded labels (B + C, dim)
        if self.stage.seen is not None:
            self.stage.seen(batch.rows, x[: len(batch.rows)])
        gradient, loss = self._update_head(x, batch, factor, with_loss)
        lead_back(gradient)
        self.ranks.sum_gradients(self.encoder_update.leaves)
        self.encoder_update.step(factor)
        if loss is not None:
            self.loss = float(loss)

    def _step_seed(self) -> int:
        """Return the seed of this step; it differs between ranks."""
        return self.stage.seed * 1_000_003 + self.step + self.ranks.rank * 1_000_000_007

    def _set_modes(self) -> None:
        """Set encoder and head to training or evaluation, in case a hook changed them."""
        for part, learns in ((self.encoder, not self.stage.frozen), (self.head, True)):
            if part.training != learns:
                part.train(learns)

    @cached_property
    def _encode(self) -> Encode:
        """Encode batches anew, or store all vectors first; chosen at the first batch, by the steps left."""
        encoder = BatchEncoder(self.encoder, self.stage, self.device, self.ranks)
        if not self.stage.frozen:
            return encoder
        met = (self.steps - self.step) * self.stage.order.batch
        fits = is_worth_storing(self.points, self.head.dim, met, self.device)
        return encoder if self.ranks.any_rank(not fits) else StoredVectors(encoder, self.points)

    def _update_head(
        self, x: Tensor, batch: Batch, factor: float, with_loss: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Let the head learn from the vectors, or their mixture; return their gradient and the loss."""
        if self.stage.mix is None:
            gradient, loss = self.head_update.step(x, batch.chunks, batch.weights, factor, with_loss)
        else:
            mixed = self.stage.mix(len(x), self.step, self.device)
            chunks = tuple(map(mixed.chunk, batch.chunks))
            of_mixed, loss = self.head_update.step(mixed.vectors(x), chunks, None, factor, with_loss)
            gradient = mixed.gradient(of_mixed)
        gradient = self.label_ranks.sum_in_place(gradient, "gradient of the vectors")
        return gradient, None if loss is None else self.label_ranks.sum_in_place(loss, "control")

    def _recorded(self) -> AbstractContextManager[None]:
        """Record the encoder's layers as CUDA graphs, if one rank encodes whole batches of points."""
        in_parts = self.stage.frozen or self.stage.micro_batch or isinstance(self.head, Encoded)
        if in_parts or self.ranks.world > 1 or self.step == self.steps:
            return nullcontext()
        batch = len(self.stage.order.rows(self.step))
        return recorded(self.encoder, batch, self.steps, self.stage.dtype)

    @property
    def progress(self) -> float:
        """Share of the schedule that is done: linear from the last `shorten` to 1 at the last step."""
        step, share = self._shortened_at
        return share + (1 - share) * (self.step - step) / (self.steps - step)

    @property
    def shortened(self) -> bool:
        """True if the stage will end before its last planned step."""
        return self.steps < self.stage.order.steps

    def shorten(self, left: int) -> None:
        """End after at most `left` further steps, and finish the schedule in these steps."""
        if self.step + left < self.steps:
            self._shortened_at = (self.step, self.progress)
            self.steps = self.step + left

    @property
    def all_steps(self) -> int:
        """Number of steps so far, including earlier stages."""
        return self.before + self.step

    def weights(self) -> dict[str, Tensor]:
        """Return weights and buffers of encoder and head, not copies."""
        return _prefixed("encoder", self.encoder.state_dict()) | _prefixed("head", self.head.state_dict())

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load what `weights` returned."""
        for name, tensor in self.weights().items():
            tensor.copy_(weights[name])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything that a checkpoint holds: tensors, and numbers for JSON."""
        of_encoder, numbers = self.encoder_update.state()
        tensors = self.weights() | _prefixed("encoder_update", of_encoder)
        tensors |= _prefixed("head_update", self.head_update.tensors())
        facts = {"step": self.step, "before": self.before, "encoder_update": numbers}
        return tensors, facts | ({"shortened": [*self._shortened_at, self.steps]} if self.shortened else {})

    def load(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Load what `state` returned."""
        of_head = _without_prefix("head_update", tensors)
        if not self.head_update.tensors().keys() <= of_head.keys():
            what = "the checkpoint's rows were trained by other kernels (plain or fused) than are used here"
            raise DataError(what, remedy="resume with --head-kernel torch or triton, as it was begun")
        self.load_weights(tensors)
        self.encoder_update.load(_without_prefix("encoder_update", tensors), facts["encoder_update"])
        self.head_update.load(of_head)
        self.step = int(facts["step"])
        if "shortened" in facts:
            step, share, self.steps = facts["shortened"]
            self._shortened_at = (step, share)


def _make_head_update(head: Head, stage: Stage, labels: int) -> HeadUpdate:
    """Return the update of a head; `labels` is the number of labels divided by that of ranks."""
    if isinstance(head, Encoded):
        if stage.pairs is None:
            raise DataError("a head of encoded label texts learns from pairs, and the stage has no such loss")
        return PairUpdate(stage.pairs, stage.guidance)
    if isinstance(head, Composed):
        return ComposedUpdate(head, stage.head, stage.loss, stage.dtype)
    return table_update(head, stage, labels)


def _prefixed(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{part}/{name}": tensor for name, tensor in tensors.items()}


def _without_prefix(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a part under their names in it."""
    start = f"{part}/"
    return {name.removeprefix(start): each for name, each in tensors.items() if name.startswith(start)}
