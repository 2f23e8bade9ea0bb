"""Bulk prediction on a cluster: the answers of one machine, each row once, whoever is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal

import numpy as np
import pytest
import torch
from command_line import done, done_json, fails
from dask_cluster import client, scheduler, started
from small_model import LABELS, small_model

from gandalf.cluster import predict
from gandalf.cluster.jobs import Job, begin, model_identity, row_groups_of
from gandalf.data.new_examples import Example
from gandalf.model import load_model, save_model
from gandalf.model.examples import with_examples
from gandalf.predict.predictor import Predictor

pytestmark = pytest.mark.slow

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

assert client and scheduler  # fixtures

WORDS = ("gzip", "bzip2", "files", "disk", "usage", "Ärger", "compress")
TOP = 4


def texts_of(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 5))) for _ in range(count)]


def write_queries(folder, sizes, group=1 << 20, *, ids=True):
    """Parquet files of so many texts each, in row groups of `group`; all texts, and all ids."""
    folder.mkdir()
    found, names = [], []
    for at, size in enumerate(sizes):
        texts = texts_of(size, seed=at)
        own = pyarrow.array(range(len(names), len(names) + size), pyarrow.int64())
        columns = {
            "other": [0.5] * size,
            **({"id": own} if ids else {}),
            "text": pyarrow.array(texts, pyarrow.string()),
        }
        parquet.write_table(pyarrow.table(columns), folder / f"q{at}.parquet", row_group_size=group)
        found += texts
        names += own.to_pylist()
    return found, names


def parts_in(out):
    return sorted(path for path in out.iterdir() if path.suffix == ".parquet" and path.name[0] not in "._")


def answers(out):
    """All rows of the output in the order of its files."""
    tables = [parquet.read_table(path) for path in parts_in(out)]
    return pyarrow.concat_tables(tables).to_pylist()


def equal_to_one_machine(out, model, texts, threshold=None):
    ids, scores = Predictor(load_model(model)).predict(texts, TOP, threshold=threshold)
    found = answers(out)
    assert len(found) == len(texts)
    for row, labels, values in zip(found, ids, scores, strict=True):
        kept = labels >= 0
        assert row["labels"] == labels[kept].tolist()
        np.testing.assert_allclose(row["scores"], values[kept], rtol=1e-5)
    return [row.get("id") for row in found]


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_answers_are_those_of_one_machine(scheduler, small_folder, tmp_path, threshold):
    texts, names = write_queries(tmp_path / "in", [30, 1, 17], group=8)
    out = tmp_path / "out"
    words = (small_folder, tmp_path / "in", "-o", out, "--top", TOP, "--cluster", scheduler)
    words += () if threshold is None else ("--threshold", threshold)
    facts = done_json("predict", *words)
    assert facts == {
        "out": str(out),
        "texts": 48,
        "parts": 8,
        "parts_done_before": 0,
        "labels": 5,
        "top": TOP,
    }
    assert equal_to_one_machine(out, small_folder, texts, threshold) == names
    assert [path.name for path in parts_in(out)][:2] == ["q0-00000.parquet", "q0-00001.parquet"]
    assert json.loads((out / "_SUCCESS").read_text()) == {"rows": 48, "parts": 8}
    named = parquet.read_table(out / "_labels.parquet").to_pylist()
    assert [row["id"] for row in named] == [f"L{at}" for at in range(len(LABELS))]
    assert done_json("predict", *words)["parts_done_before"] == 8
    assert not [path for path in out.rglob("*") if path.name.endswith(".part")]


def test_a_model_with_a_memory_answers_as_on_one_machine(scheduler, tmp_path):
    model = with_examples(small_model(), [Example("gzip files", [1]), Example("disk usage", [2])])
    save_model(model, tmp_path / "model")
    texts, _ = write_queries(tmp_path / "in", [20], group=7)
    out = tmp_path / "out"
    words = (tmp_path / "model", tmp_path / "in", "-o", out, "--top", TOP, "--cluster", scheduler)
    assert done_json("predict", *words)["texts"] == 20
    equal_to_one_machine(out, tmp_path / "model", texts)


def test_texts_without_ids_go_by_their_row(scheduler, small_folder, tmp_path):
    texts, _ = write_queries(tmp_path / "in", [20], group=7, ids=False)
    out = tmp_path / "out"
    done(
        "predict",
        small_folder,
        tmp_path / "in" / "q0.parquet",
        "-o",
        out,
        "--top",
        TOP,
        "--cluster",
        scheduler,
    )
    equal_to_one_machine(out, small_folder, texts)
    assert [row["row"] for row in answers(out)] == list(range(20))


def test_a_process_loads_the_model_once(client, small_folder, tmp_path):
    write_queries(tmp_path / "in", [40], group=4)
    parts = row_groups_of(tmp_path / "in", None)
    job = Job(small_folder, model_identity(small_folder), tmp_path / "out", TOP, None, "cpu")
    begin(job, parts)
    assert (
        client.gather([client.submit(predict.predict_row_group, job, part) for part in parts])
        == [(4, True)] * 10
    )
    loaded = client.run(lambda: tuple(predict._loaded.cache_info()[:2])).values()  # hits and misses
    assert sum(map(sum, loaded)) == len(parts) and all(misses <= 1 for _, misses in loaded)
    client.run(predict.forget_model)


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["transformer", "inception", "trees"])
def test_any_kind_of_model(scheduler, made_up, tmp_path, kind):
    if kind == "trees":
        done("train", made_up, tmp_path / "model", "--system", "parabel")
    else:
        save_model(small_model(kind), tmp_path / "model")
    texts, names = write_queries(tmp_path / "in", [30], group=8)
    out = tmp_path / "out"
    done("predict", tmp_path / "model", tmp_path / "in", "-o", out, "--top", TOP, "--cluster", scheduler)
    assert equal_to_one_machine(out, tmp_path / "model", texts) == names


def test_what_is_done_is_not_done_again_and_what_is_lost_is(scheduler, small_folder, tmp_path):
    texts, _ = write_queries(tmp_path / "in", [40], group=10)
    out = tmp_path / "out"
    words = ("predict", small_folder, tmp_path / "in", "-o", out, "--top", TOP, "--cluster", scheduler)
    done(*words)
    stamp = (out / "q0-00000.parquet").stat().st_mtime_ns
    (out / "_done" / "q0-00001.parquet.json").unlink()  # as if killed between file and mark
    (out / "q0-00002.parquet").write_bytes(b"half")
    (out / ".q0-00003.parquet.0123abcd.part").write_bytes(b"of a worker that was killed")
    assert done_json(*words)["parts_done_before"] == 2
    assert (out / "q0-00000.parquet").stat().st_mtime_ns == stamp
    equal_to_one_machine(out, small_folder, texts)
    assert not list(out.glob(".*.part"))


def test_another_model_or_input_is_refused(scheduler, small_folder, tmp_path):
    write_queries(tmp_path / "in", [20], group=10)
    out, at = tmp_path / "out", ("--cluster", scheduler)
    words = ("predict", small_folder, tmp_path / "in", "-o", out)
    done(*words, *at)
    before = {
        path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != "_SUCCESS"
    }
    other = tmp_path / "other"
    save_model(small_model(seed=1), other)
    remedy = "choose another OUT, or remove this one"
    assert fails("predict", other, *words[2:], *at) == f"{out}: was started with another model; {remedy}"
    assert fails(*words, "--top", 2, *at) == f"{out}: was started with another top; {remedy}"
    file = tmp_path / "in" / "q0.parquet"
    table = parquet.read_table(file).to_pylist()
    table[13]["text"] = "zzzz"
    parquet.write_table(pyarrow.Table.from_pylist(table), file, row_group_size=10)
    assert fails(*words, *at).startswith(f"{file}: row group 1 has changed since")
    parquet.write_table(pyarrow.Table.from_pylist(table[:15]), file, row_group_size=10)
    assert fails(*words, *at) == f"{out}: was started with another input; {remedy}"
    assert {path: path.read_bytes() for path in before} == before


def test_an_index_or_a_card_makes_no_other_model(small_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(small_folder, copy)
    (copy / "README.md").write_text("better words")
    assert model_identity(copy) == model_identity(small_folder)
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    assert model_identity(copy) != model_identity(small_folder)


def test_refusals(scheduler, small_folder, tmp_path):
    at = ("--cluster", scheduler)
    (tmp_path / "q.txt").write_text("gzip\n")
    assert "is neither a Parquet file" in fails(
        "predict", small_folder, tmp_path / "q.txt", "-o", tmp_path / "o", *at
    )
    write_queries(tmp_path / "in", [3])
    assert "into a folder" in fails("predict", small_folder, tmp_path / "in", *at)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    assert "holds files other than predictions" in fails(
        "predict", small_folder, tmp_path / "in", "-o", tmp_path / "full", *at
    )
    inside = fails("predict", small_folder, tmp_path / "in", "-o", small_folder / "x", *at)
    assert "is in the model's folder" in inside
    column = fails(
        "predict", small_folder, tmp_path / "in", "-o", tmp_path / "o", "--text-column", "nix", *at
    )
    assert "there is no column 'nix'" in column
    if not torch.cuda.is_available():
        cuda = fails("predict", small_folder, tmp_path / "in", "-o", tmp_path / "c", "--device", "cuda", *at)
        assert cuda.startswith("a worker has no CUDA device")
    (tmp_path / "in" / "q0.parquet").write_bytes(b"PAR1 but no more")
    assert "cannot be read as Parquet" in fails(
        "predict", small_folder, tmp_path / "in", "-o", tmp_path / "o", *at
    )
    assert not (tmp_path / "o").exists()


# ---- killed


def some_are_done(out, child):
    """Wait for the first marks of parts; the child must not have ended before."""
    while not (out / "_done").is_dir() or len(list((out / "_done").glob("*.json"))) < 3:
        assert child.poll() is None, child.communicate()


def half_written(out):
    """Files under the name of a part that cannot be read to the end."""
    broken = []
    for path in parts_in(out):
        try:
            parquet.read_table(path)
        except pyarrow.ArrowException:
            broken.append(path)
    return broken


PARTS = 150


@pytest.fixture
def many(tmp_path):
    """Queries in many parts: a job that can be killed halfway."""
    texts, names = write_queries(tmp_path / "in", [2 * PARTS], group=2)
    return tmp_path / "in", texts, names


@pytest.mark.parametrize("where", [pytest.param("local", marks=pytest.mark.cluster), "scheduler"])
def test_a_killed_client_is_resumed(scheduler, small_folder, tmp_path, many, where):
    queries, texts, names = many
    out = tmp_path / "out"
    words = (
        small_folder,
        queries,
        "-o",
        out,
        "--top",
        TOP,
        "--cluster",
        "local" if where == "local" else scheduler,
    )
    child = started("predict", *words)
    some_are_done(out, child)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not (out / "_SUCCESS").exists() and not half_written(out)
    facts = done_json("predict", *words[:-1], scheduler)
    assert 3 <= facts["parts_done_before"] <= PARTS and facts["parts"] == PARTS
    assert equal_to_one_machine(out, small_folder, texts) == names
    assert not [path for path in out.rglob("*") if path.name.endswith(".part")]


def test_a_killed_worker_is_made_up_for(client, scheduler, small_folder, tmp_path, many):
    queries, texts, names = many
    out = tmp_path / "out"
    victim = min(client.run(os.getpid).values())
    child = started(
        "predict", small_folder, queries, "-o", out, "--top", TOP, "--cluster", scheduler, "--json"
    )
    some_are_done(out, child)
    os.kill(victim, signal.SIGKILL)
    stdout, stderr = child.communicate()
    assert child.returncode == 0, stderr
    assert json.loads(stdout)["texts"] == len(texts)
    assert equal_to_one_machine(out, small_folder, texts) == names
    assert not half_written(out)


def test_a_stopped_command_cancels_its_tasks(client, scheduler, small_folder, tmp_path, many):
    queries, _, _ = many
    child = started("predict", small_folder, queries, "-o", tmp_path / "out", "--cluster", scheduler)
    some_are_done(tmp_path / "out", child)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate()
    assert (child.returncode, stdout, stderr) == (130, "", "stopped\n")
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0
