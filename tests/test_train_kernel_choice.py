"""Which kernels train a table: plain ones, fused ones, and what is said where those cannot."""

from __future__ import annotations

import pytest
import torch
from command_line import fails
from small_runs import same, small, small_splits

from gandalf.errors import DataError
from gandalf.nets.heads import Table
from gandalf.runs.run import train
from gandalf.train import fused_update, loop
from gandalf.train.fused_update import refusal


@pytest.fixture
def splits():
    return small_splits()


def test_where_fused_kernels_cannot_be_had_auto_is_plain(splits):
    plain = train(splits, small("training.steps=3", "device=cpu"))
    same(train(splits, small("training.steps=3", "device=cpu", "head.kernel=auto")), plain)


def test_what_was_asked_for_and_cannot_be_had(splits, monkeypatch):
    monkeypatch.setattr(fused_update.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"fused kernels cannot train this head: Triton is not installed"):
        train(splits, small("device=cpu", "head.kernel=triton"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("head.row_precision=bfloat16",), "rows of bfloat16 are trained by fused kernels alone"),
        (
            ("head.row_precision=bfloat16", "head.kernel=triton", "head.kind=gated"),
            "rows of bfloat16 are trained by fused kernels alone, and as a plain table",
        ),
        (("head.row_precision=bfloat16", "head.kernel=auto", "device=cpu"), "rows of bfloat16 are for fused"),
    ],
)
def test_rows_of_bfloat16_need_them(settings, said, splits):
    with pytest.raises(DataError, match=said):
        train(splits, small(*settings))


@pytest.mark.parametrize(
    ("capability", "dim", "dtype", "said"),
    [
        ((8, 0), 64, torch.bfloat16, "older than Hopper"),
        ((9, 0), 64, torch.float32, "products are to be of float32"),
        ((9, 0), 60, torch.bfloat16, "vectors of 60 numbers are no multiple of 8"),
        ((9, 0), 64, torch.bfloat16, None),
        ((10, 0), 480, torch.bfloat16, None),
    ],
)
def test_why_not(capability, dim, dtype, said, monkeypatch):
    monkeypatch.setattr(fused_update.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    head = Table(4, dim)
    assert refusal(head, dtype) == "there is no GPU"

    class OnGpu:
        rows, dim = type("Rows", (), {"device": torch.device("cuda")}), head.dim

    found = refusal(OnGpu, dtype)
    assert found is None if said is None else said in found


def test_a_shortlist_is_met_by_plain_kernels(splits, monkeypatch):
    monkeypatch.setattr(loop, "refusal", lambda head, dtype: None)
    with pytest.raises(DataError, match="labels are met by shortlist"):
        train(splits, small("device=cpu", "labels.kind=shortlist", "head.kernel=triton"))
    train(splits, small("device=cpu", "labels.kind=shortlist", "head.kernel=auto", "training.steps=2"))


def test_the_command_says_it_in_a_sentence(tmp_path):
    said = fails("train", "man", tmp_path / "out", "--head-kernel", "cuda")
    assert "'head.kernel'" in said and "triton" in said
