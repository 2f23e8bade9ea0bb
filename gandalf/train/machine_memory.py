"""Memory of this machine: how much is free, and how much this process has used at most."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch


def available_bytes(device: torch.device | str = "cpu", root: Path = Path("/")) -> int | None:
    """Memory that this process can still take on the device; None where nothing tells."""
    device = torch.device(device)
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type != "cpu":
        return None
    known = [
        size
        for size in (_of_the_machine(root), _of_the_limit(root), *_of_the_groups(root))
        if size is not None
    ]
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
    """Let `peak_bytes` count from now on; on systems without /proc it still counts from the start."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def said(size: int) -> str:
    """A number of bytes for a sentence."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _of_the_machine(root: Path) -> int | None:
    kilobytes = _table(root / "proc/meminfo").get("MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def _of_the_limit(root: Path) -> int | None:
    """What `ulimit -v` leaves of the address space."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    statm = _text(root / "proc/self/statm").split()
    if limit == resource.RLIM_INFINITY or not statm:
        return None
    return limit - int(statm[0]) * os.sysconf("SC_PAGE_SIZE")


def _of_the_groups(root: Path) -> Iterator[int]:
    """What the limits of the process's control groups, which containers are made of, leave."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        version = _GROUP_FILES.get("memory" if "memory" in controllers.split(",") else controllers)
        if version is None:
            continue
        mount, limit_file, use_file, cache = version
        # Inside a container the path may be one that only the host can see; then the mount is the group.
        group = Path(path.lstrip("/"))
        for folder in (root / mount / part for part in (group, *group.parents)):
            limit, use = _text(folder / limit_file).strip(), _text(folder / use_file).strip()
            if limit.isdigit() and use.isdigit():
                # Pages of files that nobody reads are given up before anything else.
                yield int(limit) - int(use) + _table(folder / "memory.stat").get(cache, 0)


# Where the memory of a group is told: version 1, then version 2, whose line names no controllers.
_GROUP_FILES = {
    "memory": (
        *("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        "total_inactive_file",
    ),
    "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
}


def _table(path: Path) -> dict[str, int]:
    """A file of lines that begin with a name and a number."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
