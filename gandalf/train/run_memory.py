"""Plan the memory of a training run, and advise smaller sizes if it is not enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gandalf.errors import DataError
from gandalf.train.machine_memory import available_bytes, format_bytes

SPARE_SHARE, SPARE_BYTES = 0.1, 256 << 20  # for threads, buffers of kernels and gaps, which no plan counts
SMALLEST_BLOCK = 256  # smaller blocks leave a processor idle; then a smaller batch is better
SCORE_COPIES = 2  # scores, and their softplus if the loss is computed
ROW_COPIES = 2  # gradient of a block's rows, and the rows at low precision


@dataclass(frozen=True)
class RunShape:
    """The numbers that decide how much memory a training run takes."""

    labels: int
    dim: int
    batch: int
    block: int  # labels scored at once
    micro_batch: int = 0  # texts encoded at once; 0: the whole batch
    encoder_parameters: int = 0
    activations: int = 0  # values of each point that the encoder stores for the backward pass
    states: int = 2  # values of the optimiser for each parameter: 2 for AdamW, 1 for SGD with momentum
    bytes_per_value: int = 4
    bytes_per_row_value: int = 4  # of rows
    bytes_per_row_state: int = 4  # of the optimiser's state for rows
    row_values: int = 0  # values of each label of a block that rows made of text store for the backward pass
    shortlist: bool = False  # the block is the shortlist of the batch and cannot be set


# Settings that a remedy names.
_SETTINGS = {"block": "--set labels.block={}", "batch": "--batch {}"}


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of a training run, by their use."""

    parameters: int
    optimiser: int
    scores: int  # of a batch and one block of labels, with the gradients of the block
    activations: int  # of the encoder, with its gradients
    model: int  # of the trained model, at full precision

    @property
    def total(self) -> int:
        """The most bytes needed at once."""
        return max(self._training, self.model)

    @property
    def _training(self) -> int:
        return self.parameters + self.optimiser + self.scores + self.activations

    def __str__(self) -> str:
        end = f"; then the model takes {format_bytes(self.model)}" if self.model > self._training else ""
        parts = (self._training, self.parameters, self.optimiser, self.scores, self.activations)
        total, parameters, optimiser, scores, activations = map(format_bytes, parts)
        return (
            f"training takes about {total}: {parameters} of parameters, {optimiser} of optimiser state, "
            f"{scores} for a block of scores and {activations} of activations{end}"
        )


def memory_plan(shape: RunShape) -> MemoryPlan:
    """Return the bytes that a run of this shape needs at its peak."""
    size, block = shape.bytes_per_value, min(shape.block, shape.labels)
    others = size * (shape.labels + shape.encoder_parameters)  # biases, and the encoder
    row_values = shape.labels * shape.dim
    encoded = min(shape.micro_batch or shape.batch, shape.batch)
    vectors = shape.batch * 2 * shape.dim  # the encoder's output and its gradient
    return MemoryPlan(
        parameters=row_values * shape.bytes_per_row_value + others,
        optimiser=(row_values * shape.bytes_per_row_state + others) * shape.states,
        scores=size * block * (SCORE_COPIES * shape.batch + ROW_COPIES * shape.dim + shape.row_values),
        activations=size * (encoded * shape.activations + vectors + shape.encoder_parameters),
        model=row_values * size + others,
    )


def activation_values(encoder: nn.Module, ids: Tensor) -> int:
    """Count the values per point that the encoder stores for the backward pass: `activations` of a shape."""
    weights = {_storage(tensor) for tensor in (*encoder.parameters(), *encoder.buffers())}
    stored: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not tensor.is_sparse and _storage(tensor) not in weights:
            stored[_storage(tensor)] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = encoder(ids)  # kept until everything is counted, so that no memory is reused
    del output
    return -(-sum(stored.values()) // max(len(ids), 1))


def _storage(tensor: Tensor) -> int:
    """Return a number that identifies a tensor's memory, also on the meta device."""
    return int(tensor.untyped_storage()._cdata)


def largest_fitting(shape: RunShape, available: int) -> RunShape | None:
    """Return the shape with the largest block, or else the largest batch, that fits; None if none fits."""
    if fits(shape, available):
        return shape
    block = min(shape.block, shape.labels)
    least = block if shape.shortlist else min(SMALLEST_BLOCK, block)
    smaller = _largest(block, lambda size: fits(replace(shape, block=size), available))
    if smaller >= least:
        return replace(shape, block=smaller)
    shape = replace(shape, block=least)
    batch = _largest(shape.batch, lambda size: fits(replace(shape, batch=size), available))
    return replace(shape, batch=batch) if batch else None


@contextmanager
def out_of_memory(shape: RunShape, device: torch.device | str = "cpu", held: int = 0) -> Iterator[None]:
    """Turn a lack of memory in the body into a `DataError` with the block or batch size that would fit.

    `held` counts bytes of the plan, such as parameters, that are allocated before the body.
    """
    before = available_bytes(device)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_lack_of_memory(error):
            raise
        raise _too_large(shape, device, None if before is None else before + held) from error


def require_memory(
    shape: RunShape, device: torch.device | str = "cpu", held: int = 0, ranks: int = 1
) -> None:
    """Refuse a run that cannot fit before it starts, because many machines kill a process without memory.

    So many `ranks` share the machine; each has its own GPU.
    """
    available = rank_bytes(device, ranks)
    if available is not None and memory_plan(shape).total > available + held:
        raise _too_large(shape, device, available + held)


def rank_bytes(device: torch.device | str, ranks: int) -> int | None:
    """Return the bytes that each of so many ranks of this machine can still take; None if unknown."""
    available = available_bytes(device)
    if available is not None and torch.device(device).type == "cpu":
        available //= ranks
    return available


def _too_large(shape: RunShape, device: torch.device | str, available: int | None) -> DataError:
    free = "" if available is None else f", and {format_bytes(available)} are free"
    what = f"the memory of the device '{device}' is not enough: {memory_plan(shape)}{free}"
    return DataError(what, remedy=_remedy(shape, available), kind="out-of-memory")


def _remedy(shape: RunShape, available: int | None) -> str:
    block = min(shape.block, shape.labels)
    shape = replace(shape, block=block)
    if available is None or fits(shape, available):
        # By the plan it fits, so something else uses the memory: advise half of the size.
        halved = block > SMALLEST_BLOCK and not shape.shortlist
        advised = replace(shape, block=block // 2) if halved else None
        advised = advised or (replace(shape, batch=shape.batch // 2) if shape.batch > 1 else None)
    else:
        advised = largest_fitting(shape, available)
    if advised is None:
        fixed = memory_plan(replace(shape, batch=1, block=1)).total
        return (
            f"no batch is small enough: {format_bytes(_with_spare(fixed))} must be free, "
            "or the dimension, the vocabulary or the optimiser's state smaller"
        )
    changes = {name: getattr(advised, name) for name in ("block", "batch")}
    return "use " + " and ".join(
        _SETTINGS[name].format(value) for name, value in changes.items() if value != getattr(shape, name)
    )


def _with_spare(size: int) -> int:
    return int(size * (1 + SPARE_SHARE)) + SPARE_BYTES


def fits(shape: RunShape, available: int) -> bool:
    """Return True if a run of this shape fits, with some memory to spare."""
    return _with_spare(memory_plan(shape).total) <= available


def _largest(most: int, size_fits: Callable[[int], bool]) -> int:
    """Return the largest size that fits, cut to two digits so that it is easy to remember; 0 if none fits."""
    low, high = 0, most + 1  # `low` fits or is 0, `high` does not fit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size_fits(middle) else (low, middle)
    digits: int = 10 ** max(len(str(low)) - 2, 0)
    return low if low == most else low // digits * digits


def _is_lack_of_memory(error: BaseException) -> bool:
    # Only CUDA has its own exception; other allocators are recognised by their messages.
    signs = ("can't allocate memory", "not enough memory", "bad_alloc", "out of memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        sign in str(error) for sign in signs
    )
