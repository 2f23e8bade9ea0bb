from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
from tiny_set import write_tiny_set
from writing_commands import LONG, TRIES


@pytest.fixture
def places(small_folder, made_up, tmp_path):
    (tmp_path / "new.txt").write_text("zstd files\n")
    (tmp_path / "more.csv").write_text("text,labels\npack a folder,L0\n")
    (tmp_path / "work").mkdir()
    out = tmp_path / "work" / "out"
    found = {"MODEL": small_folder, "POINTS": made_up, "DATA": write_tiny_set(tmp_path / "data"), "OUT": out}
    found |= {f"OUT{suffix}": out.with_suffix(suffix) for suffix in (".csv", ".npz")}
    return found | {"LABELS": tmp_path / "new.txt", "MORE": tmp_path / "more.csv"}


@pytest.fixture(autouse=True)
def possible(request):
    """Skip what takes minutes or needs what is not there."""
    name = request.node.callspec.params.get("name") if hasattr(request.node, "callspec") else None
    if not hasattr(os, "fork"):
        pytest.skip("needs processes that fork")
    if name in LONG and TRIES < 10:
        pytest.skip("takes minutes; make kill-test runs it")
    if name == "export" and find_spec("onnxscript") is None:
        pytest.skip("onnxscript is optional: extra [onnx]")
