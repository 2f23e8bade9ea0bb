"""Precision of rows, and of the optimiser's state for them."""

from __future__ import annotations

import torch

FLOAT8 = torch.float8_e4m3fn


def state_dtype(rows: torch.dtype) -> torch.dtype:
    """Return the precision of the optimiser's state; gradients are too small for float16."""
    return torch.float32 if rows == torch.float32 else torch.bfloat16
