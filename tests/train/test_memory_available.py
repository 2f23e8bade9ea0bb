"""The memory that a run may take: what the machine, its groups, its limits and its GPU leave."""

from __future__ import annotations

import sys

import pytest
import torch

from gandalf.errors import DataError
from gandalf.train.machine_memory import available_bytes
from gandalf.train.run_memory import RunShape, out_of_memory

MB = 1 << 20


def machine(root, files: dict[str, str]):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return available_bytes("cpu", root)


MEMINFO = {"proc/meminfo": "MemTotal: 16000 kB\nMemFree:  10 kB\nMemAvailable:    8000 kB\n"}


def test_what_the_machine_has(tmp_path):
    assert machine(tmp_path, {}) is None
    assert machine(tmp_path, MEMINFO) == 8000 * 1024


def test_the_limits_of_version_2_groups(tmp_path):
    group = "sys/fs/cgroup/a"
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        f"{group}/b/memory.max": "max\n",
        f"{group}/b/memory.current": "1000\n",
        f"{group}/memory.max": "500000\n",
        f"{group}/memory.current": "200000\n",
        f"{group}/memory.stat": "anon 5\ninactive_file 30000\nactive_file 7\n",
    }
    assert machine(tmp_path, MEMINFO | files) == 500_000 - 200_000 + 30_000
    assert machine(tmp_path, {f"{group}/b/memory.max": "1500\n"}) == 500
    assert machine(tmp_path, {f"{group}/b/memory.max": "900\n"}) == 0  # over its limit already


def test_the_limits_of_version_1_groups(tmp_path):
    group = "sys/fs/cgroup/memory"
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/seen/by/the/host/alone\n0::/\n",
        f"{group}/memory.limit_in_bytes": "500000\n",
        f"{group}/memory.usage_in_bytes": "200000\n",
        f"{group}/memory.stat": "inactive_file 1\ntotal_inactive_file 30000\n",
    }
    assert machine(tmp_path, MEMINFO | files) == 500_000 - 200_000 + 30_000
    no_limit = {f"{group}/memory.limit_in_bytes": "9223372036854771712\n"}
    assert machine(tmp_path, no_limit) == 8000 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are as on Linux")
def test_the_limit_of_the_address_space(tmp_path):
    import resource

    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/statm").write_text("10 5 0 0 0 0 0\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = 2**46 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        assert available_bytes("cpu", tmp_path) == limit - 10 * resource.getpagesize()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_this_machine_tells():
    found = available_bytes()
    assert found is None if sys.platform != "linux" else found > MB
    assert available_bytes("meta") is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_tells_and_its_failure_is_answered():
    before = available_bytes("cuda")
    held = torch.empty(512 * MB, dtype=torch.uint8, device="cuda")
    assert 400 * MB < before - available_bytes("cuda") < 700 * MB
    del held  # cached by the allocator, and so free to us
    assert before - available_bytes("cuda") < 100 * MB
    rows = before // (4 * 1_000)
    shape = RunShape(labels=rows, dim=256, batch=1_000, block=rows, states=0)
    with (
        pytest.raises(DataError, match=r"device 'cuda' is not enough.*; use --set labels.block=\d+"),
        out_of_memory(shape, "cuda"),
    ):
        torch.empty(2 * before, dtype=torch.uint8, device="cuda")
