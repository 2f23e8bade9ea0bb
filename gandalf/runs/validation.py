"""Figures of a model: while it learns, of held-out points afterwards, against others, and of a test split."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from torch import Tensor, nn

from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import Difference, compare
from gandalf.metrics.evaluate import Scores, SubsetFigures, evaluate
from gandalf.metrics.predictions import first_after_filter, test_points
from gandalf.model import Calibration, Part
from gandalf.model.calibration import fit_calibration
from gandalf.model.exact import top_k
from gandalf.nets.encoders import encode_tokens
from gandalf.nets.heads import Table
from gandalf.predict.predictor import Predictor
from gandalf.recipe import Judged, Validation
from gandalf.text.table import token_table
from gandalf.text.tokens import Tokens
from gandalf.train.loop import Training
from gandalf.train.parallel.gather import merge_best_labels
from gandalf.train.parallel.ranks import ONE, Ranks

PLACES = 20  # labels looked at of each point; the filter has been applied before
MOST_KEPT = 2 << 30  # bytes of weights that are copied without being asked for
FIGURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "C@5")


@dataclass(frozen=True, eq=False)
class Held:
    """Held-out points as the model reads them."""

    splits: Splits  # the rest as `train`, the held points as `test`
    tokens: npt.NDArray[np.int32]  # N x T

    @staticmethod
    def of(rest: Dataset, held: Dataset, tokens: Tokens, name: str) -> Held:
        """Points held out of a data set of that name, which the propensities' constants go by."""
        return Held(Splits(train=rest, test=held, name=name), token_table(tokens, held.texts or []))

    @property
    def targets(self) -> csr_array:
        """What the held points are asked for."""
        assert self.splits.test is not None
        return self.splits.test.targets

    def top(
        self, encoder: nn.Module, head: Table, k: int = PLACES, ranks: Ranks = ONE
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The best labels of the held points, its filter applied."""  # shape: (N, k), (N, k)
        assert self.splits.test is not None
        num_labels, exclude = self.targets.shape[1], self.splits.test.exclude
        own = ranks.share(num_labels)
        if exclude is not None and ranks.world > 1:
            exclude = csr_array(exclude[:, own])
        vectors = encode_tokens(encoder, self.tokens)
        return merge_best_labels(ranks, *top_k(vectors, head, min(k, num_labels), exclude=exclude), own)

    def scores(self, encoder: nn.Module, head: Table, ranks: Ranks = ONE) -> Scores:
        """All figures."""
        return evaluate(self.top(encoder, head, ranks=ranks), self.splits)


class Validate:
    """Hook that scores the held points, keeps the best weights and, with patience, stops in time.

    The start is the first of the validations, so no run ends worse than it began. Without patience the last
    weights stay unless earlier ones were better by more than the standard error of the figure: the best of
    many validations on few points is luck.
    """

    def __init__(self, held: Held, options: Validation, every: int, keep: bool = True) -> None:
        self.held, self.options, self.steps, self.keep = held, options, every, keep
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] | None = None  # weights, in the host's memory
        self.points = 0  # that decide

    def every(self, training: Training) -> int:
        """Number of steps between two validations."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Score; True when the figure has not risen for too long."""
        scores = self.held.scores(training.encoder, training.head.plain(), training.ranks)
        part = judged(scores, self.options.texts)
        if self.options.metric not in part.values:
            raise DataError(f"there is no figure {self.options.metric!r}", remedy=f"try {', '.join(FIGURES)}")
        figures = {name: scores[name] for name in FIGURES}
        of_parts = {
            name: found.values.get("P@1")
            for name, found in (("label_text", scores.label_text), ("new_text", scores.new_text))
            if found is not None
        }
        value = part.values[self.options.metric]
        self.history.append({"step": training.all_steps, "value": value, **figures, **of_parts})
        self.points = part.points
        if self.place == len(self.history) - 1 and self._keeps(training):
            self.best = {name: tensor.cpu().clone() for name, tensor in training.weights().items()}
        return self.over

    def _keeps(self, training: Training) -> bool:
        """Return True if the best weights get a copy: always with patience, else up to MOST_KEPT bytes."""
        if not self.keep:
            return False
        size = sum(each.numel() * each.element_size() for each in training.weights().values())
        return bool(self.options.patience) or size <= MOST_KEPT

    @property
    def over(self) -> bool:
        """Return True if patience has run out; the start does not count as a validation without a rise."""
        values = [each["value"] for each in self.history[1:]]
        if not self.options.patience or not values:
            return False
        return len(values) - 1 - int(np.argmax(values)) >= self.options.patience

    @property
    def place(self) -> int:
        """Which validation was the best, the first of equals."""
        return int(np.argmax([each["value"] for each in self.history]))

    def restore(self, training: Training) -> None:
        """Put the best weights back if they are to be kept, and mark their validation as `kept`."""
        if self.best is None or not self.history:
            return
        found, last = self.history[self.place], self.history[-1]
        value = float(found["value"])
        noise = max(value * (100 - value), 0.0) ** 0.5 / max(self.points, 1) ** 0.5
        if self.options.patience or value - float(last["value"]) > noise:
            training.load_weights(self.best)
            found["kept"] = True


FEW = 100  # held-out points: a share with fewer decides nothing, and all points decide instead
TEXTS: dict[Judged, str] = {"new": "new texts", "label": "texts of labels", "all": "all texts"}

Model = TypeVar("Model", bound=Hashable)


def judged(scores: Scores, texts: Judged) -> SubsetFigures:
    """The part of the points that decides, or all where it is too small to decide anything."""
    part = {"new": scores.new_text, "label": scores.label_text, "all": scores.filtered}[texts]
    return scores.filtered if part is None or part.points < FEW else part


@dataclass(frozen=True)
class Judge:
    """By which figure and on which of the held-out points models are compared."""

    metric: str
    texts: Judged
    points: int

    @staticmethod
    def of(scores: Scores, options: Validation) -> Judge:
        """All points decide where there are too few of those that are to."""
        part = judged(scores, options.texts)
        return Judge(options.metric, "all" if part is scores.filtered else options.texts, part.points)

    @property
    def by(self) -> str:
        """What decides, in words."""
        return f"{self.metric} on {TEXTS[self.texts]}"

    def difference(self, one: Scores, other: Scores) -> Difference:
        """One minus other, and how far that may be noise."""
        found = compare(one, other)
        part = {"new": found.new_text, "label": found.label_text, "all": found.every}[self.texts]
        assert part is not None
        return part[self.metric]

    def best(self, scores: Mapping[Model, Scores], start: Model) -> Model:
        """The model that beats the one to start from by more than noise, and most so; else that one.

        Held-out points are few, and whatever came first on them would else be luck.
        """
        found = {each: self.difference(scores[each], scores[start]) for each in scores if each != start}
        better = {each: gain.difference for each, gain in found.items() if gain.low > 0}
        return max(better, key=better.__getitem__, default=start)


TOP = 100  # labels predicted for each test point, after its filter


def test_scores(model: Part, splits: Splits) -> Scores | None:
    """How well the model does on the test split, if there is one; None otherwise."""
    if splits.test is None:
        return None
    ids, scores = test_predictions(model, splits)
    return evaluate((first_after_filter(ids, splits.test.exclude, TOP), scores), splits)


def test_predictions(model: Part, splits: Splits) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The best labels of the test points and their scores, with some that the filter will take."""
    test = test_points(splits)
    texts, _ = test.need_texts("testing")
    spare = 0 if test.exclude is None else int(np.diff(test.exclude.indptr).max(initial=0))
    # With as many labels to spare as the filter takes at most, `evaluate` applies it and tells the figures
    # without it too. Where it takes very many, lists would be too long, and it is applied first.
    first = test.exclude if spare > TOP else None
    k = min(TOP + (spare if first is None else 0), model.num_labels)
    return Predictor(model).predict(texts, k, first)


def test_figures(model: Part, splits: Splits) -> dict[str, Any] | None:
    """The same as plain numbers."""
    scores = test_scores(model, splits)
    return None if scores is None else scores.as_dict()


@dataclass(frozen=True, eq=False)
class HeldAnswers:
    """What a model said of held-out points before it learnt from them, and what is true of them."""

    splits: Splits  # the rest as `train`, the held points as `test`
    ids: npt.NDArray[np.int64]  # best labels of each held point, the filter applied; shape: (H, k)
    scores: npt.NDArray[np.float32]  # before calibration; shape: (H, k)
    calibration: Calibration

    @property
    def held(self) -> Dataset:
        """The held points."""
        assert self.splits.test is not None
        return self.splits.test

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """The calibrated scores."""  # shape: (H, k)
        return self.calibration(self.scores)

    def evaluated(self) -> Scores:
        """Return all figures on the held points."""
        return evaluate((self.ids, self.scores), self.splits)


def answers_of(splits: Splits, ids: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]) -> HeldAnswers:
    """Return answers for the test points of `splits`, calibrated by the truth."""
    assert splits.test is not None
    held = splits.test
    calibration = fit_calibration(ids[:, :PLACES], scores[:, :PLACES], held.targets, held.exclude)
    return HeldAnswers(splits, ids, scores, calibration)


def pooled(trials: Sequence[HeldAnswers]) -> HeldAnswers:
    """Return the answers of models that were trained alike, each on its own held points, as of one model."""
    one = trials[0]
    held = reduce(add, (each.held for each in trials))
    width = min(each.ids.shape[1] for each in trials)
    ids = np.concatenate([each.ids[:, :width] for each in trials])
    scores = np.concatenate([each.scores[:, :width] for each in trials])
    return answers_of(replace(one.splits, test=held), ids, scores)


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run gives: the model and the course of its training."""

    model: Part
    history: list[dict[str, Any]]  # of the validations
    seconds: float
    steps: int
    details: dict[str, Any] = field(default_factory=dict)  # of the label graph
    points: int = 0  # training points that were trained on
    label_points: int = 0
    taken_over: dict[str, Any] | None = None  # of a first stage that another run had made
    held: HeldAnswers | None = None  # None: no points were held out
    memory: dict[str, Any] | None = None  # what was tried to make one; None: none was asked for
    shortened: bool = False  # a stage ended early, since the time was up

    @property
    def kept(self) -> dict[str, Any] | None:
        """The validation of the weights that were kept: the one marked so, else the last."""
        last = [
            each for each in self.history if "stage" not in each
        ]  # of earlier stages no weights were kept
        if not last:
            return None
        return next((each for each in last if each.get("kept")), last[-1])
