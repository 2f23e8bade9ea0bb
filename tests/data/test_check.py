from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import typer
from command_line import run
from scipy.sparse import csr_array
from typer.testing import CliRunner

from gandalf.cli.main import Commands
from gandalf.data.check import check, inspect
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.forecast import Plan, duration, forecast, size
from gandalf.errors import DataError, Findings

LABELS = [{"uid": "L0", "title": "hat"}, {"uid": "L1", "title": "zip"}, {"uid": "L2", "title": "cat"}]
TRAIN = [
    {"uid": "a", "title": "red hat", "target_ind": [0]},
    {"uid": "b", "title": "gnu zip", "target_ind": [1, 2]},
    {"uid": "c", "title": "a cat", "target_ind": [2], "target_rel": [0.5]},
]
TEST = [{"uid": "d", "title": "blue hat", "target_ind": [0]}]


def raw(folder, train=TRAIN, test=TEST, labels=LABELS):
    """Write a raw folder, plain or with one broken part."""
    for name, rows in (("trn", train), ("tst", test), ("lbl", labels)):
        (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def sparse(folder, targets, features="3 2\n0:1\n1:1\n0:1 1:0.5\n"):
    (folder / "trn_X_Y.txt").write_text(targets)
    (folder / "trn_X_Xf.txt").write_text(features)
    return folder


def with_row(row, **change):
    return [{**one, **change} if i == row else one for i, one in enumerate(TRAIN)]


def truncated(folder):
    content = gzip.compress("".join(json.dumps(row) + "\n" for row in TRAIN * 500).encode())
    raw(folder)
    (folder / "trn.json").unlink()
    (folder / "trn.json.gz").write_bytes(content[: len(content) // 2])
    return folder


def latin1(folder):
    raw(folder)
    lines = (folder / "trn.json").read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b"gnu", b"gn\xfc")
    (folder / "trn.json").write_bytes(b"\n".join(lines))
    return folder


BAD = {
    "index-out-of-range": (lambda f: raw(f, with_row(1, target_ind=[1, 3])), "trn.json:2:", "3 labels"),
    "header-mismatch": (lambda f: sparse(f, "4 3\n0:1\n1:1\n2:1\n"), "trn_X_Y.txt:1:", "4"),
    "bad-number": (lambda f: sparse(f, "3 3\n0:1\n1:one\n2:1\n"), "trn_X_Y.txt:3:", "one"),
    "nan": (lambda f: raw(f, with_row(2, target_rel=[float("nan")])), "trn.json:3:", "nan"),
    "empty-text": (lambda f: raw(f, with_row(0, title="")), "trn.json:1:", "text"),
    "duplicate-label": (lambda f: raw(f, with_row(1, target_ind=[1, 2, 2])), "trn.json:2:", "twice"),
    "label-without-points": (
        lambda f: raw(f, with_row(1, target_ind=[2])),
        "lbl.json:2:",
        "1 of 3 labels have no training point: label 1 'zip'",
    ),
    "train-test-overlap": (
        lambda f: raw(f, test=[*TEST, TRAIN[1]]),
        "tst.json:2:",
        "1 of 2 test points are training points",
    ),
    "unseen-test-label": (
        lambda f: raw(f, with_row(1, target_ind=[2]), [{"uid": "d", "title": "x", "target_ind": [0, 1]}]),
        "lbl.json:2:",
        "1 label of the test points never occurs in training (1 of 2 test positives): label 1 'zip'",
    ),
    "broken-utf8": (latin1, "trn.json:2:", "UTF-8"),
    "truncated-file": (truncated, "trn.json.gz:", "cut short"),
    "bad-json": (
        lambda f: [raw(f), (f / "lbl.json").write_text('{"title": "hat"}\n{oops\n')][0],
        "lbl.json:2:",
        "JSON",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_each_kind_of_bad_input_is_named_with_file_line_and_remedy(tmp_path, kind):
    make, place, words = BAD[kind]
    result = run("check", make(tmp_path))
    assert result.exit_code == 1, result.output
    lines = [line for line in result.stdout.splitlines() if line.endswith(f"[{kind}]")]
    assert lines, result.stdout
    assert place in lines[0]
    assert words in lines[0]
    assert "; " in lines[0], "no remedy"
    assert lines[0].startswith(("error ", "warning "))
    assert "Traceback" not in result.output


FATAL = [
    "index-out-of-range",
    "header-mismatch",
    "bad-number",
    "nan",
    "broken-utf8",
    "truncated-file",
    "bad-json",
]


@pytest.mark.parametrize("kind", FATAL)
def test_other_commands_stop_at_the_first_error_with_one_sentence(tmp_path, kind):
    make, place, words = BAD[kind]
    result = run("stats", make(tmp_path))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert place in result.stderr
    assert words in result.stderr


@pytest.mark.parametrize("kind", sorted(set(BAD) - set(FATAL)))
def test_warnings_do_not_stop_other_commands(tmp_path, kind):
    assert run("stats", BAD[kind][0](tmp_path)).exit_code == 0


def test_a_sound_folder_passes(tmp_path):
    result = run("check", raw(tmp_path))
    assert result.exit_code == 0, result.output
    assert "0 errors, 0 warnings" in result.stdout
    for step in ("graph", "train DATA OUT", "train --system astec", "prediction, CPU", "rough: "):
        assert step in result.stdout


def test_the_bundled_set_passes():
    result = run("check", "man", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["passed"] is True
    assert (report["errors"], report["warnings"]) == (0, 0)
    assert report["counts"]["shared-text"] == 1
    assert report["forecast"]["costs"][0]["step"] == "graph"


def test_several_problems_are_all_reported_errors_first(tmp_path):
    rows = [{**row, "target_ind": [9]} for row in TRAIN * 4]
    report = check(raw(tmp_path, rows))
    assert report.counts["index-out-of-range"] == 12
    assert [problem.kind for problem in report.findings].count("index-out-of-range") == 5
    assert report.number("error") == 12
    assert (
        report.number("warning") == report.counts["label-without-points"] + report.counts["unseen-test-label"]
    )
    weights = [("error", "warning", "note").index(problem.severity) for problem in report.findings]
    assert weights == sorted(weights)
    assert not report.passed
    result = run("check", tmp_path)
    assert "... and 7 more of index-out-of-range" in result.stdout


def test_a_slip_in_the_command_line_is_exit_2(tmp_path):
    assert run("check", tmp_path / "nowhere").exit_code == 2
    (tmp_path / "notes.txt").write_text("hello\n")
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert "notes.txt" in result.stdout  # a folder in no known layout says what was found


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (DataError("the sky fell", remedy="look up"), 2, "error: the sky fell; look up\n"),
        (
            PermissionError(13, "Permission denied", "x.txt"),
            2,
            "error: x.txt: Permission denied\n",
        ),
        (KeyboardInterrupt(), 130, "stopped\n"),
    ],
)
def test_no_failure_of_the_outside_world_shows_a_traceback(failure, code, said):
    commands = typer.Typer(cls=Commands)

    @commands.command()
    def fail():
        raise failure

    commands.command("other")(lambda: None)
    result = CliRunner().invoke(commands, ["fail"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", said)


# ---- checks of the set as a whole


def points(rows, texts=None, ids=None, labels=3):
    matrix = csr_array(np.array([[float(i in row) for i in range(labels)] for row in rows], dtype=np.float32))
    return Dataset(matrix, texts, ["hat", "zip", "cat"] if texts else None, ids=ids)


def kinds(train, test=None):
    findings = Findings(strict=False)
    inspect(Splits(train, test), findings)
    return {problem.kind: problem for problem in findings.problems}


FULL = [[0], [1], [2]]


def test_the_same_title_alone_is_a_note_and_no_overlap():
    found = kinds(
        points(FULL, ["a", "b", "c"], ["1x", "2x", "3x"]), points([[0], [1]], ["A ", "d"], ["4x", "5x"])
    )
    assert set(found) == {"shared-text"}
    assert found["shared-text"].severity == "note"
    assert "1 of 2 test points (50.0%)" in found["shared-text"].what


def test_without_ids_overlap_takes_the_same_text_and_the_same_labels():
    train = points(FULL, ["a", "b", "c"])
    assert "train-test-overlap" not in kinds(train, points([[1]], ["a"]))
    assert "text and labels: 'a'" in kinds(train, points([[0]], ["a"]))["train-test-overlap"].what


def test_row_numbers_as_ids_are_no_overlap():
    train = points(FULL, ["a", "b", "c"], ["0", "1", "2"])
    assert "train-test-overlap" not in kinds(train, points([[0]], ["d"], ["0"]))
    assert "train-test-overlap" in kinds(train, points([[0]], ["a"], ["0"]))  # by text and labels then


def test_empty_texts_are_not_the_same_text():
    assert not set(kinds(points(FULL, ["", "", "b"]), points([[0]], [""]))) & {
        "shared-text",
        "train-test-overlap",
    }


def test_points_without_labels_and_repeated_points_are_notes():
    found = kinds(points([*FULL, [], [1]], ["a", "b", "c", "d", "B"]), points([[]], ["e"]))
    assert {kind: problem.severity for kind, problem in found.items()} == {
        "empty-row": "note",
        "duplicate-point": "note",
    }
    assert "points 1 and 4" in found["duplicate-point"].what


def test_a_missing_filter_is_noted_where_points_could_answer_themselves():
    test = points([[1]], ["hat"])
    assert "no-test-filter" in kinds(points(FULL, ["a", "b", "c"]), test)
    filtered = replace(test, exclude=csr_array(np.array([[True, False, False]])))
    assert "no-test-filter" not in kinds(points(FULL, ["a", "b", "c"]), filtered)


def test_splits_that_count_other_labels_are_an_error():
    with pytest.raises(DataError, match="3 labels and the test points 2"):
        kinds(points(FULL), points([[0]], labels=2))


# ---- forecast

KNOWN = Plan(dimension=10, epochs=2, batch=4, chunk=2, cores=2, cpu_gflops=1.0, gpu_tflops=1.0)


def test_forecast_follows_its_formulas():
    train, test = points([[0], [0, 1], [0, 1, 2]]), points([[0], [1]])
    costs = {cost.step: cost for cost in forecast(Splits(train, test), KNOWN).costs}
    assert costs["graph"].seconds == (1 + 4 + 9) / (60e6 * 2)
    steps = 2 * 2  # epochs x ceil((3 points + 3 label points) / 4)
    assert costs["training, CPU"].seconds == pytest.approx(steps * 6 * 4 * 3 * 10 / 1e9)
    assert costs["training, GPU"].seconds == pytest.approx(steps * 6 * 4 * 3 * 10 / 1e12)
    assert costs["training, CPU"].bytes == 3 * 4 * 3 * 10 + 4 * 4 * 2
    assert costs["prediction, CPU"].seconds == pytest.approx(2 * 2 * 3 * 10 / 1e9)
    alone = forecast(Splits(train), replace(KNOWN, label_points=False)).costs
    assert alone[1].seconds == pytest.approx(2 * 6 * 4 * 3 * 10 / 1e9)


def test_forecast_says_what_will_not_fit_or_end():
    huge = Plan(dimension=10**12, cpu_gflops=1.0, cores=1)
    found = forecast(Splits(points(FULL)), huge)
    remarks = {cost.step: cost.remark for cost in found.costs}
    if found.memory is not None:
        assert "will not fit" in remarks["training, CPU"]
    assert "use a GPU" in remarks["training, CPU"]
    assert "TiB" in remarks["training, GPU"]
    assert remarks["graph"] == ""


def test_forecast_measures_this_machine_when_not_told():
    line = next(a for a in forecast(Splits(points(FULL))).assumptions if a.startswith("CPU"))
    assert "measured just now" in line
    assert float(line.split()[1].replace(",", "")) > 0


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "under 1 s"), (59, "59 s"), (600, "10 min"), (5400, "1.5 h"), (86400 * 20, "20 days")],
)
def test_duration(seconds, said):
    assert duration(seconds) == said


def test_size():
    assert [size(n) for n in (10, 3 * 2**20, 50 * 2**30)] == ["under 1 MiB", "3.0 MiB", "50 GiB"]
