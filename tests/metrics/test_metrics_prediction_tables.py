"""Tables of predictions, as `gandalf predict -o` writes them, score like the matrix that they hold."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import python
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.metrics.predictions import as_predictions

TEXTS = ["gzip a folder", "=1+1", "free disk space"]
HEADER = "row,uid,text,rank,label,label_id,label_text,score\n"
LINES = (
    "0,,gzip a folder,1,1,1,zip,0.75\n0,,gzip a folder,2,0,0,pack,0.5\n2,,free disk space,1,2,2,disk,0.25\n"
)
WANT = [[0.5, 0.75, 0], [0, 0, 0], [0, 0, 0.25]]


@pytest.fixture
def splits():
    def points(texts):
        return Dataset(
            csr_array((len(texts), 3), dtype=np.float32), texts=texts, label_texts=["pack", "zip", "disk"]
        )

    return Splits(train=points(["a", "b"]), test=points(TEXTS), name="toy")


def test_a_csv_file(splits, tmp_path):
    (tmp_path / "p.csv").write_text(HEADER + LINES)
    assert as_predictions(tmp_path / "p.csv", splits).toarray().tolist() == WANT


def test_a_parquet_file(splits, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an optional extra")
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is an optional extra")
    columns = {"row": [0, 0, 2], "label": [1, 0, 2], "score": np.array([0.75, 0.5, 0.25], np.float32)}
    parquet.write_table(pyarrow.table(columns), tmp_path / "p.parquet")
    assert as_predictions(tmp_path / "p.parquet", splits).toarray().tolist() == WANT


def test_an_escaped_formula_is_its_text(splits, tmp_path):
    (tmp_path / "p.csv").write_text(HEADER + "1,,'=1+1,1,2,2,disk,0.5\n")
    assert as_predictions(tmp_path / "p.csv", splits).toarray()[1].tolist() == [0, 0, 0.5]


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        (HEADER + "3,,x,1,1,1,zip,0.5\n", ("p.csv:2:", "row 3", "3 points")),
        (HEADER + LINES + "0,,gzip a folder,3,3,3,no,0.5\n", ("p.csv:5:", "label number 3", "3 labels")),
        (HEADER + "0,,gzip a folder,1,one,1,zip,0.5\n", ("p.csv:2:", "label", "whole numbers")),
        (HEADER + "0,,gzip a folder,1,1,1,disk,0.5\n", ("p.csv:2:", "'disk' here", "'zip' in the data set")),
        (HEADER + "0,,free disk space,1,1,1,zip,0.5\n", ("p.csv:2:", "text 0 is 'free disk space'")),
        (HEADER + LINES + "2,,free disk space,2,2,2,disk,0.1\n", ("p.csv", "twice")),
        (HEADER + "0,,gzip a folder,1,1,1,zip,nan\n", ("p.csv", "NaN")),
        ("text,labels\na,b\n", ("p.csv", "no column 'row'")),
    ],
)
def test_bad_tables(lines, facts, splits, tmp_path):
    (tmp_path / "p.csv").write_text(lines)
    with pytest.raises(DataError) as caught:
        as_predictions(tmp_path / "p.csv", splits)
    assert all(fact in str(caught.value) for fact in facts), caught.value


@pytest.mark.slow
def test_evaluate_reads_what_predict_writes(tmp_path):
    code = "from gandalf.cli.main import app; import sys; app(sys.argv[1:])"
    train = "text,labels\n" + "".join(
        f"{word} a folder,{word}\n" for word in ["gzip", "zip", "tar", "pack"] * 5
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text(train)
    (tmp_path / "data" / "test.csv").write_text("text,labels\ngzip my folder,gzip\ntar all,tar\n")
    data, model = tmp_path / "data", tmp_path / "model"
    trained = python(code, "train", data, model, "--system", "astec", "--steps", "5", "--validation", "0")
    assert trained.returncode == 0, trained.stderr
    printed = []
    for name in ("p.npz", "p.csv", "p.parquet", "p.jsonl"):
        assert python(code, "predict", model, data, "-o", tmp_path / name).returncode == 0
        done = python(code, "evaluate", tmp_path / name, data, "--json")
        assert done.returncode == 0, f"{name}: {done.stderr}"
        printed.append(done.stdout)
    assert len(set(printed)) == 1
