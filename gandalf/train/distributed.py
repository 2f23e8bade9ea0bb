"""Several processes that train one model, by torch.distributed: what they tell one another."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from gandalf.errors import DataError
from gandalf.train.labels import share
from gandalf.train.ranks import ONE, LostRankError, Ranks

TIMEOUT = timedelta(minutes=10)  # that a rank may keep the others waiting
ANSWER = 5.0  # seconds for saying that one is still there
JOINED = 1 << 18  # numbers: smaller gradients are sent together

Value = TypeVar("Value")


class Store(Protocol):
    """The part of PyTorch's key-value store that is used here."""

    def set(self, key: str, value: str) -> None:
        """Write."""
        ...

    def add(self, key: str, amount: int) -> int:
        """Count, and tell how many there are."""
        ...

    def check(self, keys: list[str]) -> bool:
        """Whether somebody has written these."""
        ...


class Several:
    """One of several processes, which `joined` has made known to one another."""

    def __init__(self, store: Store, rank: int, world: int, here: int = 1) -> None:
        self.rank, self.world, self.here = rank, world, here
        self.sent: Counter[str] = Counter()
        self._store = store
        self._left = threading.Event()
        self._answering = threading.Thread(target=self._answer, daemon=True)

    def meet(self, device: str) -> None:
        """By gloo between CPUs; between GPUs by NCCL, and by gloo what stays on the host."""
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        gpu = device != "cpu" and torch.cuda.is_available()
        if gpu:
            _take_gpu(self.here, self.rank % self.here)
        store = PrefixStore("ranks", self._store)  # type: ignore[arg-type]
        backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
        dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=TIMEOUT)
        self._answering.start()

    def leave(self) -> None:
        """Close the lines."""
        self._left.set()
        if self._answering.is_alive():
            self._answering.join(ANSWER)  # a thread that asks the store when Python ends would end it badly
        if dist.is_initialized():
            dist.destroy_process_group()

    def share(self, total: int) -> slice:
        """Its part: all parts are as large as the others, or larger by one."""
        return share(total, self.rank, self.world)

    def gathered(self, own: Tensor, total: int) -> Tensor:
        """Rows of all ranks."""
        most = -(-total // self.world)
        padded = own.new_zeros(most, *own.shape[1:])  # the operation wants parts of one size
        padded[: len(own)] = own
        found = own.new_empty(self.world * most, *own.shape[1:])
        self._counted("vectors", padded)
        with self.guarded():
            dist.all_gather(list(torch.split(found, most)), padded)
        parts = zip(
            torch.split(found, most),
            (share(total, rank, self.world) for rank in range(self.world)),
            strict=True,
        )
        return torch.cat([part[: own.stop - own.start] for part, own in parts])

    def summed(self, tensor: Tensor, what: str) -> Tensor:
        """The sum over ranks, in the tensor's place."""
        self._counted(what, tensor)
        with self.guarded():
            dist.all_reduce(tensor)
        return tensor

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, through which a gradient finds its way back."""
        from torch.distributed.nn.functional import all_reduce  # the plain one has no gradient

        self._counted("batch normalisation", tensor)
        with self.guarded():
            found: Tensor = all_reduce(tensor)  # type: ignore[no-untyped-call]
        return found

    def sum_gradients(self, leaves: Sequence[Tensor]) -> None:
        """Small ones together, since each message has its price."""
        there = torch.tensor([leaf.grad is not None for leaf in leaves], dtype=torch.int32)
        if not len(leaves):
            return
        learnt = [
            leaf for leaf, met in zip(leaves, self.summed(there, "control").tolist(), strict=True) if met
        ]
        gradients = []
        for leaf in learnt:
            leaf.grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.contiguous()
            gradients.append(leaf.grad)
        small = [each for each in gradients if each.numel() < JOINED]
        for large in (each for each in gradients if each.numel() >= JOINED):
            self.summed(large, "gradient of the encoder")
        if small:
            joined = self.summed(torch.cat([each.flatten() for each in small]), "gradient of the encoder")
            for each, found in zip(small, torch.split(joined, [each.numel() for each in small]), strict=True):
                each.copy_(found.view_as(each))

    def any(self, flag: bool) -> bool:
        """Whether it is so for any rank."""
        return bool(self.summed(torch.tensor([flag], dtype=torch.int32), "control"))

    def first(self, work: Callable[[], Value]) -> Value:
        """What the first rank finds, or what stopped it."""
        found: list[Any] = [None, None]
        if self.rank == 0:
            try:
                found[0] = work()
            except DataError as error:
                found[1] = error.problem
        with self.guarded():
            dist.broadcast_object_list(found, src=0, device=torch.device("cpu"))
        if found[1] is not None:
            problem = found[1]
            raise DataError(
                problem.what, remedy=problem.remedy, file=problem.file, line=problem.line, kind=problem.kind
            )
        value: Value = found[0]
        return value

    def everyone(self, value: Value) -> list[Value]:
        """The values of all ranks, in their order."""
        found: list[Any] = [None] * self.world
        with self.guarded():
            dist.all_gather_object(found, value)
        return found

    def alike(self, tensors: Sequence[Tensor]) -> None:
        """Give all ranks the first one's numbers."""
        with self.guarded():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def collected(self, own: Tensor, total: int) -> Tensor:
        """Rows of all ranks, on the first one's host."""
        own = own.detach().cpu().contiguous()
        if self.rank:
            self._counted("rows at the end", own)
            with self.guarded():
                dist.send(own, dst=0)
            return own
        found = own.new_empty(total, *own.shape[1:])
        found[: len(own)] = own
        for rank in range(1, self.world):
            with self.guarded():
                dist.recv(found[share(total, rank, self.world)], src=rank)
        return found

    def say(self, sentence: str) -> None:
        """By the first of the ranks that have this to say; the others hear that it was said."""
        with suppress(RuntimeError):  # the store went with whoever kept it: better twice than never
            if self._store.add(f"said/{sentence}", 1) > 1:
                return
        (sys.__stderr__ or sys.stderr).write(f"{sentence}\n")

    def _counted(self, what: str, tensor: Tensor) -> None:
        self.sent[what] += tensor.numel() * tensor.element_size()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Find out who is gone when a message does not go through."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            lost = self._silent()
            if not lost:
                raise
            raise LostRankError(_who(lost, self.world)) from error

    def _silent(self) -> list[int]:
        """The ranks that do not answer; the one that keeps the store, where nobody can be asked."""
        end, missing = time.monotonic() + ANSWER, list(range(self.world))
        try:
            self._store.set("roll call", "now")
            while missing and time.monotonic() < end and not self._store.check(["called"]):
                missing = [rank for rank in missing if not self._store.check([f"alive/{rank}"])]
                time.sleep(0.05 if missing else 0)
            self._store.set("called", "yes")  # whoever hears of it later need not wait for those again
            return [rank for rank in missing if not self._store.check([f"alive/{rank}"])]
        except RuntimeError:
            return [0]

    def _answer(self) -> None:
        """Say that one is there when the roll is called, whatever one is about."""
        with suppress(RuntimeError):  # the store is gone, and so is who asks
            while not self._left.wait(0.5):
                if self._store.check(["roll call"]):
                    self._store.set(f"alive/{self.rank}", "yes")
                    return


@contextmanager
def joined(environment: Mapping[str, str] = os.environ) -> Iterator[Ranks]:
    """The ranks that torchrun has started, for the body; where there is but one, a process alone."""
    if int(environment.get("WORLD_SIZE", "1")) < 2:
        yield ONE
        return
    from torch.distributed import rendezvous  # type: ignore[attr-defined]

    store, rank, world = next(iter(rendezvous("env://", timeout=TIMEOUT)))
    ranks = Several(store, rank, world, int(environment.get("LOCAL_WORLD_SIZE", "1")))
    try:
        yield ranks
    finally:
        ranks.leave()


def _take_gpu(here: int, place: int) -> None:
    """A GPU for each rank of this machine."""
    there = torch.cuda.device_count()
    if here > there:
        what = f"{here} ranks on this machine need a GPU each, and there are {there}"
        remedy = f"start {there} with --nproc-per-node {there}, or use --device cpu"
        raise DataError(what, remedy=remedy if there else "use --device cpu")
    torch.cuda.set_device(place)


def _who(lost: Sequence[int], world: int) -> str:
    names = " and ".join(map(str, lost))
    return f"rank {names} of {world} was lost" if len(lost) == 1 else f"ranks {names} of {world} were lost"
