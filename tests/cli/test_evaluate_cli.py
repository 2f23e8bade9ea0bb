"""`gandalf evaluate` on the bundled data: the JSON that scripts rely on, the tables, and the sentences."""

from __future__ import annotations

from functools import partial

import command_line
import metric_loops as loops
import numpy as np
import pytest
from scipy.sparse import csr_array, load_npz, save_npz

from gandalf.data.dataset import binary_pairs
from gandalf.data.load import load

KS = (1, 3, 5)
NAMES = {f"{m}@{k}" for m in ("P", "nDCG", "PSP", "PSnDCG", "R", "C", "macroP") for k in KS} | {"MRR"}
SUMS = {name for name in NAMES if not name.startswith(("C@", "macroP@"))}

run = partial(command_line.run, "evaluate")
run_json = partial(command_line.done_json, "evaluate")
fails = partial(command_line.fails, "evaluate")


@pytest.fixture(scope="module")
def splits():
    return load("man")


@pytest.fixture(scope="module")
def files(splits, tmp_path_factory):
    """Two prediction files over the bundled test points, the first of which knows more of the truth."""
    folder = tmp_path_factory.mktemp("predictions")
    test, paths = splits.test, {}
    for name, knows in (("good", 0.6), ("poor", 0.2)):
        rng = np.random.default_rng(len(name))
        rows = np.repeat(np.arange(len(test)), 8)
        labels = rng.integers(test.num_labels, size=len(rows))
        guesses = binary_pairs(rows, labels, test.targets.shape).astype(np.float32) * np.float32(0.5)
        known = test.targets.copy()
        known.data = (rng.random(known.nnz) < knows) * rng.random(known.nnz).astype(np.float32)
        tempting = test.exclude.astype(np.float32) * np.float32(0.8)  # so that the filter matters
        paths[name] = folder / f"{name}.npz"
        save_npz(paths[name], csr_array(guesses + known + tempting))
    return paths


def test_json_has_every_figure_and_they_equal_the_nested_loops(files, splits):
    found = run_json(files["good"], "man")
    assert set(found) >= NAMES | {
        "unfiltered",
        "label_text",
        "new_text",
        "bins",
        "propensity",
        "points",
        "labels",
    }
    assert found["propensity"] == {"A": 0.55, "B": 1.5, "from": "default"}
    test, scores = splits.test, load_npz(files["good"])
    weights = [
        loops.inverse_propensity(f, len(splits.train), 0.55, 1.5) for f in splits.train.label_frequencies
    ]
    truth, excluded = _rows(test.targets), _rows(test.exclude)
    rows = [
        dict(zip(_row(scores.indices, scores, row), _row(scores.data, scores, row), strict=True))
        for row in range(len(test))
    ]
    for filtered, values in ((True, found), (False, found["unfiltered"])):
        rankings = [
            loops.ranked(row, out if filtered else ()) for row, out in zip(rows, excluded, strict=True)
        ]
        for k in KS:
            assert values[f"P@{k}"] == pytest.approx(loops.precision(rankings, truth, k))
            assert values[f"nDCG@{k}"] == pytest.approx(loops.ndcg(rankings, truth, k))
            assert values[f"PSP@{k}"] == pytest.approx(loops.psp(rankings, truth, k, weights))
            assert values[f"PSnDCG@{k}"] == pytest.approx(loops.psndcg(rankings, truth, k, weights))
            assert values[f"R@{k}"] == pytest.approx(loops.recall(rankings, truth, k))
            assert values[f"C@{k}"] == pytest.approx(loops.coverage(rankings, truth, k))
        assert values["MRR"] == pytest.approx(loops.mrr(rankings, truth))
    assert found["P@1"] > found["unfiltered"]["P@1"] + 1  # the tempting pairs are filtered


def test_json_split_by_text_adds_up(files):
    found = run_json(files["good"], "man")
    known, new = found["label_text"], found["new_text"]
    assert known["points"] + new["points"] == found["points"] == 3207
    assert round(known["points"] / found["points"], 3) == 0.532  # what the set's own stats.json says
    both = known["P@5"] * known["points"] + new["P@5"] * new["points"]
    assert both / found["points"] == pytest.approx(found["P@5"])
    assert sum(each["contribution"] for each in found["bins"]) == pytest.approx(found["P@5"])
    assert sum(each["labels"] for each in found["bins"]) == found["labels"] == 8808


def test_json_with_another_set(files):
    found = run_json(files["good"], "man", "--other", files["poor"], "--seed", 1)
    assert found["other"]["P@1"] == run_json(files["poor"], "man")["P@1"]
    assert set(found["difference"]) == SUMS | {"label_text", "new_text"}
    first = found["difference"]["P@1"]
    assert set(first) == {"difference", "low", "high", "p", "real"}
    assert first["difference"] == pytest.approx(found["P@1"] - found["other"]["P@1"])
    assert first["real"] is True and first["low"] > 0
    assert found["difference"]["new_text"]["P@1"]["real"] is True
    assert found == run_json(files["good"], "man", "--other", files["poor"], "--seed", 1)


def test_k_and_propensity_options(files):
    found = run_json(files["good"], "man", "--k", 2, "--A", 0.6, "--B", 2.6)
    assert "P@2" in found and "P@1" not in found
    assert found["propensity"] == {"A": 0.6, "B": 2.6, "from": "given"}


def test_the_constants_say_where_they_come_from(tmp_path):
    folder = tmp_path / "LF-AmazonTitles-131K.raw"
    folder.mkdir()
    for name in ("trn", "tst"):
        (folder / f"{name}.json").write_text('{"uid": "x", "title": "a", "target_ind": [0]}\n')
    (folder / "lbl.json").write_text('{"uid": "y", "title": "b"}\n')
    (tmp_path / "p.jsonl").write_text('{"labels": [0]}\n')
    assert "A = 0.6, B = 2.6 (by the set's name)" in run(tmp_path / "p.jsonl", folder).stdout
    assert "A = 0.6, B = 2 (given)" in run(tmp_path / "p.jsonl", folder, "--B", 2).stdout
    assert run_json(tmp_path / "p.jsonl", folder)["propensity"] == {"A": 0.6, "B": 2.6, "from": "name"}


def test_k_beyond_all_labels_still_divides_by_k(files):
    found = run_json(files["good"], "man", "--k", 8808, "--k", 999_999)
    assert found["P@999999"] == pytest.approx(found["P@8808"] * 8808 / 999_999)
    assert found["R@999999"] == pytest.approx(found["R@8808"]) and found["R@8808"] > 50


def test_tables_for_people(files):
    result = run(files["good"], "man", "--other", files["poor"])
    assert result.exit_code == 0, result.output
    for words in ("filtered", "unfiltered", "text is a label's", "new text", "PSnDCG@5", "mean frequency"):
        assert words in result.stdout
    assert "A = 0.55, B = 1.5 (default)" in result.stdout
    assert "all points: P@1 the first is better by" in result.stdout and "and that is real" in result.stdout
    same = run(files["good"], "man", "--other", files["good"])
    assert "P@1 differs by +0.00, which may be chance" in same.stdout


def test_bad_input_is_one_sentence_and_exit_2(files, splits, tmp_path):
    train_shape = (len(splits.train), splits.train.num_labels)
    save_npz(tmp_path / "train.npz", csr_array(train_shape))
    (tmp_path / "bad.jsonl").write_text('{"labels": [1]}\n{"labels": [99999]}\n')
    stored = dict(np.load(files["good"]))
    jump = np.where(np.arange(len(stored["indptr"])) == 1000, 10**6, stored["indptr"])
    np.savez(tmp_path / "jump.npz", **{**stored, "indptr": jump})
    np.savez(tmp_path / "complex.npz", **{**stored, "data": stored["data"] * 1j})
    damaged = bytearray(files["good"].read_bytes())
    damaged[5000:5020] = bytes(20)
    (tmp_path / "damaged.npz").write_bytes(damaged)
    only_train = tmp_path / "only-train"
    only_train.mkdir()
    (only_train / "trn.json").write_text('{"uid": "x", "title": "a", "target_ind": [0]}\n')
    (only_train / "lbl.json").write_text('{"uid": "y", "title": "b"}\n')
    cases = {
        (tmp_path / "train.npz", "man"): "these are predictions for the 9,599 training points",
        (tmp_path / "bad.jsonl", "man"): "bad.jsonl:2: label number 99999 is out of range",
        (tmp_path / "none.npz", "man"): "no such file",
        (tmp_path / "jump.npz", "man"): "jump.npz: the sparse matrix is damaged",
        (tmp_path / "complex.npz", "man"): "complex.npz: the sparse matrix holds complex",
        (tmp_path / "damaged.npz", "man"): "damaged.npz: cannot be read as a SciPy sparse matrix",
        (files["good"], "man", "--A", 1000): "A = 1000, B = 1.5 give propensities too small to compute with",
        (files["good"], "man", "--k", 10**20): "k must be at most 2,147,483,647",
        (files["good"], only_train): "has no test split to evaluate on",
    }
    for arguments, sentence in cases.items():
        assert sentence in fails(*arguments)


def test_bad_usage_exits_2(files):
    assert run(files["good"], "man", "--k", 0).exit_code == 2
    assert run(files["good"]).exit_code == 2


def _row(values, matrix, row):
    return values[matrix.indptr[row] : matrix.indptr[row + 1]].tolist()


def _rows(matrix):
    return [set(_row(matrix.indices, matrix, row)) for row in range(matrix.shape[0])]


def test_places_that_a_file_leaves_empty_are_named(splits, tmp_path):
    lines = '{"labels": [7, 3, 5]}\n' * (len(splits.test) - 1) + '{"labels": [1]}\n'
    (tmp_path / "three.jsonl").write_text(lines)
    found = run_json(tmp_path / "three.jsonl", "man")
    assert found["most_labels"] == 3
    said = command_line.done("evaluate", tmp_path / "three.jsonl", "man")
    assert "more than 3 labels predicted: figures @5 count" in said
    assert "predicted: figures" not in command_line.done(
        "evaluate", tmp_path / "three.jsonl", "man", "--k", 3
    )
