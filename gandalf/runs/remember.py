"""`gandalf remember`: add a memory to a trained model, fitted on held-out training points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array, eye_array, vstack

from gandalf.augment.label_points import point_texts
from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions
from gandalf.memory.keys import join_keys, keys_of
from gandalf.memory.memory import LABEL, POINT, EntryGroup, Memory, NearestKeys, Record, Voting
from gandalf.metrics.evaluate import Scores
from gandalf.model import Calibration, Mix, ModelWithMemory, Part
from gandalf.model.examples import with_examples_of
from gandalf.model.with_memory import as_queries, networks, reader_of, without_memory
from gandalf.predict.inputs import check_labels
from gandalf.recipe import Recipe
from gandalf.runs.folder import RunPlace
from gandalf.runs.graph import any_label_graph
from gandalf.runs.mix import FittedMix, PartAnswers, answer_held_out_points, fit_mix
from gandalf.runs.session import run_training
from gandalf.runs.validation import HeldAnswers, Trained, key_figures, objective
from gandalf.wide.mixing import PROPOSED

LabelValues = Literal["none", "own", "graph"]  # no label keys; the label itself; its row of the label graph
LABEL_VALUES: tuple[LabelValues, ...] = ("own", "graph", "none")
TEMPERATURES = (0.03, 0.1)
MODEL, MEMORY = "model", "memory"
TOO_KIND = (
    "the memory is fitted on points that the model may have learnt from: there the model looks better than "
    "it is, and the memory gets less weight than it should"
)


@dataclass(frozen=True)
class MemoryOptions:
    """Options of a memory; each combination of them is tried on held-out points."""

    label_values: tuple[LabelValues, ...] = LABEL_VALUES
    temperatures: tuple[float, ...] = TEMPERATURES
    neighbours: int = 50
    graph: GraphOptions = field(default_factory=lambda: GraphOptions(targets="shrunk"))
    reader: str | None = None  # part of a mix whose vectors are the keys; None: the heaviest


@dataclass(frozen=True, eq=False)
class MemoryTrial:
    """A memory that was tried on the held-out points."""

    label_values: LabelValues
    voting: Voting
    fitted: FittedMix

    @property
    def weight(self) -> float:
        """Weight of the memory; 0 if it adds nothing to the model."""
        return self.fitted.shares.get(MEMORY, 0.0)

    @property
    def value(self) -> float:
        """The objective, which the best trial maximises."""
        return objective(self.fitted.scores)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `metrics.json`."""
        voting = {"temperature": self.voting.temperature, "doubt": self.voting.doubt}
        figures = key_figures(self.fitted.scores)
        return {"label_values": self.label_values, **voting, "weight": self.weight, **figures}


@dataclass(frozen=True, eq=False)
class Remembered:
    """A model with a memory, or without if no memory improves it, and the memories that were tried."""

    model: Part
    alone: Scores  # of the model without a memory, on the held-out points
    trials: tuple[MemoryTrial, ...]  # the best first
    points: int  # number of held-out points
    seen: bool  # True if the model may have learnt from these points

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `metrics.json`."""
        return {
            "alone": key_figures(self.alone),
            "chosen": self.trials[0].as_dict(),
            "tried": [trial.as_dict() for trial in self.trials],
            "held_out_points": self.points,
            "may_have_been_seen": self.seen,
        }


def remember(
    model: Part,
    splits: Splits,
    options: MemoryOptions | None = None,
    share: float | None = None,
    seed: int | None = None,
) -> Remembered:
    """Return the model with a memory of the training points; never read the test split.

    The memories that are tried have no keys of the held-out points. The memory that is kept has keys of all
    points. It replaces a memory that the model has already, but keeps the examples in it.
    """
    plain, options = without_memory(model), options or MemoryOptions()
    check_labels(splits, plain)
    answers = answer_held_out_points({MODEL: plain}, splits, share, seed)
    found = add_memory(plain, splits, answers, options)
    return replace(found, model=with_examples_of(found.model, model))


def train_with_memory(splits: Splits, recipe: Recipe, place: RunPlace | None = None) -> Trained:
    """Train by the recipe; add a memory if the recipe asks for one and it improves held-out points."""
    trained = run_training(splits, recipe, place)
    if recipe.memory.kind == "none":
        return trained
    if trained.held is None:
        what = "a memory is fitted on held-out points, and there are none"
        raise DataError(what, remedy="set validation.share to 0.05, or memory.kind to none")
    graph = GraphOptions(targets="shrunk", seed=recipe.seed)
    options = MemoryOptions(neighbours=recipe.memory.neighbours, graph=graph)
    seen = bool(recipe.training.last_stretch)
    answers = PartAnswers(trained.held.splits, {MODEL: trained.held}, seen)
    found = add_memory(trained.model, splits, answers, options)
    forget_texts(found.model)
    held = found.trials[0].fitted.answers
    return replace(trained, model=found.model, memory=found.as_dict(), held=held)


def forget_texts(model: Part) -> None:
    """Drop the vectors of texts that frozen transformers have kept."""
    for network in networks(model):
        network.encoder.forget()


def add_memory(model: Part, splits: Splits, answers: PartAnswers, options: MemoryOptions) -> Remembered:
    """Fit a memory on held-out points that the model has answered."""
    reader = options.reader or (model.lead_name if isinstance(model, Mix) else None)
    vectors = _Vectors(reader_of(model, reader), answers)
    trials = sorted(
        _try_memories(vectors, answers, options),
        key=lambda trial: (-trial.value, trial.weight),
    )
    best = trials[0]
    found = model
    if best.weight:
        memory = vectors.memory(best, splits.train, options)
        found = ModelWithMemory(model, memory, best.weight, best.fitted.calibration, reader)
    alone = answers.answers[MODEL].evaluated()
    return Remembered(found, alone, tuple(trials), len(answers.held), answers.seen)


class _Vectors:
    """Vectors of the rest of the training points, of the held-out points and of the label texts."""

    def __init__(self, model: Part, answers: PartAnswers) -> None:
        self.rest, self.held, self.labels = answers.splits.train, answers.held, list(model.label_texts)
        self.of_rest = as_queries(model.unit_vectors(_texts(self.rest)))
        self.of_held = as_queries(model.unit_vectors(_texts(self.held)))
        self.texts = point_texts(self.rest)  # of the labels
        self.of_labels = as_queries(model.unit_vectors(list(self.texts.texts or ())))

    def block(self, label_values: LabelValues, graph: csr_array | None, every: bool = False) -> EntryGroup:
        """Return the keys of the rest, with `every` of all points, and of labels if they have values."""
        points = [(self.of_rest, self.rest)] + ([(self.of_held, self.held)] if every else [])
        vectors = [each for each, _ in points]
        values = [each.targets for _, each in points]
        records = [Record(text, POINT) for _, each in points for text in _texts(each)]
        if label_values != "none":
            own = csr_array(eye_array(len(self.labels), format="csr"))
            vectors.append(self.of_labels)
            rows = own if label_values == "own" or graph is None else graph
            values.append(csr_array(rows[self.texts.labels]))
            records += [Record(text, LABEL) for text in self.texts.texts or ()]
        stacked = csr_array(vstack(values, format="csr").astype(np.float32))
        return EntryGroup(reduce(join_keys, map(keys_of, vectors)), stacked, tuple(records))

    def memory(self, chosen: MemoryTrial, train: Dataset, options: MemoryOptions) -> Memory:
        """Return the chosen memory with keys of all points."""
        graph = any_label_graph(train, options.graph).matrix if chosen.label_values == "graph" else None
        return Memory((self.block(chosen.label_values, graph, every=True),), chosen.voting)


def _try_memories(vectors: _Vectors, answers: PartAnswers, options: MemoryOptions) -> Iterator[MemoryTrial]:
    """Try every combination of values of label keys, temperature and doubt."""
    graph = any_label_graph(vectors.rest, options.graph).matrix if "graph" in options.label_values else None
    searched: dict[bool, NearestKeys] = {}  # with and without label keys, since the search takes longest
    for label_values in options.label_values:
        memory = Memory((vectors.block(label_values, graph),), Voting(neighbours=options.neighbours))
        with_labels = label_values != "none"
        if with_labels not in searched:
            searched[with_labels] = memory.nearest(vectors.of_held)
        near = searched[with_labels]
        for voting in _votings(near, options):
            of_memory = _memory_answers(Memory(memory.groups, voting), near, answers)
            fitted = fit_mix({MODEL: answers.answers[MODEL], MEMORY: of_memory})
            yield MemoryTrial(label_values, voting, fitted)


def _votings(near: NearestKeys, options: MemoryOptions) -> Iterator[Voting]:
    """Yield votings without doubt, and votings whose doubt is the median cosine of the nearest keys."""
    nearest = near.cosines[:, 0][np.isfinite(near.cosines[:, 0])]
    middle = round(float(np.median(nearest)), 3) if len(nearest) else None
    for temperature in options.temperatures:
        for doubt in dict.fromkeys((None, middle)):
            yield Voting(temperature, options.neighbours, doubt)


def _memory_answers(memory: Memory, near: NearestKeys, answers: PartAnswers) -> HeldAnswers:
    """Return the answers of the memory by itself; the share of its doubt goes to the model's answers."""
    model = answers.answers[MODEL]
    proposed = (model.ids, model.probabilities)
    ids, logits = memory.best_with(proposed, near, 1.0, PROPOSED, answers.held.exclude)
    return HeldAnswers(answers.splits, ids, logits, Calibration())


def _texts(points: Dataset) -> Sequence[str]:
    return points.need_texts("a memory")[0]
