"""Measure memory: how much is free, and how much this process has used at most."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch


def available_bytes(device: torch.device | str = "cpu", root: Path = Path("/")) -> int | None:
    """Return the bytes that this process can still take on the device, or None if they are unknown."""
    device = torch.device(device)
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type != "cpu":
        return None
    sizes = (_machine_bytes(root), _ulimit_bytes(root), *_group_bytes(root))
    known = [size for size in sizes if size is not None]
    return max(min(known), 0) if known else None


def peak_bytes(device: torch.device | str) -> int | None:
    """Return the most bytes that this process has held at once: of the GPU it trains on, else of the machine.

    None if the operating system does not say.
    """
    if torch.device(device).type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    # getrusage would also count the process that started this one; `reset_peak` resets VmHWM alone.
    with suppress(OSError, StopIteration):
        status = Path("/proc/self/status").read_text("ascii").splitlines()
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak() -> None:
    """Reset `peak_bytes`; on systems without /proc it still counts from the start of the process."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def format_bytes(size: int) -> str:
    """Return a number of bytes for a sentence, such as "1.5 GB"."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _machine_bytes(root: Path) -> int | None:
    kilobytes = _read_numbers(root / "proc/meminfo").get("MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def _ulimit_bytes(root: Path) -> int | None:
    """Return the address space that `ulimit -v` leaves, or None without a limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    statm = _read_text(root / "proc/self/statm").split()
    if limit == resource.RLIM_INFINITY or not statm:
        return None
    return limit - int(statm[0]) * os.sysconf("SC_PAGE_SIZE")


def _group_bytes(root: Path) -> Iterator[int]:
    """Yield the memory that each control group of the process leaves; containers use such groups."""
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        version = _GROUP_FILES.get("memory" if "memory" in controllers.split(",") else controllers)
        if version is None:
            continue
        mount, limit_file, use_file, cache = version
        # Inside a container the path may exist on the host only; then the mount is the group.
        group = Path(path.lstrip("/"))
        for folder in (root / mount / part for part in (group, *group.parents)):
            limit, use = _read_text(folder / limit_file).strip(), _read_text(folder / use_file).strip()
            if limit.isdigit() and use.isdigit():
                # The system frees cached pages of unused files first.
                yield int(limit) - int(use) + _read_numbers(folder / "memory.stat").get(cache, 0)


# Files with the memory of a group: version 1, then version 2, whose line names no controllers.
_GROUP_FILES = {
    "memory": (
        *("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        "total_inactive_file",
    ),
    "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
}


def _read_numbers(path: Path) -> dict[str, int]:
    """Return the numbers in a file of lines that begin with a name and a number."""
    lines = (line.split() for line in _read_text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
