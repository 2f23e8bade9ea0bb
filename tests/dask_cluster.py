"""Two Dask workers on this machine, as tests of the cluster share them, and sets cut into shards."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gandalf.data.dataset import Splits
from gandalf.data.files import written

pytest.importorskip("distributed", reason="the extra [cluster] is not installed")

from gandalf.cluster.client import connected


@pytest.fixture(scope="module")
def client():
    with connected("local", workers=2) as found:
        yield found


@pytest.fixture
def scheduler(client) -> str:
    """Its address."""
    return client.scheduler.address


# Interrupts are ignored where the tests run in the background of a shell, and children inherit that.
_COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from gandalf.cli.main import app
app(sys.argv[1:])
"""


def started(*words: object) -> subprocess.Popen[str]:
    """The command in a process, and a group, of its own, as a terminal would have it."""
    command = [sys.executable, "-c", _COMMAND, *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def same_graph(found, expected) -> bool:
    """Whether two graphs are the same to the last bit, types included."""
    parts = [(getattr(found, name), getattr(expected, name)) for name in ("data", "indices", "indptr")]
    return found.shape == expected.shape and all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in parts
    )


def same_files(found: Path, expected: Path) -> bool:
    """Whether two folders hold the same files, byte for byte."""
    names = [sorted(path.name for path in folder.iterdir()) for folder in (found, expected)]
    assert names[0] == names[1]
    return all((found / name).read_bytes() == (expected / name).read_bytes() for name in names[0])


def write_shards(splits: Splits, folder: Path, cuts=(0, 50, 50, 51, 220), *, ids=True, filters=True) -> Path:
    """The set as JSONL shards cut at these rows, and from there on; a piece may be empty of labels."""
    train = splits.train
    ends = [*cuts, len(train)]
    (folder / "train").mkdir(parents=True)
    (folder / "test").mkdir()
    for split, points, edges in (("train", train, ends), ("test", splits.test, [0, 4, len(splits.test)])):
        for at, (start, end) in enumerate(pairwise(edges)):
            if start < end:
                with written(folder / split / f"part-{at:03}.jsonl.gz") as file:
                    file.writelines(_line(points, row, split, ids) for row in range(start, end))
    with written(folder / "labels.csv") as file:
        file.write("id,text\n")
        file.writelines(f'L{at},"{text}"\n' for at, text in enumerate(train.label_texts))
    if filters:
        (folder / "filter_labels_train.txt").write_text("0 3\n2 1\n55 7\n")
        (folder / "filter_labels_test.txt").write_text("1 2\n")
    return folder


def _line(points, row, split, ids) -> str:
    start, end = points.targets.indptr[row : row + 2]
    known = {"id": f"{split}-{row}"} if ids else {}
    labels = [f"L{label}" for label in points.targets.indices[start:end]]
    values = [float(value) for value in points.targets.data[start:end]]
    return json.dumps(known | {"text": points.texts[row], "labels": labels, "scores": values}) + "\n"
