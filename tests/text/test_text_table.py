from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gandalf
from gandalf.errors import DataError
from gandalf.text import workers as pool
from gandalf.text.subwords import Subwords, SubwordsOptions
from gandalf.text.table import token_table
from gandalf.text.words import Words, WordsOptions
from gandalf.text.workers import map_chunks

TEXTS = ["a b a b a b", "a b", "", "b a a", "c", "a a a"] * 3
KINDS = {
    "words": lambda texts: Words.fit(texts, WordsOptions(max_length=20)),
    "subwords": lambda texts: Subwords.fit(texts, SubwordsOptions(max_length=20)),
}


@pytest.fixture(scope="module")
def man():
    return list(gandalf.load("man").train.texts)


@pytest.mark.parametrize("kind", KINDS)
def test_table_is_the_encoding_without_empty_columns(kind, man):
    tokens = KINDS[kind](man)
    for texts in (man[:50], man[:1], [""], ["", man[0]]):
        table, full = token_table(tokens, texts), tokens.encode(texts)
        width = max(np.count_nonzero(ids) for ids in full)
        assert table.dtype == np.int32 and table.tolist() == full[:, :width].tolist()
    assert token_table(tokens, []).shape == (0, 1)


@given(st.lists(st.text("ab ", max_size=10), max_size=9), st.integers(1, 4))
def test_chunks_do_not_show(tmp_path_factory, texts, chunk):
    tokens = Words.fit(["a b"] * 2)
    whole = token_table(tokens, texts)
    path = tmp_path_factory.mktemp("table") / "ids.npy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "CHUNK", chunk)
        assert token_table(tokens, texts).tolist() == whole.tolist()
        assert token_table(tokens, texts, path=path).tolist() == whole.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_workers_do_not_show(kind, man, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "CHUNK", 300)
    man = man[:2_000]
    tokens = KINDS[kind](man)
    alone = token_table(tokens, man, workers=0)
    assert np.array_equal(token_table(tokens, man, workers=3), alone)
    mapped = token_table(tokens, man, workers=1, path=tmp_path / "ids.npy")
    assert isinstance(mapped, np.memmap) and np.array_equal(mapped, alone)
    assert np.array_equal(np.load(tmp_path / "ids.npy"), alone)
    assert [path.name for path in tmp_path.iterdir()] == ["ids.npy"]


def test_texts_may_be_read_as_they_are_needed(monkeypatch):
    monkeypatch.setattr(pool, "CHUNK", 2)
    tokens, read = Words.fit(TEXTS), []

    class Lazily:
        def __len__(self):
            return len(TEXTS)

        def __iter__(self):
            for text in TEXTS:
                read.append(text)
                yield text

    results = map_chunks(tokens.encode, Lazily(), "tokens", workers=2)
    next(results)
    assert len(read) <= 2 * 6 < len(TEXTS)  # two chunks for each worker, and the one in hand
    results.close()
    assert token_table(tokens, Lazily()).tolist() == token_table(tokens, TEXTS).tolist()


def test_a_table_appears_wholly_or_not_at_all(tmp_path):
    def broken():
        yield from TEXTS
        raise OSError("the disk is gone")

    with pytest.raises((OSError, DataError), match="disk is gone"):
        token_table(Words.fit(TEXTS), broken(), path=tmp_path / "ids.npy")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        token_table(Words.fit(TEXTS), TEXTS, path=tmp_path / "nowhere" / "ids.npy")


def die(parent: int, texts):
    """Kill the process that runs this, unless it is the parent."""
    if os.getpid() != parent:
        os._exit(9)
    return len(texts)


def fail(texts):
    raise DataError("texts are too short")


def test_dead_workers_are_replaced_by_this_process(monkeypatch):
    monkeypatch.setattr(pool, "CHUNK", 4)
    path = [str(Path(__file__).parent), *sys.path]  # where workers find this very file
    monkeypatch.setattr(sys, "path", path)
    assert list(map_chunks(partial(die, os.getpid()), TEXTS, "", workers=2)) == [4, 4, 4, 4, 2]


def test_an_error_in_a_worker_is_the_callers():
    with pytest.raises(DataError, match="too short"):
        list(map_chunks(fail, TEXTS, "", workers=2))


def test_a_task_that_cannot_travel_is_done_here():
    assert list(map_chunks(lambda texts: len(texts), TEXTS, "", workers=2)) == [len(TEXTS)]


def test_no_processes_to_be_had(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr(pool.subprocess, "Popen", refuse)
    assert list(map_chunks(len, TEXTS, "", workers=2)) == [len(TEXTS)]


def test_workers_do_the_work_and_go_away(monkeypatch, tmp_path):
    monkeypatch.setattr(pool, "CHUNK", 1)
    monkeypatch.setenv("WORKERS_MET", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    seen = Counter(map_chunks(who, TEXTS, "", workers=2))
    assert os.getpid() not in seen and len(seen) == 2
    for number in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def who(texts):
    """Wait until another worker has a chunk, too, which may be long after on a machine that is busy."""
    met, end = Path(os.environ["WORKERS_MET"]), time.monotonic() + 120
    (met / str(os.getpid())).touch()
    while len(list(met.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    return os.getpid()


def test_many_texts_are_worth_workers(monkeypatch):
    monkeypatch.setattr(pool, "cores", lambda: 4)
    assert pool._worker_count(None, pool.MANY) == 4 and pool._worker_count(None, pool.MANY - 1) == 0
    assert pool._worker_count(3, 1) == 3 and pool._worker_count(0, pool.MANY) == 0


def test_a_script_without_a_guard_runs_once(tmp_path):
    """Workers must not run the caller's script again, as `multiprocessing` does."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "print('begins', flush=True)\n"
        "from gandalf.text.table import token_table\n"
        "from gandalf.text.words import Words, WordsOptions\n"
        "print(token_table(Words.fit(['a b'] * 9, WordsOptions(pieces=0)), ['b a'], workers=2).tolist())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == "begins\n[[3, 2]]\n" and done.stderr == ""
