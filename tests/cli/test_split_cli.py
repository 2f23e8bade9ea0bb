"""`gandalf split`: the parts are those of `holdout`, and what needs a test split works on what it wrote."""

from __future__ import annotations

import csv
from functools import partial

import command_line
import numpy as np
import pytest

import gandalf
from gandalf.data.holdout import hold_out_points

done_json = partial(command_line.done_json, "split")
fails = partial(command_line.fails, "split")


@pytest.fixture
def alone(tmp_path):
    """A table of texts and labels without a test split; each label stands at twenty points."""
    path = tmp_path / "alone.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "labels"])
        rows.writerows([f"text {n // 2}", f"label {n % 6}"] for n in range(120))
    return path


@pytest.mark.parametrize("format", ["raw", "jsonl"])
def test_the_parts_are_those_of_the_library(alone, tmp_path, format):
    found = done_json(alone, tmp_path / "out", "--share", 0.2, "--seed", 3, "--format", format)
    points = gandalf.load(alone).train
    parts = hold_out_points(points, 0.2, 3, at_most=None)
    assert found["train"] == len(parts.rest) == 96 and found["test"] == len(parts.held) == 24
    splits = gandalf.load(tmp_path / "out")
    assert list(splits.train.texts) == list(parts.rest.texts)
    assert list(splits.test.texts) == list(parts.held.texts)
    assert not {*splits.train.texts} & {*splits.test.texts}
    order = [list(splits.train.label_texts).index(text) for text in points.label_texts]
    for written, expected in ((splits.train, parts.rest), (splits.test, parts.held)):
        assert np.array_equal(written.targets.toarray()[:, order], expected.targets.toarray())


def test_what_it_refuses(alone, tmp_path):
    assert "has a test split already" in fails("man", tmp_path / "out")
    assert "between 0 and 1" in fails(alone, tmp_path / "out", "--share", 1.5)
    assert "is part of the data that is read" in fails(alone, alone)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    assert "not empty" in fails(alone, tmp_path / "full")
    assert not (tmp_path / "out").exists()


def test_who_needs_a_test_split_names_the_command(alone, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"labels": [0]}\n')
    for words in (("evaluate", tmp_path / "p.jsonl", alone), ("reproduce", "main", alone, "--list")):
        assert "gandalf split DATA OUT" in command_line.fails(*words)
