"""Every study of the paper on a small set, as one command: nothing twice, and a report at the end."""

from __future__ import annotations

import csv
import json
import re
import shutil

import numpy as np
import pytest
from command_line import done, done_json, fails, run

import gandalf
from gandalf.lab import studies
from gandalf.lab.results import Results
from gandalf.lab.store import read_predictions
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import evaluate

pytestmark = pytest.mark.slow

SMALL = [
    word
    for each in ("training.steps=6", "encoder.dim=8", "training.batch=32", "text.max_length=8", "device=cpu")
    for word in ("--set", each)
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "Small-100"
    gandalf.export(gandalf.synthetic(300, 100, seed=1).splits, folder, "raw")
    return folder


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """All studies, once; synonyms only where MiniLM is installed."""
    patch = pytest.MonkeyPatch()
    patch.setattr(studies, "DRAWN", ("synthetic?points=200&labels=60&labels_per_point=2",))
    folder = tmp_path_factory.mktemp("runs") / "runs"
    said = done("reproduce", "all", data, "--seeds", 1, "--out", folder, *SMALL)
    assert re.search(r"49 runs are left, which takes about \d+ seconds? here", said)
    assert "49 runs made, 0 failed" in said
    yield folder
    patch.undo()


def test_what_is_stored_is_not_run_again(runs, data):
    again = done_json("reproduce", "all", data, "--seeds", 1, "--out", runs, *SMALL)
    assert again == {"runs": 49, "made": 0, "failed": 0, "folder": str(runs)}
    other = done_json("reproduce", "delta", data, "--seeds", 2, "--out", runs, *SMALL, "--list")
    assert len(other["left"]) == 7 and all("seed 1" in each for each in other["left"])


def test_other_data_of_the_same_name_is_run(runs, data, tmp_path):
    changed = tmp_path / data.name
    gandalf.export(gandalf.synthetic(300, 100, seed=2).splits, changed, "raw")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "results.jsonl").write_bytes((runs / "results.jsonl").read_bytes())
    left = done_json("reproduce", "delta", changed, "--seeds", 1, "--out", copy, *SMALL, "--list")["left"]
    assert len(left) == 7
    assert not done_json("reproduce", "delta", data, "--seeds", 1, "--out", copy, *SMALL, "--list")["left"]


def test_kept_labels_give_the_stored_figures_again(runs):
    results = Results.read(runs)
    rows = next(iter(results.study("main").values()))
    for row in ("D", "G"):
        found = results.scores(rows[row])
        for name in ("P@1", "P@5", "PSP@5"):
            assert found[name] == pytest.approx(rows[row][0]["figures"][name])
    splits = results.splits("Small-100")
    scores = []
    for row in ("G", "D"):
        ids = read_predictions(runs, rows[row][0])
        scores.append(evaluate((ids, np.tile(-np.arange(10.0), (len(ids), 1))), splits))
    by_hand = compare(*scores)["PSP@5"]
    found = results.contrast(rows["G"], rows["D"], "PSP@5")
    assert (found.difference, found.low, found.high) == (by_hand.difference, by_hand.low, by_hand.high)
    assert found.by == "test points"


def test_curves_memory_and_latency_are_kept(runs):
    results = Results.read(runs)
    for lines in next(iter(results.study("convergence").values())).values():
        assert lines[0]["run"]["split"] == "validation" and len(lines[0]["history"]) >= 1
        assert {"step", "P@1", "PSP@5"} <= lines[0]["history"][0].keys()
    assert all(line["peak_memory"] > 0 and line["latency_ms"] > 0 for line in results.lines.values())
    fact = json.loads((runs / "facts.json").read_text())["sets"]["Small-100"]
    assert fact["neighbours"] and fact["graph_seconds"]["ratio"] > 0


def test_the_page_needs_nothing_else_and_shows_every_study(runs, tmp_path):
    done("report", runs, "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert not re.search(r"(src|href)=\"(?!#)", page) and "http" not in page
    for name in studies.OF_PAPER:
        assert f'<section id="{name}">' in page, name
    assert page.count("<svg") >= 9 and "prefers-color-scheme: dark" in page
    assert "gandalf reproduce all" in page and "torch" in page
    assert page.count("<table") == page.count("</table>") > 12
    assert "$" not in re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL)


def test_markdown_and_csv(runs, tmp_path):
    done("report", runs, "-o", tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text("utf-8")
    widths = [line.count(" | ") for line in text.splitlines() if line.startswith("| C2 ")]
    assert sorted(widths) == [3, 5, 5]  # verdicts, and the numbers behind them with what they rest on
    assert all(f"## {studies.STUDIES[name].title}\n" in text for name in studies.OF_PAPER)
    done("report", runs, "-o", tmp_path / "runs.csv")
    with open(tmp_path / "runs.csv", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    stored = Results.read(runs)
    assert {row["key"] for row in table} == set(stored.lines)
    row = next(each for each in table if (each["study"], each["row"]) == ("main", "G"))
    assert float(row["P@1 new text"]) == stored.lines[row["key"]]["figures"]["new_text"]["P@1"]


def test_several_at_once_give_the_same(runs, data, tmp_path):
    said = done_json("reproduce", "graph", data, "--seeds", 1, "--jobs", 2, "--out", tmp_path / "two", *SMALL)
    assert said["made"] == 6
    one, two = Results.read(runs), Results.read(tmp_path / "two")
    assert all(two.lines[key]["figures"] == one.lines[key]["figures"] for key in two.lines)


def test_rows_that_a_system_cannot_have_are_left_out(data, tmp_path):
    said = done(
        "reproduce", "glas", data, "--systems", "decaf", "--seeds", 1, "--out", tmp_path, *SMALL, "--list"
    )
    assert "left out: decaf: GLaS regulariser (the GLaS regulariser is for free rows" in said
    assert "6 runs, 0 of them stored" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("reproduce", "mian"), "there is no study 'mian'; choose from main"),
        (("reproduce", "main", "--systems", "astc"), "there is no system 'astc'; did you mean astec?"),
        (("reproduce", "main", "--systems", ","), "no system is named"),
        (("reproduce", "main", "nowhere"), "there is no file or folder 'nowhere'"),
        (("reproduce", "cost", "--set", "foo=1"), "there is no setting 'foo'"),
        (("reproduce", "cost", "--set", "encoder.dim=-3"), "encoder.dim"),
        (("reproduce", "cost", "--systems", "parabel"), "compare it by gandalf bench"),
        (
            ("reproduce", "cost", "--systems", "astec", "--set", "system=decaf"),
            "with system=decaf the runs would not be of the system astec",
        ),
        (
            ("reproduce", "cost", "--systems", "decaf,astec", "--set", "head.kind=gated"),
            "with head.kind=gated the runs would not be of the system astec",
        ),
        (("report", "nowhere"), "there is no such folder of runs; make one: gandalf reproduce"),
        (("report", "nowhere", "-o", "a.pdf"), "a report cannot be written as .pdf"),
    ],
)
def test_what_cannot_be_done_is_said(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sentence in fails(*words)
    assert [*tmp_path.iterdir()] == []


def test_a_table_without_a_test_split_is_answered_with_what_this_command_reads(tmp_path):
    table = tmp_path / "some.csv"
    table.write_text("text,labels\nred fish,fish\nred bird,bird\n", "utf-8")
    for more in ((), ("--list",)):
        said = fails("reproduce", "cost", table, "--out", tmp_path / "out", *more)
        assert "has no test split to evaluate on; give a folder with both, such as" in said


def test_only_a_folder_of_its_own_is_written_to(data, tmp_path):
    inside = fails("reproduce", "main", data, "--out", data / "runs")
    assert "is part of the data that is read" in inside and not (data / "runs").exists()
    (tmp_path / "letter.txt").write_text("dear")
    assert "holds letter.txt, which is not part of any study" in fails(
        "reproduce", "main", data, "--out", tmp_path
    )
    looked = tmp_path / "looked"
    done("reproduce", "main", data, "--out", looked, "--list")
    assert not looked.exists()


@pytest.mark.parametrize("line", ['{"a": 1}', '{"key": "x"}', "[]", "3"])
def test_a_line_that_is_no_result_is_named(line, tmp_path):
    (tmp_path / "results.jsonl").write_text(f"\n{line}\n")
    said = fails("report", tmp_path, "-o", tmp_path / "report.md")
    assert "results.jsonl:2" in said and "is no line of results" in said


def test_damaged_predictions_are_named(runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs, copy)
    for path in (copy / "predictions").iterdir():
        path.write_bytes(b"nothing")
    assert "is no file of predictions; remove it" in fails("report", copy, "-o", tmp_path / "report.md")


def test_without_predictions_none_are_shown_side_by_side(runs, tmp_path):
    copy, title = tmp_path / "copy", "## Predictions side by side"
    shutil.copytree(runs, copy)
    for there in (True, False):
        done("report", copy, "-o", tmp_path / "report.md")
        assert (title in (tmp_path / "report.md").read_text()) is there
        shutil.rmtree(copy / "predictions", ignore_errors=True)


@pytest.mark.parametrize("ending", ["html", "md", "csv"])
def test_a_report_replaces_a_report_and_nothing_else(ending, runs, tmp_path):
    out = tmp_path / f"mine.{ending}"
    out.write_text("text,labels\na,b\n")
    assert "exists and is no report" in fails("report", runs, "-o", out)
    assert out.read_text() == "text,labels\na,b\n"
    out.unlink()
    done("report", runs, "-o", out)
    done("report", runs, "-o", out)


def test_an_empty_folder_has_nothing_to_report(tmp_path):
    assert "holds no results" in fails("report", tmp_path)
    assert run("report", tmp_path).exit_code == 2


@pytest.mark.parametrize("systems", ["astec", "astec,inceptionxml", "inceptionxml,decaf"])
def test_no_system_is_trained_by_the_recipe_of_another(systems, data, tmp_path):
    """The file names its system, as for gandalf train: whose settings it has, no other is given."""
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text('system = "inceptionxml"\n', "utf-8")
    (other,) = set(systems.split(",")) - {"inceptionxml"}
    expected = (
        f"{file}: is a recipe of the system inceptionxml, but the system {other} is wanted; "
        "leave out the file or the system"
    )
    for more in ((), ("--list",)):
        words = ("reproduce", "delta", data, "--config", file, "--systems", systems, "--out", out)
        assert fails(*words, *more) == expected
    assert fails("train", data, out, "--config", file, "--system", other) == expected
    assert not out.exists()


def test_a_file_without_a_name_makes_no_system_of_another_kind(data, tmp_path):
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text('[encoder]\nkind = "inception"\n', "utf-8")
    words = ("reproduce", "delta", data, "--config", file, "--systems")
    said = fails(*words, "inceptionxml,astec", "--out", out)
    assert "with encoder.kind=inception the runs would not be of the system astec" in said
    assert not out.exists()
    left = done_json(*words, "inceptionxml", "--seeds", 1, "--out", out, "--list")["left"]
    assert len(left) == 7
