"""Studies and their results: keys that stay, data that is told apart, what is kept on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from small_runs import small_splits

import gandalf
from bench.studies import RUN_LISTS as BENCH
from gandalf.errors import DataError
from gandalf.lab.sets import data_hash, fewer_pairs, fewer_points, open_set, parts, short_name
from gandalf.lab.store import (
    StudyRun,
    add_to_plan,
    of_data,
    read_lines,
    read_plan,
    read_predictions,
    write_predictions,
)
from gandalf.lab.studies import ALL, OF_PAPER, STUDIES, StudyScope, entries, named
from gandalf.lab.study_tables import published, sets
from gandalf.lab.variants import Run, recipe_of
from gandalf.metrics.topk import drop_excluded_ids

ENGINE = Path(__file__).parents[2] / "bench" / "results" / "engine"
ASKED = StudyScope("man", ("astec", "inceptionxml"), (0, 1), 9599, 8808, ("encoder.dim=64",))


def test_stored_results_are_still_found():
    lines = read_lines(*sorted(ENGINE.glob("*.jsonl")))
    assert len(lines) > 400
    assert all(Run.of(line["run"]).key == line["key"] for line in lines)
    assert {run.key for run in BENCH["main"]()} <= {line["key"] for line in lines}


def test_rows_of_the_product_are_those_of_the_benches():
    """With the same settings both ask for the same runs, so that neither repeats what the other has made."""
    asked = StudyScope("man", ("inceptionxml",), (0, 1, 2), 9599, 8808, ("text.max_length=16",))
    ours = {entry.run.key for entry in entries(("main", "data"), asked)}
    theirs = {run.key for run in BENCH["main"]() if (run.data, run.system) == ("man", "inceptionxml")}
    once = {run.key for run in BENCH["main"]() if run.keep != "both"}
    assert theirs - once <= ours and len(theirs - once) == 18


@pytest.mark.parametrize("study", STUDIES)
def test_every_row_is_a_recipe_and_rows_differ(study):
    found = entries([study], ASKED)
    assert len({(entry.row, entry.run) for entry in found}) == len(found)
    for entry in found:
        assert recipe_of(entry.run).encoder.dim == 64
        assert entry.run.seed == 0 or not STUDIES[study].first_seed
    by_row = {}
    for entry in found:
        by_row.setdefault((entry.run.system, entry.run.data, entry.run.seed, entry.row), entry.run)
    assert len(set(by_row.values())) == len(by_row)  # no two rows of a table are one run


def test_three_systems_stand_side_by_side_and_renee_with_its_own_label_points():
    found = entries(
        ["qualitative"], replace(ASKED, systems=("renee", "astec", "decaf", "eclare"), seeds=(0,))
    )
    rows = [(entry.run.system, entry.row) for entry in found]
    assert rows == [
        *(("renee", row) for row in ("Z1", "G", "default")),
        *((system, row) for system in ("astec", "decaf") for row in ("D", "G", "default")),
    ]


def test_studies_share_runs():
    every = entries(OF_PAPER, replace(ASKED, systems=("astec",), seeds=(0,)))
    assert len({entry.run for entry in every}) == 55 < len(every)
    g = {entry.run for entry in every if entry.row == "G" and entry.run.data == "man"}
    assert len(g) == 1


def test_names_of_studies():
    assert named("main") == ("main",) and named(ALL) == OF_PAPER and "tuning" not in OF_PAPER
    with pytest.raises(DataError, match="no study 'mian'; choose from main"):
        named("mian")


def test_equal_epochs_mean_fewer_steps():
    runs = {entry.row: entry.run for entry in entries(["main"], ASKED) if entry.run.system == "astec"}
    whole, fewer = (recipe_of(runs[row]).training.epochs for row in ("D", "D, equal epochs"))
    assert fewer == pytest.approx(whole * 9599 / (9599 + 8808), rel=1e-4)


def test_thinning_by_counting():
    points = small_splits().train
    some = fewer_points(points, 0.25)
    assert len(some) == 75 and set(some.texts) <= set(points.texts)
    pairs = fewer_pairs(points, 0.5)
    assert 0.4 < pairs.targets.nnz / points.targets.nnz < 0.6
    assert np.diff(pairs.targets.indptr).min() > 0
    have = {(text, label) for text, label in _pairs(points)}
    assert {(text, label) for text, label in _pairs(pairs)} <= have


def _pairs(points):
    rows = np.repeat(np.arange(len(points)), np.diff(points.targets.indptr))
    return [(points.texts[row], int(label)) for row, label in zip(rows, points.targets.indices, strict=True)]


def test_a_drawn_set_and_what_cannot_be_opened():
    found = open_set("synthetic?points=50&labels=20&labels_per_point=3", "anywhere")
    assert (len(found.train), found.train.num_labels) == (50, 20)
    with pytest.raises(DataError, match="cannot draw"):
        open_set("synthetic?points=50", "anywhere")
    with pytest.raises(DataError, match="no way 'half' to thin"):
        open_set("man?half=0.5", "man")
    assert short_name("man") == "man" and short_name("/some/where/LF-Some-1K/") == "LF-Some-1K"


def test_the_hash_tells_any_other_data(tmp_path):
    splits = small_splits()
    test = splits.test
    pair = csr_array(([True], ([0], [1])), shape=test.targets.shape)
    others = [
        replace(splits, train=splits.train[:-1]),
        replace(splits, train=replace(splits.train, texts=["x", *splits.train.texts[1:]])),
        replace(splits, train=replace(splits.train, label_texts=["x", *splits.train.label_texts[1:]])),
        replace(splits, train=replace(splits.train, targets=splits.train.targets * 0.5)),
        replace(splits, test=replace(test, exclude=pair)),
        replace(splits, test=None),
    ]
    assert len({data_hash(each) for each in [splits, *others]}) == 7
    gandalf.export(splits, tmp_path / "again", "raw")
    assert data_hash(gandalf.load(tmp_path / "again")) == data_hash(splits)


def test_lines_of_other_data_do_not_count():
    run = {"run": {"split": "test"}, "name": "Some", "figures": {"points": 7}}
    held = {**run, "run": {"split": "validation"}, "figures": {"points": 3}}
    lines = [{**run, "data_hash": "a"}, {**run, "data_hash": "b"}, run, {**run, "name": "Other"}, held]
    assert of_data(lines, "Some", "a", 7) == [lines[0], run, held]
    assert of_data(lines, "Some", "b", 8) == [lines[1], held]


def test_plans_and_best_labels_are_read_back(tmp_path):
    run = Run("man", "astec", settings=("a=1",))
    add_to_plan(tmp_path, [StudyRun("main", "D", run)])
    add_to_plan(tmp_path, [StudyRun("main", "D", run), StudyRun("data", "Z", run, ("a=1",))])
    assert read_plan(tmp_path) == [StudyRun("main", "D", run), StudyRun("data", "Z", run, ("a=1",))]
    changed, again = (
        StudyRun("main", "D", replace(run, settings=("a=2",))),
        StudyRun("main", "D", replace(run, seed=1)),
    )
    add_to_plan(tmp_path, [changed, again])
    assert read_plan(tmp_path) == [changed, StudyRun("data", "Z", run, ("a=1",)), again]
    ids = np.arange(24).reshape(2, 12)
    line = {"key": "abc", "data_hash": "0123456789"}
    write_predictions(tmp_path, line, ids)
    assert read_predictions(tmp_path, line).tolist() == ids[:, :10].tolist()
    assert read_predictions(tmp_path, {**line, "data_hash": "other"}) is None


def test_what_the_filter_leaves_keeps_its_order():
    ids = np.array([[4, 2, 0, 1], [3, 1, -1, -1], [0, 1, 2, 3]])
    exclude = csr_array((np.ones(4, dtype=bool), ([0, 1, 1, 2], [2, 1, 3, 4])), shape=(3, 5))
    wanted = [[4, 0, 1, -1], [-1, -1, -1, -1], [0, 1, 2, 3]]
    assert drop_excluded_ids(ids, exclude).tolist() == wanted
    assert drop_excluded_ids(ids, None).tolist() == ids.tolist()


def test_validation_runs_never_see_the_test_split():
    splits = small_splits()
    given, scored = parts(splits, "validation", 0)
    assert given.test is None and len(given.train) + len(scored.test) == len(splits.train)
    rest = {text for text in given.train.texts}
    assert len(rest & set(scored.test.texts)) <= len(set(scored.test.texts))
    given, scored = parts(splits, "test", 0)
    assert given.test is None and given.train is splits.train and scored.test is splits.test


def test_the_papers_figures():
    assert sets() == (
        "LF-AmazonTitles-131K",
        "LF-WikiSeeAlsoTitles-320K",
        "LF-WikiTitles-500K",
        "LF-AmazonTitles-1.3M",
    )
    assert published("LF-AmazonTitles-131K", "main", "astec")["G"]["P@1"] == 43.95
    assert published("LF-WikiSeeAlsoTitles-320K", "data", "inceptionxml")["Z"]["PSP@1"] == 22.03
    assert "P@3" not in published("LF-AmazonTitles-131K", "main", "siamesexml")["D"]  # a misprint
    assert published("LF-ManSeeAlso-9K", "main", "astec") == {}
    rows = [published(name, study, "inceptionxml") for name in sets() for study in STUDIES]
    assert all(0 < value < 100 for table in rows for figures in table.values() for value in figures.values())
