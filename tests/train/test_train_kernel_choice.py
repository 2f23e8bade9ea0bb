"""Which kernels train a table: plain ones, fused ones, and what is said where those cannot."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from command_line import fails
from scipy.sparse import csr_array
from small_runs import same, small, small_splits

from gandalf.errors import DataError
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Table
from gandalf.runs import session as runs
from gandalf.runs.plan import run_shape
from gandalf.runs.session import run_training
from gandalf.train.batches import Points
from gandalf.train.head_update import TableUpdate
from gandalf.train.kernels import choice
from gandalf.train.kernels.choice import missing_requirement
from gandalf.train.kernels.fused_update import FusedUpdate
from gandalf.train.labels import Every
from gandalf.train.loop import Training
from gandalf.train.orders import Order, Phase
from gandalf.train.precision import FLOAT8
from gandalf.train.stage import Stage


@pytest.fixture
def splits():
    return small_splits()


def test_where_fused_kernels_cannot_be_had_auto_is_plain(splits):
    plain = run_training(splits, small("training.steps=3", "device=cpu", "head.kernel=torch"))
    same(run_training(splits, small("training.steps=3", "device=cpu", "head.kernel=auto")), plain)


def test_what_was_asked_for_and_cannot_be_had(splits, monkeypatch):
    with pytest.raises(DataError, match=r"fused kernels cannot train this head: there is no GPU"):
        run_training(splits, small("device=cpu", "head.kernel=triton"))
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert (
        missing_requirement(torch.device("cuda"), torch.bfloat16, torch.float32) == "Triton is not installed"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ("head.row_precision=bfloat16", "head.kernel=torch"),
            "rows of bfloat16 are for fused kernels alone, and they were not",
        ),
        (
            ("head.row_precision=bfloat16", "head.kernel=auto", "head.kind=gated"),
            "rows of bfloat16 are for fused kernels alone, and rows are not a plain table",
        ),
        (("head.row_precision=bfloat16", "head.kernel=auto", "device=cpu"), "rows of bfloat16 are for fused"),
        (("head.row_precision=float8", "head.kernel=auto", "device=cpu"), "rows of float8 are for fused"),
    ],
)
def test_rows_of_bfloat16_need_them(settings, said, splits):
    with pytest.raises(DataError, match=said):
        run_training(splits, small(*settings))


@pytest.mark.parametrize(
    ("capability", "dtype", "rows", "said"),
    [
        ((7, 5), torch.bfloat16, torch.float16, "the GPU is older than Ampere"),
        ((9, 0), torch.float32, torch.float32, "matrix products are to be of float32"),
        ((8, 0), torch.bfloat16, torch.float16, None),
        ((8, 6), torch.bfloat16, FLOAT8, "the GPU, older than Ada and Hopper, knows no float8"),
        ((8, 9), torch.bfloat16, FLOAT8, None),
        ((10, 0), torch.bfloat16, FLOAT8, None),
    ],
)
def test_why_not(capability, dtype, rows, said, monkeypatch):
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert missing_requirement(torch.device("cpu"), dtype, rows) == "there is no GPU to run them on"
    assert missing_requirement(torch.device("cuda"), dtype, rows) == said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("labels.kind=shortlist",), "labels are met by shortlist"),
        (("head.kind=gated",), r"rows are not a plain table \(head.kind=gated\)"),
        (("siamese.kind=contrastive", "siamese.alone=true"), "there is no stage that trains rows"),
    ],
)
def test_what_is_not_theirs_is_said_before_any_work(settings, said, splits, monkeypatch):
    monkeypatch.setattr(choice, "missing_requirement", lambda *given: None)
    monkeypatch.setattr(runs, "prepare_material", lambda *given: pytest.fail("it has begun"))
    with pytest.raises(DataError, match=said):
        run_training(splits, small("device=cpu", "head.kernel=triton", *settings))


def test_a_pair_stage_is_not_trained_in_vain(splits, monkeypatch):
    monkeypatch.setattr(runs, "prepare_material", lambda *given: pytest.fail("it has begun"))
    pairs = ("device=cpu", "siamese.kind=contrastive")
    with pytest.raises(DataError, match="there is no GPU"):
        run_training(splits, small(*pairs, "head.kernel=triton"))
    with pytest.raises(DataError, match="rows of bfloat16 are for fused kernels alone, and there is no GPU"):
        run_training(splits, small(*pairs, "head.kernel=auto", "head.row_precision=bfloat16"))


@pytest.mark.parametrize(("rows", "size", "state"), [("float32", 4, 4), ("float16", 2, 2), ("float8", 1, 2)])
def test_the_plan_counts_rows_and_what_is_kept_for_them(rows, size, state):
    shape = run_shape(small(f"head.row_precision={rows}"), 50, 120)
    assert (shape.bytes_per_row_value, shape.bytes_per_row_state) == (size, state)


def test_the_loop_itself_falls_back_on_a_shortlist(splits, monkeypatch):
    monkeypatch.setattr(choice, "missing_requirement", lambda *given: None)
    run_training(splits, small("device=cpu", "labels.kind=shortlist", "head.kernel=auto", "training.steps=2"))


@pytest.mark.parametrize(
    ("kernel", "labels", "dtype", "fused"),
    [
        ("auto", 65_535, torch.float32, False),
        ("auto", 65_536, torch.float32, True),
        ("triton", 10, torch.float32, True),
        ("auto", 10, torch.bfloat16, True),
        ("torch", 65_536, torch.float32, False),
    ],
)
def test_they_are_used_where_they_pay(kernel, labels, dtype, fused, monkeypatch):
    monkeypatch.setattr(choice, "missing_requirement", lambda *given: None)
    found = chosen(kernel, labels, dtype)
    assert isinstance(found, FusedUpdate if fused else TableUpdate)


def test_a_loss_of_ones_own_is_not_theirs(monkeypatch):
    monkeypatch.setattr(choice, "missing_requirement", lambda *given: None)
    other = {"loss": lambda scores, chunk, weights, with_loss: None}
    assert isinstance(chosen("auto", 65_536, torch.float32, **other), TableUpdate)
    with pytest.raises(DataError, match="they know one loss"):
        chosen("triton", 65_536, torch.float32, **other)


def chosen(kernel, labels, dtype, **more):
    head = Table(labels, 1)
    head.rows.data = head.rows.data.to(dtype)
    order = Order([Phase(np.arange(4), 2)], 2, seed=0)
    return choice.table_update(head, Stage(order, Every(labels, labels), kernel=kernel, **more), labels)


def test_a_checkpoint_by_other_kernels_is_not_gone_on_with(monkeypatch):
    plain, fused = (made_training(kernel, monkeypatch) for kernel in ("torch", "triton"))
    with pytest.raises(DataError, match=r"other kernels .* resume with --head-kernel torch or triton"):
        fused.load(*plain.state())
    with pytest.raises(DataError, match="other kernels"):
        plain.load(*fused.state())
    fused.load(*fused.state())


def made_training(kernel, monkeypatch):
    monkeypatch.setattr(choice, "missing_requirement", lambda *given: None)
    points = Points(np.ones((4, 3), np.int32), csr_array(np.eye(4, dtype=np.float32)))
    encoder = build_encoder({"kind": "bag-of-words", "dim": 8}, 5)
    stage = Stage(Order([Phase(np.arange(4), 2)], 2, seed=0), Every(4, 4), kernel=kernel)
    return Training(encoder, Table(4, 8), points, stage)


def test_the_command_says_it_in_a_sentence(tmp_path):
    said = fails("train", "man", tmp_path / "out", "--head-kernel", "cuda")
    assert "'head.kernel'" in said and "triton" in said
