"""The verdict on a system's default: coverage is compared too, over labels and over seeds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from bench.verdict import coverage_contrast, found_labels, judged
from gandalf import Dataset, Splits
from gandalf.lab.results import Results
from gandalf.lab.store import append, write_predictions
from gandalf.lab.variants import Run

TRUTH = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]], dtype=np.float32))
LABELS = ["one", "two", "three", "four"]
MISS = [[3, 3], [3, 0], [3, 2]]  # nothing of what is asked
HIT = [[0, 2], [1, 3], [0, 3]]  # all three labels that are asked, the first two of them in the first place


@pytest.fixture
def results(tmp_path):
    train = Dataset(csr_array(np.eye(4, dtype=np.float32)), LABELS, LABELS)
    splits = Splits(train=train, test=Dataset(TRUTH, ["a", "b", "c"], LABELS), name="four labels")
    return Results(Path(tmp_path), {}, (), {}, _sets={"some": splits})


def line_of(results, targets, seed, ids, figures):
    run = Run("some", "renee", targets, seed=seed)
    line = {"key": run.key, "run": asdict(run), "figures": {**figures, "points": 3}}
    write_predictions(results.folder, line, np.array(ids))
    return line


def test_labels_that_are_found_are_those_that_are_asked(results):
    line = line_of(results, "self", 0, HIT, {})
    assert found_labels(results, line, 1).tolist() == [1.0, 1.0, 0.0]  # label four is in nobody's truth
    assert found_labels(results, line, 2).tolist() == [1.0, 1.0, 1.0]


def test_a_loss_of_coverage_is_real_over_labels_and_seeds(results):
    ones = [line_of(results, "shrunk", seed, MISS, {"C@3": 0.1 * seed}) for seed in (0, 1)]
    others = [line_of(results, "self", seed, HIT, {"C@3": 100 - 0.1 * seed}) for seed in (0, 1)]
    found = coverage_contrast(results, ones, others, "C@3")
    assert found.by == "points and seeds" and found.real and found.difference == pytest.approx(-99.9)
    once = coverage_contrast(results, ones[:1], others[:1], "C@3")
    assert once.by == "test points" and once.difference == pytest.approx(-100.0)
    (results.folder / "predictions").rename(results.folder / "elsewhere")
    assert coverage_contrast(results, ones, others, "C@3").by == "seeds"


def test_places_without_all_predictions_are_not_judged(tmp_path):
    runs = [
        Run("some", "renee", targets, settings=(share,), seed=seed)
        for targets, share in (("shrunk", "targets.label_epochs=0.7"), ("self", "targets.label_epochs=1"))
        for seed in (0, 1)
    ]
    lines = [
        {"key": run.key, "run": asdict(run), "name": "some", "figures": {}, "steps": 1, "recipe": {}}
        for run in runs
    ]
    for line in lines:
        append(tmp_path / "results.jsonl", line)
        write_predictions(tmp_path, line, np.array(HIT))
    assert [(place.data, place.system) for place in judged(Results.read(tmp_path))] == [("some", "renee")]
    next((tmp_path / "predictions").glob(f"{runs[3].key}*")).unlink()
    assert judged(Results.read(tmp_path)) == []
