"""Connect several ranks by torch.distributed."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from gandalf.errors import DataError
from gandalf.train.parallel.ranks import ONE, LostRankError, Ranks, share

TIMEOUT = timedelta(minutes=10)  # longest wait for another rank
ANSWER = 5.0  # seconds that a rank has to answer the roll call
LEAVING = 60.0  # seconds that the answering thread has to end, on a busy machine
JOINED = 1 << 18  # numbers; smaller gradients travel in one message

Value = TypeVar("Value")


class Store(Protocol):
    """Part of PyTorch's key-value store that `Several` uses."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""
        ...

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return its value."""
        ...

    def check(self, keys: list[str]) -> bool:
        """Return True if all keys have been written."""
        ...


class Several(Ranks):
    """One of several ranks, made by `joined`."""

    def __init__(self, store: Store, rank: int, world: int, local_world: int = 1) -> None:
        super().__init__()
        self.rank, self.world, self.local_world = rank, world, local_world
        self._store = store
        self._left = threading.Event()
        self._answering = threading.Thread(target=self._answer_roll_call, daemon=True)

    def connect(self, device: str) -> None:
        """Connect by gloo between CPUs and by NCCL between GPUs."""
        # Before there is a group: the defaults of these functions would keep the group and its threads.
        import torch.distributed.nn.functional
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        gpu = device != "cpu" and torch.cuda.is_available()
        if gpu:
            _take_gpu(self.local_world, self.rank % self.local_world)
        store = PrefixStore("ranks", self._store)  # type: ignore[arg-type]
        backend = "cpu:gloo,cuda:nccl" if gpu else "gloo"
        dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=TIMEOUT)
        self._answering.start()

    def leave(self, error: BaseException | None = None) -> None:
        """Close the connection and end its threads; `error` is the exception that ends the body, if any.

        A thread that frees a tensor or asks the store while Python exits would abort the process (signal 6).
        The last reference to the group joins gloo's threads. Frames of an exception may hold a reference.
        """
        self._left.set()
        if self._answering.is_alive():
            self._answering.join(LEAVING)
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__
        if dist.is_initialized():
            dist.destroy_process_group()

    def gather(self, own: Tensor, total: int) -> Tensor:
        """Return the rows of all ranks."""
        most = -(-total // self.world)
        padded = own.new_zeros(most, *own.shape[1:])  # all_gather wants parts of equal size
        padded[: len(own)] = own
        found = own.new_empty(self.world * most, *own.shape[1:])
        self._count_sent("vectors", padded)
        with self.name_lost_ranks():
            dist.all_gather(list(torch.split(found, most)), padded)
        parts = zip(
            torch.split(found, most),
            (share(total, rank, self.world) for rank in range(self.world)),
            strict=True,
        )
        return torch.cat([part[: own.stop - own.start] for part, own in parts])

    def sum_in_place(self, tensor: Tensor, what: str) -> Tensor:
        """Replace the tensor by its sum over ranks."""
        self._count_sent(what, tensor)
        with self.name_lost_ranks():
            dist.all_reduce(tensor)
        return tensor

    def differentiable_sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over ranks, with a gradient."""
        from torch.distributed.nn.functional import all_reduce  # torch.distributed.all_reduce has no gradient

        self._count_sent("batch normalisation", tensor)
        with self.name_lost_ranks():
            found: Tensor = all_reduce(tensor)  # type: ignore[no-untyped-call]
        return found

    def sum_gradients(self, leaves: Sequence[Tensor]) -> None:
        """Sum gradients over ranks, small ones in one message."""
        has_gradient = torch.tensor([leaf.grad is not None for leaf in leaves], dtype=torch.int32)
        if not len(leaves):
            return
        counts = self.sum_in_place(has_gradient, "control").tolist()
        learnt = [leaf for leaf, ranks in zip(leaves, counts, strict=True) if ranks]
        gradients = []
        for leaf in learnt:
            leaf.grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.contiguous()
            gradients.append(leaf.grad)
        small = [each for each in gradients if each.numel() < JOINED]
        for large in (each for each in gradients if each.numel() >= JOINED):
            self.sum_in_place(large, "gradient of the encoder")
        if small:
            flat = torch.cat([each.flatten() for each in small])
            joined = self.sum_in_place(flat, "gradient of the encoder")
            for each, total in zip(small, torch.split(joined, [each.numel() for each in small]), strict=True):
                each.copy_(total.view_as(each))

    def any_rank(self, flag: bool) -> bool:
        """Return True if the flag is set on any rank."""
        return bool(self.sum_in_place(torch.tensor([flag], dtype=torch.int32), "control"))

    def on_first(self, work: Callable[[], Value]) -> Value:
        """Call `work` on rank 0; return its value, or raise its `DataError`, on every rank."""
        found: list[Any] = [None, None]
        if self.rank == 0:
            try:
                found[0] = work()
            except DataError as error:
                found[1] = error.problem
        with self.name_lost_ranks():
            dist.broadcast_object_list(found, src=0, device=torch.device("cpu"))
        if found[1] is not None:
            problem = found[1]
            raise DataError(
                problem.what, remedy=problem.remedy, file=problem.file, line=problem.line, kind=problem.kind
            )
        value: Value = found[0]
        return value

    def values_of_all(self, value: Value) -> list[Value]:
        """Return the values of all ranks, in rank order."""
        found: list[Any] = [None] * self.world
        with self.name_lost_ranks():
            dist.all_gather_object(found, value)
        return found

    def synchronise(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite the tensors by those of rank 0."""
        with self.name_lost_ranks():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def gather_on_first(self, own: Tensor, total: int) -> Tensor:
        """Return the rows of all ranks on rank 0's host; other ranks return their own."""
        own = own.detach().cpu().contiguous()
        if self.rank:
            self._count_sent("rows at the end", own)
            with self.name_lost_ranks():
                dist.send(own, dst=0)
            return own
        found = own.new_empty(total, *own.shape[1:])
        found[: len(own)] = own
        for rank in range(1, self.world):
            with self.name_lost_ranks():
                dist.recv(found[share(total, rank, self.world)], src=rank)
        return found

    def say_once(self, sentence: str) -> None:
        """Write the sentence to stderr unless another rank has."""
        with suppress(RuntimeError):  # the rank that keeps the store is gone: better twice than never
            if self._store.add(f"said/{sentence}", 1) > 1:
                return
        (sys.__stderr__ or sys.stderr).write(f"{sentence}\n")

    def _count_sent(self, what: str, tensor: Tensor) -> None:
        self.sent[what] += tensor.numel() * tensor.element_size()

    @contextmanager
    def name_lost_ranks(self) -> Iterator[None]:
        """Turn a failed message into a `LostRankError` that names the lost ranks."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            lost = self._silent_ranks()
            if not lost:
                raise
            raise LostRankError(_name_lost(lost, self.world)) from error

    def _silent_ranks(self) -> list[int]:
        """Return the ranks that do not answer; rank 0, which keeps the store, if the store is gone."""
        end, missing = time.monotonic() + ANSWER, list(range(self.world))
        try:
            self._store.set("roll call", "now")
            while missing and time.monotonic() < end and not self._store.check(["called"]):
                missing = [rank for rank in missing if not self._store.check([f"alive/{rank}"])]
                time.sleep(0.05 if missing else 0)
            self._store.set("called", "yes")  # later callers need not wait again
            return [rank for rank in missing if not self._store.check([f"alive/{rank}"])]
        except RuntimeError:
            return [0]

    def _answer_roll_call(self) -> None:
        """Answer the roll call, from a thread of its own."""
        with suppress(RuntimeError):  # the store is gone, and with it the rank that asks
            while not self._left.wait(0.5):
                if self._store.check(["roll call"]):
                    self._store.set(f"alive/{self.rank}", "yes")
                    return


@contextmanager
def joined(environment: Mapping[str, str] = os.environ) -> Iterator[Ranks]:
    """Give the body the ranks that torchrun started, or `ONE` without torchrun."""
    if int(environment.get("WORLD_SIZE", "1")) < 2:
        yield ONE
        return
    from torch.distributed import rendezvous  # type: ignore[attr-defined]

    store, rank, world = next(iter(rendezvous("env://", timeout=TIMEOUT)))
    ranks = Several(store, rank, world, int(environment.get("LOCAL_WORLD_SIZE", "1")))
    try:
        yield ranks
    except BaseException as error:
        ranks.leave(error)
        raise
    ranks.leave()


def _take_gpu(local_world: int, place: int) -> None:
    """Take this rank's own GPU."""
    gpus = torch.cuda.device_count()
    if local_world > gpus:
        what = f"{local_world} ranks on this machine need a GPU each, and there are {gpus}"
        remedy = f"start {gpus} with --nproc-per-node {gpus}, or use --device cpu"
        raise DataError(what, remedy=remedy if gpus else "use --device cpu")
    torch.cuda.set_device(place)


def _name_lost(lost: Sequence[int], world: int) -> str:
    names = " and ".join(map(str, lost))
    return f"rank {names} of {world} was lost" if len(lost) == 1 else f"ranks {names} of {world} were lost"
