"""What a run refuses, and that it works however small the data are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from small_runs import small, small_splits, weights

import gandalf
from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.recipe import Recipe
from gandalf.runs.checks import LIMITS, METRICS, check_recipe
from gandalf.runs.session import run_training
from gandalf.settings import override
from gandalf.train.loop import Training


@pytest.fixture
def splits() -> Splits:
    return small_splits()


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_is_that_of_a_setting(name):
    with pytest.raises(DataError, match=f"the setting '{name}' is -1.*, but it must be"):
        check_recipe(override(Recipe(), [f"{name}=-1"]))
    check_recipe(Recipe())


def test_the_figures_that_may_decide_are_those_that_there_are(splits):
    truth = splits.test.targets
    assert set(METRICS) == set(gandalf.evaluate(truth, splits).filtered.values)


@pytest.mark.parametrize("value", ["inf", "-inf", "0", "0.0", "1e308", "1000001"])
def test_epochs_are_a_positive_number(value):
    said = f"'training.epochs' is {float(value)}, but it must be greater than 0 and at most 1,000,000"
    said = re.escape(said)
    with pytest.raises(DataError, match=said):
        check_recipe(override(Recipe(), [f"epochs={value}"]))


@pytest.mark.parametrize("name", sorted(LIMITS.keys() - {"validation.metric"}))  # which is a word
@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_what_is_not_finite_is_refused_as_it_is_written(value, name):
    """Infinity is greater than 0: a sentence that asks for no more would leave nobody wiser."""
    with pytest.raises(DataError) as refused:
        check_recipe(override(Recipe(), [f"{name}={value}"]))
    kinds = ("a whole number", "a number")
    plain = {f"the setting '{name}' must be {kind}, not {value}" for kind in kinds}
    limit = f"the setting '{name}' is {value}, but it must be {LIMITS[name][0]}"
    assert str(refused.value) in {*plain, limit}
    if str(refused.value) == limit:
        phrase = LIMITS[name][0]
        assert phrase.startswith("in ") or phrase.endswith(" and finite") or " at most " in phrase


@pytest.mark.parametrize("value", [float("inf"), float("nan"), np.float32("inf"), np.float64("-inf")])
def test_a_keyword_that_is_not_finite_is_refused_as_a_setting_is(value, splits):
    with pytest.raises(DataError, match=rf"'training.epochs' (is|must be a number, not) {value}(,|$)"):
        gandalf.train(splits, small(), epochs=value)


@pytest.mark.parametrize("system", ["astec", "inceptionxml"])
@pytest.mark.parametrize("kind", ["every", "shortlist"])
@pytest.mark.parametrize(("points", "labels"), [(1, 1), (1, 3), (5, 1), (3, 2)])
def test_however_small(points, labels, kind, system):
    texts = [f"text {number}" for number in range(points)]
    targets = gandalf.Dataset(np.eye(1, labels).repeat(points, axis=0)).targets
    data = Splits(Dataset(targets, texts, [f"label {number}" for number in range(labels)]))
    settings = ("validation.share=0", f"labels.kind={kind}", "training.steps=3", "training.batch=7")
    chosen = small(*settings, system=system)
    if points == 1 and system == "inceptionxml":
        assert len(data.train) == 1  # with label points there are more, but they are left out here
        with pytest.raises(DataError, match="compares the points of an update, and one is too few"):
            run_training(data, override(chosen, ["targets.targets=none"]))
    trained = run_training(data, chosen)
    assert trained.steps == 3 and all(each.isfinite().all() for each in weights(trained).values())


def test_an_inception_of_too_few_numbers(splits):
    with pytest.raises(DataError, match=r"need words of at least 64 numbers, not 63; set encoder.dim to 64"):
        run_training(splits, small("encoder.dim=63", system="inceptionxml"))


def test_empty_texts_are_texts(splits):
    texts = ["", " ", *splits.train.texts[2:]]
    data = replace(
        splits, train=replace(splits.train, texts=texts, label_texts=["", *splits.train.label_texts[1:]])
    )
    assert run_training(data, small("training.steps=3")).steps == 3


def test_without_texts_or_labels_there_is_nothing_to_learn(splits):
    with pytest.raises(DataError, match="training needs texts, and this data set has none"):
        run_training(Splits(Dataset(splits.train.targets)), small())
    empty = Dataset(splits.train.targets * 0, splits.train.texts, splits.train.label_texts)
    with pytest.raises(DataError, match="no training point has a label"):
        run_training(Splits(empty), small())


def test_counts_are_no_targets(splits):
    """Without label points, too, where no graph looks at them."""
    counts = replace(splits.train, targets=3 * splits.train.targets)
    with pytest.raises(DataError, match=r"targets lie between 1 and 3, not in \(0, 1\]; divide counts"):
        run_training(Splits(counts), small("targets.targets=none"))


def test_a_training_that_goes_astray_is_ended(splits, monkeypatch):
    train_batch = Training._train_batch

    def astray(self, batch, with_loss):
        if self.step == 5:
            self.head.rows.data[3] = float("nan")
        train_batch(self, batch, with_loss)

    monkeypatch.setattr(Training, "_train_batch", astray)
    with pytest.raises(DataError, match="the loss at step 6 is no number any more; learn more slowly"):
        run_training(splits, small("labels.kind=every"))
