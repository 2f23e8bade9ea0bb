"""The journal's file while a model is served: moved, deleted, damaged, on a full disk, read by several."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest
from http_client import that_adds
from http_server import BEARER, PATIENCE, refused
from small_model import small_model
from small_parts import small_network
from small_runs import small_splits
from synced_files import SyncedFiles

from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Query
from gandalf.serve import journal as journals
from gandalf.serve.journal import Journal
from gandalf.serve.limits import UnavailableError
from gandalf.serve.service import Served, Service

TEXTS = list(small_splits().test.texts[:8])


def service(path, model=None):
    model = model or small_model()
    return Service(Served(Predictor(model)), journal=Journal(path, model))


def predicted(made, text="compress tar"):
    ((answer,),) = made.answer([(Query((text,), 20), False)])
    return [label for label, _ in answer]


# ---- the file goes away, or is spoilt


def moved(path):
    path.rename(path.with_name("elsewhere"))


def deleted(path):
    path.unlink()


def folder_moved(path):
    path.parent.rename(path.parent.with_name("elsewhere"))


def emptied(path):
    path.write_bytes(b"")


def overwritten(path):
    size = path.stat().st_size
    path.write_bytes(b"garbage!\n" * (size // 9 + 1))


def with_a_bad_line(path):
    with open(path, "ab") as file:
        file.write(b"garbage\n")


def changed(path):
    content = path.read_bytes()
    with open(path, "r+b") as file:
        file.write(content.replace(b"kept label", b"lost label"))


def replaced(path):
    path.with_name("new").write_bytes(b"something else\n")
    path.with_name("new").rename(path)


HARMS = [moved, deleted, folder_moved, emptied, overwritten, with_a_bad_line, changed, replaced]


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_predictions_go_on_and_additions_are_refused(harm, tmp_path):
    path = tmp_path / "in" / "added.jsonl"
    path.parent.mkdir()
    with that_adds(path) as client:
        new = {"labels": [{"text": "kept label compress"}]}
        assert client.get("/ready").json() == {"status": "ok", "adding": "on"}
        assert client.post("/labels", json=new, headers=BEARER).status_code == 201
        harm(path)
        for _ in range(2):
            found = client.post("/predict", json={"text": "kept label", "k": 6})
            assert found.status_code == 200 and len(found.json()["results"][0]["labels"]) == 6
            for answer in (
                client.post("/labels", json={"labels": [{"text": "other label"}]}, headers=BEARER),
                client.post(
                    "/examples", json={"examples": [{"text": "gzip", "labels": [0]}]}, headers=BEARER
                ),
                client.delete("/examples/x", headers=BEARER),
            ):
                said = refused(answer, 503)
                assert "journal" in said and "added.jsonl" not in said and answer.headers["retry-after"]
        ready = client.get("/ready")
        assert ready.status_code == 200 and "journal" in ready.json()["adding"]
        assert client.get("/labels", params={"search": "kept"}).json()["all_labels"] == 6


def test_additions_come_back_with_the_file(tmp_path):
    path = tmp_path / "added.jsonl"
    made = service(path)
    made.add([NewLabel("first")])
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(UnavailableError, match="cannot be read"):
        made.add([NewLabel("second")])
    (tmp_path / "elsewhere").rename(path)
    assert made.add([NewLabel("second")]) == [6]
    assert service(path).served.model.label_texts[-2:] == ["first", "second"]


def test_a_mended_file_is_taken_in(tmp_path):
    path = tmp_path / "added.jsonl"
    one, other = service(path), service(path)
    one.add([NewLabel("first")])
    content = path.read_bytes()
    with_a_bad_line(path)
    other.catch_up()
    assert other.trouble() is not None
    path.with_name("mended").write_bytes(content)
    path.with_name("mended").rename(path)
    assert other.add([NewLabel("second")]) == [6] and one.add([NewLabel("third")]) == [7]


def test_good_lines_around_a_bad_one_are_taken_in(tmp_path):
    path = tmp_path / "added.jsonl"
    one, other = service(path), service(path)
    one.add([NewLabel("first one")])
    good = {"labels": [{"text": "second one", "id": None, "examples": [], "neighbours": []}]}
    strange = {"labels": [{"text": 5}]}
    with open(path, "a") as file:
        for line in ("garbage", json.dumps(strange), '{"labels": [{"no": "text"}]}', json.dumps(good)):
            file.write(line + "\n")
    assert {5, 6} <= set(predicted(other))
    assert other.served.model.label_texts[-2:] == ["first one", "second one"]
    with pytest.raises(UnavailableError, match="line 3 "):
        other.add([NewLabel("more")])
    with pytest.raises(DataError, match=r"added.jsonl:3: holds a line that is no change"):
        service(path)


def test_behind_a_bad_line_no_example_gets_another_label(tmp_path):
    """The bad line may have added labels: the next ones have other numbers than they had."""
    path, model = tmp_path / "added.jsonl", small_network()
    one, other = service(path, model), service(path, model)
    last = model.num_labels
    one.add([NewLabel("lost")])
    one.add([NewLabel("second")])
    one.add_examples([Example(TEXTS[0], [last], id="of lost")])
    one.add_examples([Example(TEXTS[1], [3], id="of a known label")])
    lines = path.read_bytes().splitlines(keepends=True)
    with open(path, "r+b") as file:  # as a damaged disk would give it
        file.write(lines[0] + b"x" * (len(lines[1]) - 1) + b"\n" + b"".join(lines[2:]))
    other.catch_up()
    assert list(other.served.model.memory.examples) == ["of a known label"]
    assert other.served.model.label_texts[-1] == "second" and other.trouble() is not None


# ---- a full disk


class Full:
    """A file that takes a few bytes, and then no more."""

    def __init__(self, error):
        self.error = error

    def __call__(self, file, line):
        file.write(line[:10])
        raise OSError(self.error, os.strerror(self.error))


@pytest.mark.parametrize(("error", "status"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EIO, 503)])
def test_a_full_disk_is_told_and_loses_nothing(tmp_path, monkeypatch, error, status):
    path = tmp_path / "added.jsonl"
    with that_adds(path) as client:
        assert client.post("/labels", json={"labels": [{"text": "x"}]}, headers=BEARER).status_code == 201
        before = path.read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr(journals, "_write", Full(error))
            answer = client.post("/labels", json={"labels": [{"text": "y"}]}, headers=BEARER)
            assert str(tmp_path) not in refused(answer, status)
        assert path.read_bytes() == before and client.get("/about").json()["labels"] == 6
        assert client.post("/labels", json={"labels": [{"text": "y"}]}, headers=BEARER).status_code == 201
    assert service(path).served.model.num_labels == 7


def test_a_removal_on_a_full_disk_is_told(tmp_path, monkeypatch):
    path = tmp_path / "added.jsonl"
    with that_adds(path) as client:
        example = {"text": "compress", "labels": [1], "id": "mine"}
        assert client.post("/examples", json={"examples": [example]}, headers=BEARER).status_code == 201

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("gandalf.data.files.sync_path", full)
            refused(client.delete("/examples/mine", headers=BEARER), 507)
        assert client.delete("/examples/mine", headers=BEARER).status_code == 200


# ---- a power cut


def test_what_is_acknowledged_is_synced(tmp_path, monkeypatch):
    """The file with all of its lines; where it is new, its name too."""
    synced, path = SyncedFiles(monkeypatch), tmp_path / "added.jsonl"
    label = {"labels": [{"text": "x"}]}
    examples = {"examples": [{"text": "compress", "labels": [1], "id": id} for id in ("mine", "yours")]}
    with that_adds(path) as client:
        assert synced.holds(path) and synced.holds(tmp_path)
        for body, where in ((label, "/labels"), (examples, "/examples")):
            synced.forget()
            assert client.post(where, json=body, headers=BEARER).status_code == 201
            assert synced.holds(path)
        synced.forget()
        assert client.delete("/examples/mine", headers=BEARER).status_code == 200
        assert synced.holds(path) and synced.holds(tmp_path)  # it was written anew


# ---- several processes


def test_what_another_process_acknowledged_is_known_while_this_one_writes(tmp_path, monkeypatch):
    """A write that takes long keeps nobody from knowing, or from predicting."""
    path = tmp_path / "added.jsonl"
    one, other = service(path), service(path)
    other.add([NewLabel("of the other")])
    writing, go_on, write = threading.Event(), threading.Event(), journals._write

    def slow(file, line):
        write(file, line)
        writing.set()
        assert go_on.wait(PATIENCE)

    monkeypatch.setattr(journals, "_write", slow)
    adding = threading.Thread(target=one.add, args=[[NewLabel("of the one")]])
    adding.start()
    assert writing.wait(PATIENCE)
    assert predicted(one, "of the other")[0] == 5 and one.served.model.num_labels == 6
    go_on.set()
    adding.join(PATIENCE)
    assert one.served.model.label_texts[-2:] == ["of the other", "of the one"]


@pytest.mark.parametrize("look", ["names", "search", "explain", "neighbours", "about"])
def test_every_path_knows_what_another_process_acknowledged(tmp_path, look):
    path = tmp_path / "added.jsonl"
    other = service(path)
    with that_adds(path) as client:
        other.add([NewLabel("of the other")])
        found = {
            "names": lambda: client.post("/predict", json={"text": "gzip", "allow": ["of the other"]}),
            "search": lambda: client.get("/labels", params={"search": "of the other"}),
            "explain": lambda: client.post("/explain", json={"text": "gzip", "label": "of the other"}),
            "neighbours": lambda: client.get("/labels/5/neighbours"),
            "about": lambda: client.get("/about"),
        }[look]()
        assert found.status_code == 200
        assert {
            "names": lambda: found.json()["results"][0]["labels"][0]["label"] == 5,
            "search": lambda: found.json()["labels"][0]["label"] == 5,
            "explain": lambda: found.json()["label"] == 5,
            "neighbours": lambda: found.json()["text"] == "of the other",
            "about": lambda: found.json()["labels"] == 6,
        }[look]()


def test_a_journal_of_before_is_read(tmp_path):
    """As version 0.1 wrote it."""
    path, model = tmp_path / "added.jsonl", small_network()
    header = {"format": "gandalf added labels", "version": 1, **journals._fingerprint(model)}
    label = {"text": "new one", "id": None, "examples": ["an example"], "neighbours": [0]}
    example = {"text": TEXTS[0], "labels": [model.num_labels], "values": [1.0], "id": "mine"}
    records = [header, {"labels": [label]}, {"labels": [], "examples": [example]}, {"removed": []}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    made = service(path, model)
    assert made.served.model.label_texts[-1] == "new one" and made.examples == 1


def test_a_thread_that_looks_while_the_file_is_replaced_sees_nothing_wrong(tmp_path):
    class Watched(Journal):
        """Looks, as a thread that predicts, at the moment at which the file is another one."""

        @property
        def _identity(self):
            return self.__dict__["_identity"]

        @_identity.setter
        def _identity(self, value):
            self.__dict__["_identity"] = value
            if self._file is not None:
                self.is_behind()
                troubles.append(self.trouble)

    troubles = []
    model = small_model()
    service = Service(Served(Predictor(model)), journal=Watched(tmp_path / "added.jsonl", model))
    service.add_examples([Example("compress files", [0], id=f"e{at}") for at in range(3)])
    assert service.remove_example("e1") and len(troubles) >= 2
    assert set(troubles) == {None}


# ---- a look at the file while another thread writes


class WithThread(type(Path())):
    """A path at which another thread does something right after each look."""

    then = staticmethod(lambda: None)

    def stat(self, **more):
        found = super().stat(**more)
        self.then()
        return found


@pytest.mark.parametrize("change", ["add", "remove"])
def test_a_journal_that_grows_during_a_look_is_not_called_shorter(tmp_path, monkeypatch, change):
    """The size is older than the numbers of the thread that writes, if these are read after it."""
    made = service(WithThread(tmp_path / "added.jsonl"))
    made.add([NewLabel("a first label")])
    made.add_examples([Example("compress tar", [5], id="e")])
    journal = made._journal

    def write():
        WithThread.then = staticmethod(lambda: None)
        if change == "add":
            made.add([NewLabel("compress a tree")])
        else:
            assert made.remove_example("e")

    monkeypatch.setattr(WithThread, "then", staticmethod(write))
    journal.is_behind()
    assert journal.trouble is None
    assert made.trouble() is None and not journal.is_behind()
