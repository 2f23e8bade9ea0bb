"""Score a model: on held-out points while it learns and afterwards, against others, on the test split."""

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
from gandalf.metrics.predictions import need_test_points
from gandalf.metrics.topk import keep_first_k
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

PLACES = 20  # labels of each point that figures look at, after the filter
MOST_KEPT = 2 << 30  # bytes of weights that are copied even without patience
FIGURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "C@5")  # of a validation
DECIDING = ("P@1", "PSP@5")  # figures whose mean decides; PSP@5 counts rare labels more
KEY_FIGURES = (*DECIDING, "C@5")  # that tables and messages show


@dataclass(frozen=True, eq=False)
class HeldOutPoints:
    """Held-out points as a network reads them."""

    splits: Splits  # the rest as `train`, the held points as `test`
    tokens: npt.NDArray[np.int32]  # H x T

    @staticmethod
    def of(rest: Dataset, held: Dataset, tokens: Tokens, name: str) -> HeldOutPoints:
        """Return the points held out of a data set; its name decides the constants of propensities."""
        return HeldOutPoints(Splits(train=rest, test=held, name=name), token_table(tokens, held.texts or []))

    @property
    def targets(self) -> csr_array:
        """The targets of the held-out points."""
        assert self.splits.test is not None
        return self.splits.test.targets

    def best_labels(
        self, encoder: nn.Module, head: Table, k: int = PLACES, ranks: Ranks = ONE
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the k best labels of each point and their scores, after the filter."""  # shape: (H, k) each
        assert self.splits.test is not None
        num_labels, exclude = self.targets.shape[1], self.splits.test.exclude
        own = ranks.share(num_labels)
        if exclude is not None and ranks.world > 1:
            exclude = csr_array(exclude[:, own])
        vectors = encode_tokens(encoder, self.tokens)
        return merge_best_labels(ranks, *top_k(vectors, head, min(k, num_labels), exclude=exclude), own)

    def scores(self, encoder: nn.Module, head: Table, ranks: Ranks = ONE) -> Scores:
        """Return all figures."""
        return evaluate(self.best_labels(encoder, head, ranks=ranks), self.splits)


class Validate:
    """Hook that scores the held-out points, keeps the best weights and, with patience, ends the stage.

    The first validation scores the start, so no run ends worse than it began. Without patience the last
    weights stay unless earlier ones were better by more than the standard error of the figure: the best of
    many validations on few points is luck.
    """

    def __init__(self, held: HeldOutPoints, options: Validation, every: int, keep: bool = True) -> None:
        self.held, self.options, self.steps, self.keep = held, options, every, keep
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] | None = None  # the best weights, in the host's memory
        self.points = 0  # number of points that decide

    def every(self, training: Training) -> int:
        """Return the number of steps between two validations."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Score the held-out points; return True if patience has run out."""
        scores = self.held.scores(training.encoder, training.head.plain(), training.ranks)
        part = deciding_subset(scores, self.options.texts)
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
        if self.best_place == len(self.history) - 1 and self._copies_weights(training):
            self.best = {name: tensor.cpu().clone() for name, tensor in training.weights().items()}
        return self.over

    def _copies_weights(self, training: Training) -> bool:
        """Return True if the best weights are copied: always with patience, else up to MOST_KEPT bytes."""
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
    def best_place(self) -> int:
        """Place of the best validation in the history, the first of equals."""
        return int(np.argmax([each["value"] for each in self.history]))

    def restore(self, training: Training) -> None:
        """Restore the best weights if the last are worse by more than noise; mark their validation `kept`."""
        if self.best is None or not self.history:
            return
        best, last = self.history[self.best_place], self.history[-1]
        value = float(best["value"])
        noise = max(value * (100 - value), 0.0) ** 0.5 / max(self.points, 1) ** 0.5
        if self.options.patience or value - float(last["value"]) > noise:
            training.load_weights(self.best)
            best["kept"] = True


FEW = 100  # held-out points: a subset with fewer decides nothing
TEXTS: dict[Judged, str] = {"new": "new texts", "label": "texts of labels", "all": "all texts"}

Model = TypeVar("Model", bound=Hashable)


def deciding_subset(scores: Scores, texts: Judged) -> SubsetFigures:
    """Return the figures on the subset that decides, or on all points if it has fewer than FEW."""
    part = {"new": scores.new_text, "label": scores.label_text, "all": scores.filtered}[texts]
    return scores.filtered if part is None or part.points < FEW else part


@dataclass(frozen=True)
class Judge:
    """Compare models by one figure, on all held-out points or a subset of them."""

    metric: str
    texts: Judged
    points: int

    @staticmethod
    def of(scores: Scores, options: Validation) -> Judge:
        """Return the judge that the options ask for; use all points if the subset has fewer than FEW."""
        part = deciding_subset(scores, options.texts)
        return Judge(options.metric, "all" if part is scores.filtered else options.texts, part.points)

    @property
    def by(self) -> str:
        """The figure and the points, in words."""
        return f"{self.metric} on {TEXTS[self.texts]}"

    def difference(self, one: Scores, other: Scores) -> Difference:
        """Return one minus other, with its confidence interval."""
        found = compare(one, other)
        part = {"new": found.new_text, "label": found.label_text, "all": found.every}[self.texts]
        assert part is not None
        return part[self.metric]

    def best(self, scores: Mapping[Model, Scores], start: Model) -> Model:
        """Return the model with the largest gain over `start` beyond noise, or `start` if there is none.

        Held-out points are few, so without this rule the best model would be a matter of luck.
        """
        found = {each: self.difference(scores[each], scores[start]) for each in scores if each != start}
        better = {each: gain.difference for each, gain in found.items() if gain.low > 0}
        return max(better, key=better.__getitem__, default=start)


TOP = 100  # labels predicted for each test point, after its filter


def test_scores(model: Part, splits: Splits) -> Scores | None:
    """Return the figures on the test split; None without a test split."""
    if splits.test is None:
        return None
    ids, scores = test_predictions(model, splits)
    return evaluate((keep_first_k(ids, splits.test.exclude, TOP), scores), splits)


def test_predictions(model: Part, splits: Splits) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the best labels of the test points and their scores, before the filter if it takes few."""
    test = need_test_points(splits)
    texts, _ = test.need_texts("testing")
    spare = 0 if test.exclude is None else int(np.diff(test.exclude.indptr).max(initial=0))
    # With `spare` more labels in each list, `evaluate` can apply the filter and also score without it. If the
    # filter takes very many labels, the lists would be too long, so it is applied first.
    first = test.exclude if spare > TOP else None
    k = min(TOP + (spare if first is None else 0), model.num_labels)
    return Predictor(model).predict(texts, k, first)


def key_figures(scores: Scores) -> dict[str, float]:
    """Return the figures that tables show, by name."""
    return {name: scores[name] for name in KEY_FIGURES}


def objective(scores: Scores) -> float:
    """Return the mean of the deciding figures, which a search and a mix maximise."""
    return sum(scores[name] for name in DECIDING) / len(DECIDING)


@dataclass(frozen=True, eq=False)
class HeldAnswers:
    """Answers of a model to held-out points, before it learns from these points, and their targets."""

    splits: Splits  # the rest as `train`, the held points as `test`
    ids: npt.NDArray[np.int64]  # best labels of each held-out point after the filter; shape: (H, k)
    scores: npt.NDArray[np.float32]  # before calibration; shape: (H, k)
    calibration: Calibration

    @property
    def held(self) -> Dataset:
        """The held-out points."""
        assert self.splits.test is not None
        return self.splits.test

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """The calibrated scores."""  # shape: (H, k)
        return self.calibration(self.scores)

    def evaluated(self) -> Scores:
        """Return all figures on the held-out points."""
        return evaluate((self.ids, self.scores), self.splits)


def calibrated_answers(
    splits: Splits, ids: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]
) -> HeldAnswers:
    """Return answers to the held-out points in `splits.test`, with a calibration fitted to their targets."""
    assert splits.test is not None
    held = splits.test
    calibration = fit_calibration(ids[:, :PLACES], scores[:, :PLACES], held.targets, held.exclude)
    return HeldAnswers(splits, ids, scores, calibration)


def pooled(trials: Sequence[HeldAnswers]) -> HeldAnswers:
    """Join the answers of models of one recipe, each to held-out points of its own."""
    first = trials[0]
    held = reduce(add, (each.held for each in trials))
    width = min(each.ids.shape[1] for each in trials)
    ids = np.concatenate([each.ids[:, :width] for each in trials])
    scores = np.concatenate([each.scores[:, :width] for each in trials])
    return calibrated_answers(replace(first.splits, test=held), ids, scores)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model and the course of its training."""

    model: Part
    history: list[dict[str, Any]]  # figures of each validation
    seconds: float
    steps: int
    details: dict[str, Any] = field(default_factory=dict)  # of the label graph
    points: int = 0  # training points that the model learnt from
    label_points: int = 0
    taken_over: dict[str, Any] | None = None  # facts of a first stage that another run trained
    held: HeldAnswers | None = None  # None if no points were held out
    memory: dict[str, Any] | None = None  # memories that were tried; None if the recipe asks for none
    shortened: bool = False  # True if a deadline ended a stage early

    @property
    def kept(self) -> dict[str, Any] | None:
        """The validation of the weights of this model; None if its stage had no validation."""
        last = [each for each in self.history if "stage" not in each]  # without those of earlier stages
        if not last:
            return None
        return next((each for each in last if each.get("kept")), last[-1])
