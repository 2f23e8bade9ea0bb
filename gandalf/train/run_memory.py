"""What a training run takes of memory, what there is of it, and what to change when it is not enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gandalf.errors import DataError
from gandalf.train.machine_memory import available_bytes, said

SPARE_SHARE, SPARE_BYTES = 0.1, 256 << 20  # for what no plan counts: threads, buffers of kernels, gaps
SMALLEST_BLOCK = 256  # smaller blocks leave a processor waiting; a smaller batch serves better
SCORE_COPIES = 2  # scores, and softplus of them where the loss is told
ROW_COPIES = 2  # gradient of a block's rows, and the rows at low precision


@dataclass(frozen=True)
class RunShape:
    """The numbers that decide how much memory a training run takes."""

    labels: int
    dim: int
    batch: int
    block: int  # labels met at once
    micro_batch: int = 0  # points encoded at once; 0: all of the batch
    encoder_parameters: int = 0
    activations: int = 0  # values for each point that the encoder keeps for the way back
    states: int = 2  # values the optimiser keeps for each parameter: 2 for AdamW, 1 for SGD with momentum
    bytes_per_value: int = 4
    bytes_per_row_value: int = 4  # of the labels' rows
    bytes_per_row_state: int = 4  # of what the optimiser keeps for them
    row_values: int = (
        0  # for each label of a block that its row keeps for the way back, where it is made of text
    )
    shortlist: bool = False  # the block is what the batch's shortlist makes it, and cannot be set


# What to write for a number that fits.
_WRITTEN = {"block": "--set labels.block={}", "batch": "--batch {}"}


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of a training run, by what they are for."""

    parameters: int
    optimiser: int
    scores: int  # of a batch against one block of labels, and what goes with the block
    activations: int  # of the encoder, and its gradients
    model: int  # all that is left in the end, at full precision

    @property
    def total(self) -> int:
        """The most that is needed at once."""
        return max(self._training, self.model)

    @property
    def _training(self) -> int:
        return self.parameters + self.optimiser + self.scores + self.activations

    def __str__(self) -> str:
        end = f"; then the model takes {said(self.model)}" if self.model > self._training else ""
        return (
            f"training takes about {said(self._training)}: {said(self.parameters)} of parameters, "
            f"{said(self.optimiser)} of optimiser state, {said(self.scores)} for a block of scores "
            f"and {said(self.activations)} of activations{end}"
        )


def memory_plan(shape: RunShape) -> MemoryPlan:
    """The bytes that a run of this shape takes at its peak."""
    size, block = shape.bytes_per_value, min(shape.block, shape.labels)
    others = size * (shape.labels + shape.encoder_parameters)  # biases, and the encoder
    row_values = shape.labels * shape.dim
    encoded = min(shape.micro_batch or shape.batch, shape.batch)
    vectors = shape.batch * 2 * shape.dim  # the encoder's output and its gradient, whatever it is
    return MemoryPlan(
        parameters=row_values * shape.bytes_per_row_value + others,
        optimiser=(row_values * shape.bytes_per_row_state + others) * shape.states,
        scores=size * block * (SCORE_COPIES * shape.batch + ROW_COPIES * shape.dim + shape.row_values),
        activations=size * (encoded * shape.activations + vectors + shape.encoder_parameters),
        model=row_values * size + others,
    )


def saved_values(encoder: nn.Module, ids: Tensor) -> int:
    """Values for each of these points that the encoder keeps for the way back: a plan's `activations`."""
    own = {_storage(tensor) for tensor in (*encoder.parameters(), *encoder.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not tensor.is_sparse and _storage(tensor) not in own:
            kept[_storage(tensor)] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = encoder(ids)  # held until all is counted, lest memory be used twice
    del output
    return -(-sum(kept.values()) // max(len(ids), 1))


def _storage(tensor: Tensor) -> int:
    """What tells one piece of memory from another, also where there are only shapes."""
    return int(tensor.untyped_storage()._cdata)


def fitting(shape: RunShape, available: int) -> RunShape | None:
    """The shape with the largest block, or else the largest batch, that fits; None if none does."""
    if fits_well(shape, available):
        return shape
    block = min(shape.block, shape.labels)
    least = block if shape.shortlist else min(SMALLEST_BLOCK, block)
    smaller = _largest(block, lambda size: fits_well(replace(shape, block=size), available))
    if smaller >= least:
        return replace(shape, block=smaller)
    shape = replace(shape, block=least)
    batch = _largest(shape.batch, lambda size: fits_well(replace(shape, batch=size), available))
    return replace(shape, batch=batch) if batch else None


@contextmanager
def out_of_memory(shape: RunShape, device: torch.device | str = "cpu", held: int = 0) -> Iterator[None]:
    """Answer a lack of memory in the body with the block or batch size that would fit.

    `held` is how much of the plan lies in memory already as the body begins: the parameters, say.
    """
    before = available_bytes(device)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_lack_of_memory(error):
            raise
        raise _answer(shape, device, None if before is None else before + held) from error


def require_memory(
    shape: RunShape, device: torch.device | str = "cpu", held: int = 0, ranks: int = 1
) -> None:
    """Refuse a run that cannot fit before it starts: on many machines a lack of memory only kills.

    `ranks` of this shape share the machine; a GPU is a rank's own.
    """
    available = own_bytes(device, ranks)
    if available is not None and memory_plan(shape).total > available + held:
        raise _answer(shape, device, available + held)


def own_bytes(device: torch.device | str, ranks: int) -> int | None:
    """What one of so many ranks of this machine can still take; None where nothing tells."""
    available = available_bytes(device)
    if available is not None and torch.device(device).type == "cpu":
        available //= ranks
    return available


def _answer(shape: RunShape, device: torch.device | str, available: int | None) -> DataError:
    there = "" if available is None else f", and {said(available)} are free"
    what = f"the memory of the device '{device}' is not enough: {memory_plan(shape)}{there}"
    return DataError(what, remedy=_remedy(shape, available), kind="out-of-memory")


def _remedy(shape: RunShape, available: int | None) -> str:
    block = min(shape.block, shape.labels)
    shape = replace(shape, block=block)
    if available is None or fits_well(shape, available):
        # The plan knows no better: something else takes the memory. Half as much is a fair try.
        halved = block > SMALLEST_BLOCK and not shape.shortlist
        advised = replace(shape, block=block // 2) if halved else None
        advised = advised or (replace(shape, batch=shape.batch // 2) if shape.batch > 1 else None)
    else:
        advised = fitting(shape, available)
    if advised is None:
        fixed = memory_plan(replace(shape, batch=1, block=1)).total
        return (
            f"no batch is small enough: {said(_with_spare(fixed))} must be free, "
            "or the dimension, the vocabulary or the optimiser's state smaller"
        )
    changes = {name: getattr(advised, name) for name in ("block", "batch")}
    return "use " + " and ".join(
        _WRITTEN[name].format(value) for name, value in changes.items() if value != getattr(shape, name)
    )


def _with_spare(size: int) -> int:
    return int(size * (1 + SPARE_SHARE)) + SPARE_BYTES


def fits_well(shape: RunShape, available: int) -> bool:
    """Whether a run of this shape fits, with some memory to spare."""
    return _with_spare(memory_plan(shape).total) <= available


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest size that fits, cut to two digits that can be remembered; 0 if none does."""
    low, high = 0, most + 1  # what fits, or nothing at all; what does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    digits: int = 10 ** max(len(str(low)) - 2, 0)
    return low if low == most else low // digits * digits


def _is_lack_of_memory(error: BaseException) -> bool:
    # Only CUDA has an error of its own for it; elsewhere it is told by what the allocator says.
    signs = ("can't allocate memory", "not enough memory", "bad_alloc", "out of memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        sign in str(error) for sign in signs
    )
