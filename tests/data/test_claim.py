"""One writer at a time for each place, and what killed writers leave is put back, removed, or passed over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from command_line import fails
from small_model import small_model
from tiny_set import write_tiny_set

import gandalf
from gandalf.data import files
from gandalf.data.claim import is_leftover, only_writer
from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.runs import start
from gandalf.slim import SlimPredictor

TAKEN = "another run is writing there; wait until it has ended, or choose another name"
HOLD = """
import sys
from pathlib import Path
from gandalf.data.claim import only_writer
with only_writer(Path(sys.argv[1]), parents=True):
    print("mine", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_writer(target):
    """A process that writes there until it is killed at the end."""
    command = [sys.executable, "-c", HOLD, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def model(small_folder, tmp_path):
    return shutil.copytree(small_folder, tmp_path / "m")


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / "new.txt"
    path.write_text("zstd files\n")
    return path


def test_the_same_thread_may_write_again_and_no_other(tmp_path):
    def claim():
        with only_writer(tmp_path / "x"):
            pass

    with only_writer(tmp_path / "x"), ThreadPoolExecutor() as another:
        claim()
        with pytest.raises(DataError, match=TAKEN):
            another.submit(claim).result()
    claim()
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "words",
    [
        ("add-labels", "MODEL", "LABELS", "-o", "OUT"),
        ("add-labels", "OUT", "LABELS", "--in-place"),
        ("add-examples", "MODEL", "EXAMPLES", "-o", "OUT"),
        ("augment", "DATA", "OUT"),
        ("augment", "DATA", "OUT", "--overwrite"),
        ("export", "MODEL", "OUT"),
        ("graph", "DATA", "--save", "OUT"),
        ("mix", "MODEL", "MODEL", "-o", "OUT", "--data", "DATA"),
        ("predict", "MODEL", "a text", "-o", "OUT.csv"),
        ("predict", "MODEL", "a text", "-o", "OUT.npz", "--overwrite"),
        ("remember", "MODEL", "DATA", "-o", "OUT"),
        ("report", "DATA", "-o", "OUT.html"),
        ("demo", "OUT", "--steps", 1),
        ("train", "DATA", "OUT"),
        ("train", "DATA", "OUT", "--overwrite"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_every_command_refuses_a_place_where_another_writes(words, small_folder, labels, tmp_path):
    data = write_tiny_set(tmp_path / "data")
    (tmp_path / "more.csv").write_text("text,labels\npack a folder,L0\n")
    for suffix in ("", ".csv", ".npz", ".html"):
        out = tmp_path / f"out{suffix}"
        given = {"MODEL": small_folder, "LABELS": labels, "DATA": data, "EXAMPLES": tmp_path / "more.csv"}
        given |= {f"OUT{suffix}": out}
        if f"OUT{suffix}" in words:
            break
    if words[:2] == ("add-labels", "OUT"):
        shutil.copytree(small_folder, out)
    with another_writer(out):
        before = names(tmp_path)
        assert TAKEN in fails(*(given.get(word, word) for word in words))
        assert names(tmp_path) == before


@pytest.mark.slow
def test_of_two_additions_at_once_none_is_lost(model, tmp_path):
    """Each of two processes either adds its label or says that it did not."""
    (tmp_path / "a.txt").write_text("alpha beta\n")
    (tmp_path / "b.txt").write_text("gamma delta\n")
    code = "from gandalf.cli.main import app; app()"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code, "add-labels", str(model), str(tmp_path / name), "--in-place"],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name in ("a.txt", "b.txt")
    ]
    ended = [run.communicate() and run.returncode for run in runs]
    assert set(ended) <= {0, 2} and 0 in ended
    assert load_model(model).num_labels == 5 + ended.count(0)


# ---- what killed writers leave


def leave(path, end, mark="0123abcd"):
    return path.with_name(f".{path.name}.{mark}.{end}")


def test_a_model_that_lost_its_name_is_given_it_back(model):
    """The state between the two renames of --in-place."""
    expected = load_model(model).label_texts
    shutil.copytree(model, leave(model, "part"))
    model.rename(leave(model, "old"))
    assert load_model(model).label_texts == expected
    assert names(model.parent) == ["m"]


def test_an_export_and_a_data_set_are_given_their_names_back(tmp_path):
    data = write_tiny_set(tmp_path / "data")
    data.rename(leave(data, "old"))
    assert len(gandalf.load(data).train) == 4
    out = tmp_path / "slim"
    out.mkdir()
    out.rename(leave(out, "old"))
    with pytest.raises(DataError, match="is no exported model"):
        SlimPredictor(out)
    assert names(tmp_path) == ["data", "slim"]


def test_the_next_writer_removes_what_killed_writers_left(model, labels):
    for end in ("part", "old"):
        shutil.copytree(model, leave(model, end))
    (model / ".model.safetensors.0123abcd.part").write_bytes(b"half")
    (model / ".trees.0123abcd.part").mkdir()
    with only_writer(model):
        pass
    assert not any(map(is_leftover, [*names(model.parent), *names(model)]))


@pytest.mark.parametrize(
    "name", [".config.json.0123abcd.part", ".tmpAb3dEf", ".model.0123abcd.part/tree0.cbor"]
)
def test_what_a_killed_writer_left_is_no_part_of_a_model(name, model, tmp_path):
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_bytes(b"half")
    save_model(small_model(seed=2), model, overwrite=True)  # is not refused as foreign
    assert not any(map(is_leftover, names(model)))
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_bytes(b"half")
    gandalf.model.save.write_model(small_model(), model)
    assert name not in json.loads((model / "config.json").read_text("utf-8"))["files"]


def test_ctrl_c_between_the_renames_leaves_the_model(model, monkeypatch):
    from pathlib import Path

    rename = Path.rename

    def stop(self, target):
        if target == model:
            monkeypatch.undo()
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        save_model(small_model(seed=2), model, overwrite=True)
    assert load_model(model).num_labels == 5 and names(model.parent) == ["m"]


# ---- what is on the disk, and when


def test_what_replaces_a_model_is_on_the_disk_before_that_is_removed(model, monkeypatch):
    events = []
    monkeypatch.setattr(files, "sync_path", lambda path: events.append(path.name))
    monkeypatch.setattr(files, "remove", lambda path: events.append("removed"))
    save_model(small_model(seed=2), model, overwrite=True)
    assert events[-1] == "removed" and {"model.safetensors", "config.json"} < set(events[:-1])


def test_a_finished_model_is_on_the_disk_before_its_checkpoints_go(made_up, tmp_path, monkeypatch):
    from train_command import SMALL, done

    synced = []
    fsync, remove = os.fsync, start.remove
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.readlink(f"/proc/self/fd/{handle}")), fsync(handle))
    )

    def gone(path):
        if path.name == "checkpoints" and path.exists():
            out = str(path.parent)
            assert {out, f"{out}/model.safetensors", f"{out}/config.json", f"{out}/labels.jsonl"} <= set(
                synced
            )
            synced.append("checked")
        remove(path)

    monkeypatch.setattr(start, "remove", gone)
    done(made_up, tmp_path / "out", *SMALL, "--checkpoint-minutes", 0)
    assert "checked" in synced
