"""Name the precisions of matrix products and rows, and choose that of the optimiser's state."""

from __future__ import annotations

import torch

FLOAT8 = torch.float8_e4m3fn
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float8": FLOAT8,  # of rows only
}


def state_dtype(rows: torch.dtype) -> torch.dtype:
    """Return the precision of the optimiser's state; gradients are too small for float16."""
    return torch.float32 if rows == torch.float32 else torch.bfloat16
