"""Choose the kernels that train free rows: fused kernels by Triton, or PyTorch's."""

from __future__ import annotations

import importlib.util

import torch

from gandalf.errors import DataError
from gandalf.nets.heads import Table
from gandalf.train.head_update import TableUpdate
from gandalf.train.kernels import KernelName
from gandalf.train.kernels.fused_update import FusedUpdate
from gandalf.train.labels import Every
from gandalf.train.losses import binary_cross_entropy
from gandalf.train.precision import FLOAT8
from gandalf.train.stage import Stage

PAYS_FROM = 65_536  # labels from which fused kernels pay: measured from 79,000 up (docs/lab/gpu_log.md)
NOT_ASKED_FOR = "they were not asked for (head.kernel)"
BY_SHORTLIST = "labels are met by shortlist"


def table_update(head: Table, stage: Stage, labels: int) -> TableUpdate | FusedUpdate:
    """Return the fused update if it is asked for or pays, else the plain update.

    All ranks must choose the same, so `labels` is the number of labels divided by that of ranks.
    """
    why = _why_plain(head, stage, labels)
    if why is None:
        return FusedUpdate(head, stage.head, stage.dtype)
    refuse_plain(stage.kernel, head.rows.dtype, why)
    return TableUpdate(head, stage.head, stage.loss, stage.dtype, stage.glas)


def _why_plain(head: Table, stage: Stage, labels: int) -> str | None:
    """Return why a stage is trained by plain kernels, or None if it is not."""
    if stage.kernel == "torch":
        return NOT_ASKED_FOR
    if stage.glas is not None:
        return "rows have a regulariser"
    if stage.loss is not binary_cross_entropy:
        return "they know one loss, binary cross-entropy"
    if not isinstance(stage.labels, Every):
        return BY_SHORTLIST
    rows = head.rows
    return missing_requirement(rows.device, stage.dtype, rows.dtype) or too_few_labels(
        stage.kernel, labels, rows.dtype
    )


def check_kernel(
    kernel: KernelName, rows: torch.dtype, device: torch.device, dtype: torch.dtype, why: str | None
) -> None:
    """Refuse a run that needs fused kernels but cannot use them; `why` is a reason in its recipe."""
    why = NOT_ASKED_FOR if kernel == "torch" else why or missing_requirement(device, dtype, rows)
    if why is not None:
        refuse_plain(kernel, rows, why)


def missing_requirement(device: torch.device, dtype: torch.dtype, rows: torch.dtype) -> str | None:
    """Return why fused kernels cannot run on this machine, or None if they can."""
    if device.type != "cuda":
        return "there is no GPU to run them on"
    if torch.cuda.get_device_capability(device)[0] < 8:
        return "the GPU is older than Ampere"
    if rows == FLOAT8 and torch.cuda.get_device_capability(device) < (8, 9):
        return "the GPU, older than Ada and Hopper, knows no float8"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    return "matrix products are to be of float32" if dtype == torch.float32 else None


def refuse_plain(kernel: KernelName, rows: torch.dtype, why: str) -> None:
    """Refuse plain kernels if `head.kernel` or the rows' precision needs fused ones."""
    if kernel == "triton":
        what = f"fused kernels cannot train this head: {why}"
        raise DataError(what, remedy="leave head.kernel out, or set it to auto")
    if rows != torch.float32:
        name = str(rows).removeprefix("torch.").split("_")[0]
        what = f"rows of {name} are for fused kernels alone, and {why}"
        raise DataError(what, remedy="leave head.row_precision out")


def too_few_labels(kernel: KernelName, num_labels: int, rows: torch.dtype) -> str | None:
    """Return why `head.kernel=auto` keeps plain kernels for so many labels, or None if it does not."""
    few = kernel == "auto" and rows == torch.float32 and num_labels < PAYS_FROM
    return f"there are fewer than {PAYS_FROM:,} labels" if few else None
