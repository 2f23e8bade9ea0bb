"""A report and its commands in words: columns that are read stand left, and one is not many."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from command_line import done
from tiny_set import write_tiny_set

from gandalf.cli.reproduce import _announce, _tell_end, spoken
from gandalf.data.sentences import weighted_count
from gandalf.lab.blocks import Section, TableBlock, number, words
from gandalf.lab.study_pages import markdown
from gandalf.lab.study_tables import missing


def test_columns_of_words_are_left_aligned():
    rows = ((words("D"), number(1.5), words("holds"), number(None)),)
    text = markdown([Section("A", [TableBlock(("", "P@1", "verdict", "PSP@1"), rows)])], "T")
    assert "| --- | ---: | --- | ---: |" in text.splitlines()


@pytest.mark.parametrize(("value", "said"), [(1.0, "1 point"), (0.5, "0.5 points"), (2, "2 points")])
def test_points_that_weights_have_summed(value, said):
    assert weighted_count(value, "point") == said


def test_one_run_is_not_many(tmp_path, capsys):
    splits, wanted = SimpleNamespace(name="tiny"), SimpleNamespace(folder=tmp_path)
    planned = SimpleNamespace(refused={}, runs=1, left={"a": 1.0}, seconds=1.0, splits=splits, wanted=wanted)
    _announce(planned)
    _tell_end(planned, 0, False)
    said = capsys.readouterr().out
    assert "tiny: 1 run, 0 of them stored already." in said
    assert "1 run is left, which takes about 1 second here." in said and "1 run made, 0 failed." in said
    assert spoken(2) == "2 seconds"
    results = SimpleNamespace(planned=lambda study: 2 if study == "main" else 0, plan=(), lines={"a": 1})
    assert list(missing(results)) == ["main: 2 of 2 runs are still to be made"]
    results.planned = lambda study: int(study == "main")
    assert list(missing(results)) == ["main: 1 of 1 run is still to be made"]


def test_one_point_is_not_many_in_a_check_and_a_graph(tmp_path):
    (tmp_path / "one.csv").write_text("text,labels\nred fish,fish\n", "utf-8")
    assert "prediction: 1 point, exact search" in done("check", tmp_path / "one.csv")
    shown = done("graph", write_tiny_set(tmp_path / "tiny"), "--label", "third label")
    assert "(1 point)" in shown
