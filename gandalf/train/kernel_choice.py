"""Which kernels train free rows: fused ones, or why not."""

from __future__ import annotations

import importlib.util
from typing import Literal

import torch

from gandalf.errors import DataError

KernelName = Literal["auto", "torch", "triton"]
PAYS_FROM = 65_536  # labels: measured from 79,000 up (docs/speed.md); few are over before launches count
FLOAT8 = torch.float8_e4m3fn
NOT_ASKED_FOR = "they were not asked for (head.kernel)"


def missing(device: torch.device, dtype: torch.dtype, rows: torch.dtype) -> str | None:
    """Why the kernels cannot run here at all; None where they can."""
    if device.type != "cuda":
        return "there is no GPU to run them on"
    if torch.cuda.get_device_capability(device)[0] < 8:
        return "the GPU is older than Ampere"
    if rows == FLOAT8 and torch.cuda.get_device_capability(device) < (8, 9):
        return "the GPU, older than Ada and Hopper, knows no float8"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    return "matrix products are to be of float32" if dtype == torch.float32 else None


def refuse(kernel: KernelName, rows: torch.dtype, why: str) -> None:
    """Say that the kernels cannot be used, where they were asked for or the rows' precision needs them."""
    if kernel == "triton":
        what = f"fused kernels cannot train this head: {why}"
        raise DataError(what, remedy="leave head.kernel out, or set it to auto")
    if rows != torch.float32:
        name = str(rows).removeprefix("torch.").split("_")[0]
        what = f"rows of {name} are for fused kernels alone, and {why}"
        raise DataError(what, remedy="leave head.row_precision out")


def too_few(kernel: KernelName, num_labels: int, rows: torch.dtype) -> str | None:
    """Why kernels that could be used are not, where nobody asked for them; None where they are."""
    few = kernel == "auto" and rows == torch.float32 and num_labels < PAYS_FROM
    return f"there are fewer than {PAYS_FROM:,} labels" if few else None


def state_dtype(rows: torch.dtype) -> torch.dtype:
    """Of what the optimiser keeps for rows; gradients are too small for float16, whatever rows are."""
    return torch.float32 if rows == torch.float32 else torch.bfloat16
