"""Triton and CUDA graphs: the only room that knows them. `choice` says which kernels train a head."""

from __future__ import annotations

from typing import Literal

KernelName = Literal["auto", "torch", "triton"]
