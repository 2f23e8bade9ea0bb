"""A folder of shards is the same data set as one file."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from command_line import fails

import gandalf
from gandalf.data.formats.table_paths import shards
from gandalf.errors import DataError

ROWS = [
    {"id": f"p{at}", "text": f"text {at}", "labels": labels, "scores": scores}
    for at, (labels, scores) in enumerate(
        [(["a", "b"], [1, 0.5]), ([], []), (["c"], [0.25]), (["b"], [1]), (["a", "c"], [1, 1])]
    )
]


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def write_labels(folder):
    folder.mkdir(exist_ok=True)
    (folder / "labels.csv").write_text("id,text\na,first\nb,second\nc,third\n")


def sharded(folder, cuts=(0, 2, 3, 5), suffix=".jsonl"):
    write_labels(folder)
    for at, (start, end) in enumerate(pairwise(cuts)):
        write_lines(folder / "train" / f"part-{at}{suffix}", ROWS[start:end])
    write_lines(folder / "test" / "part-0.jsonl", ROWS[:1])
    write_lines(folder / "test" / "part-1.jsonl", ROWS[1:2])
    return folder


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize("with_labels", [True, False])
def test_shards_are_read_as_one_table(tmp_path, suffix, with_labels):
    folder = sharded(tmp_path / "cut", suffix=suffix)
    write_labels(tmp_path / "whole")
    write_lines(tmp_path / "whole" / "train.jsonl", ROWS)
    write_lines(tmp_path / "whole" / "test.jsonl", ROWS[:2])
    if not with_labels:
        for name in ("cut", "whole"):
            (tmp_path / name / "labels.csv").unlink()
    (folder / "train" / "_SUCCESS.json").write_text("not a shard")
    cut, whole = gandalf.load(folder), gandalf.load(tmp_path / "whole")
    assert cut.train == whole.train and cut.test == whole.test and len(cut.test) == 2
    assert cut.train.ids == [row["id"] for row in ROWS]
    assert replace(whole, name="cut", findings=cut.findings).layout == cut.layout == "table"


def test_parquet_shards(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    folder = sharded(tmp_path / "cut")
    for at, path in enumerate(shards(folder)):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        table = arrow.Table.from_pylist(rows)
        path.unlink()
        parquet.write_table(table, path.with_name(f"part-{at}.parquet"))
    assert gandalf.load(folder).train == gandalf.load(sharded(tmp_path / "lines")).train


def test_grades_of_all_shards_have_one_scale(tmp_path):
    folder = sharded(tmp_path / "cut")
    write_lines(folder / "train" / "part-9.jsonl", [{"id": "x", "text": "y", "labels": ["a"], "scores": [4]}])
    assert gandalf.load(folder).train.targets.data.tolist() == [0.25, 0.125, 0.0625, 0.25, 0.25, 0.25, 1.0]


def test_a_bad_line_names_its_shard(tmp_path):
    folder = sharded(tmp_path / "cut")
    bad = folder / "train" / "part-1.jsonl"
    bad.write_text('{"id": "p", "text": "t", "labels": [], "scores": []}\nnot json\n')
    assert fails("graph", folder).startswith(f"{bad}:2: the line is no JSON object")


def test_ids_stand_in_every_shard_or_in_none(tmp_path):
    folder = sharded(tmp_path / "cut")
    write_lines(folder / "train" / "part-3.jsonl", [{"text": "t", "labels": ["a"], "scores": [1]}])
    with pytest.raises(DataError, match=r"part-3\.jsonl: has no column of ids, unlike the first shard"):
        gandalf.load(folder)


def test_a_file_beside_the_shards_is_refused(tmp_path):
    folder = sharded(tmp_path / "cut")
    write_lines(folder / "train.jsonl", ROWS)
    with pytest.raises(DataError, match=r"train: is a folder of shards beside the file train\.jsonl"):
        gandalf.load(folder)


def test_an_empty_folder_is_no_shards(tmp_path):
    (tmp_path / "train").mkdir()
    assert shards(tmp_path) == ()
    with pytest.raises(DataError, match="no layout that can be read"):
        gandalf.load(tmp_path)
