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
from gandalf.memory.memory import LABEL, POINT, Block, Memory, NearestKeys, Record, Voting
from gandalf.metrics.evaluate import Scores
from gandalf.model import Calibration, Mix, ModelWithMemory, Part
from gandalf.model.examples import with_examples_of
from gandalf.model.with_memory import as_queries, networks, reader_of, without_memory
from gandalf.predict.inputs import check_labels
from gandalf.recipe import Recipe
from gandalf.runs.folder import RunPlace
from gandalf.runs.graph import any_label_graph
from gandalf.runs.mix import Asked, Fitted, fit_mix, held_points
from gandalf.runs.session import train
from gandalf.runs.trees import FIGURES
from gandalf.runs.validation import HeldAnswers, Trained
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
    """What may be chosen from: each combination is tried on held-out points."""

    label_values: tuple[LabelValues, ...] = LABEL_VALUES
    temperatures: tuple[float, ...] = TEMPERATURES
    neighbours: int = 50
    graph: GraphOptions = field(default_factory=lambda: GraphOptions(targets="shrunk"))
    reader: str | None = None  # part of a mix whose vectors are the keys; None: the heaviest


@dataclass(frozen=True, eq=False)
class Trial:
    """A memory that was tried on the held-out points."""

    label_values: LabelValues
    voting: Voting
    fitted: Fitted

    @property
    def weight(self) -> float:
        """Weight of the memory; 0 if it adds nothing to the model."""
        return dict(zip(self.fitted.names, self.fitted.weights, strict=True)).get(MEMORY, 0.0)

    @property
    def value(self) -> float:
        """What is maximised: the mean of P@1 and PSP@5."""
        return (self.fitted.scores["P@1"] + self.fitted.scores["PSP@5"]) / 2

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `metrics.json`."""
        figures = {name: self.fitted.scores[name] for name in FIGURES}
        voting = {"temperature": self.voting.temperature, "doubt": self.voting.doubt}
        return {"label_values": self.label_values, **voting, "weight": self.weight, **figures}


@dataclass(frozen=True, eq=False)
class Remembered:
    """A model with a memory, or as it was if no memory adds anything, and what was tried."""

    model: Part
    alone: Scores  # of the model without a memory, on the held-out points
    trials: tuple[Trial, ...]  # the best first
    points: int  # that were held out
    seen: bool  # True if the model may have learnt from these points

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `metrics.json`."""
        return {
            "alone": {name: self.alone[name] for name in FIGURES},
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
    """Return the model with a memory of the training points; the test split is not read.

    The keys that are tried are those of the points that are not held out. The memory that is kept has keys of
    all points. A memory that the model has already is replaced, and the examples in it are kept.
    """
    plain, options = without_memory(model), options or MemoryOptions()
    check_labels(splits, plain)
    asked = held_points({MODEL: plain}, splits, share, seed)
    found = add_memory(plain, splits, asked, options)
    return replace(found, model=with_examples_of(found.model, model))


def train_with_memory(splits: Splits, recipe: Recipe, place: RunPlace | None = None) -> Trained:
    """Train by the recipe, and add a memory if the recipe asks for one and held-out points gain by it."""
    trained = train(splits, recipe, place)
    if recipe.memory.kind == "none":
        return trained
    if trained.held is None:
        what = "a memory is fitted on held-out points, and there are none"
        raise DataError(what, remedy="set validation.share to 0.05, or memory.kind to none")
    graph = GraphOptions(targets="shrunk", seed=recipe.seed)
    options = MemoryOptions(neighbours=recipe.memory.neighbours, graph=graph)
    asked = Asked(trained.held.splits, {MODEL: trained.held}, seen=bool(recipe.training.last_stretch))
    found = add_memory(trained.model, splits, asked, options)
    forget_texts(found.model)
    answers = found.trials[0].fitted.answers
    return replace(trained, model=found.model, memory=found.as_dict(), held=answers)


def forget_texts(model: Part) -> None:
    """Drop the vectors that a frozen transformer has kept of the texts that it has read."""
    for network in networks(model):
        network.encoder.forget()


def add_memory(model: Part, splits: Splits, asked: Asked, options: MemoryOptions) -> Remembered:
    """Fit a memory on held points whose answers by the model are known."""
    reader = options.reader or (model.lead_name if isinstance(model, Mix) else None)
    vectors = _Vectors(reader_of(model, reader), asked)
    trials = sorted(_trials(vectors, asked, options), key=lambda trial: (-trial.value, trial.weight))
    best = trials[0]
    found = model
    if best.weight:
        memory = vectors.memory(best, splits.train, options)
        found = ModelWithMemory(model, memory, best.weight, best.fitted.calibration, reader)
    alone = asked.answers[MODEL].evaluated()
    return Remembered(found, alone, tuple(trials), len(asked.held), asked.seen)


class _Vectors:
    """Vectors of training points that are not held out, of the held points and of the label texts."""

    def __init__(self, model: Part, asked: Asked) -> None:
        self.rest, self.held, self.labels = asked.splits.train, asked.held, list(model.label_texts)
        self.of_rest = as_queries(model.unit_vectors(_texts(self.rest)))
        self.of_held = as_queries(model.unit_vectors(_texts(self.held)))
        self.texts = point_texts(self.rest)  # of the labels
        self.of_labels = as_queries(model.unit_vectors(list(self.texts.texts or ())))

    def block(self, label_values: LabelValues, graph: csr_array | None, every: bool = False) -> Block:
        """Return the keys of the rest, or of every point, and of the labels if these have values."""
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
        return Block(reduce(join_keys, map(keys_of, vectors)), stacked, tuple(records))

    def memory(self, chosen: Trial, train: Dataset, options: MemoryOptions) -> Memory:
        """Return the memory that was chosen, with keys of every point."""
        graph = any_label_graph(train, options.graph).matrix if chosen.label_values == "graph" else None
        return Memory((self.block(chosen.label_values, graph, every=True),), chosen.voting)


def _trials(vectors: _Vectors, asked: Asked, options: MemoryOptions) -> Iterator[Trial]:
    """Yield every combination of values of label keys, temperature and doubt."""
    graph = any_label_graph(vectors.rest, options.graph).matrix if "graph" in options.label_values else None
    found: dict[bool, NearestKeys] = {}  # by whether there are label keys: the search takes longest
    for label_values in options.label_values:
        memory = Memory((vectors.block(label_values, graph),), Voting(neighbours=options.neighbours))
        with_labels = label_values != "none"
        if with_labels not in found:
            found[with_labels] = memory.nearest(vectors.of_held)
        near = found[with_labels]
        for voting in _votings(near, options):
            answers = _answers(Memory(memory.blocks, voting), near, asked)
            fitted = fit_mix({MODEL: asked.answers[MODEL], MEMORY: answers})
            yield Trial(label_values, voting, fitted)


def _votings(near: NearestKeys, options: MemoryOptions) -> Iterator[Voting]:
    """Yield votings without doubt, and with a doubt as near as the nearest key of half the points."""
    nearest = near.cosines[:, 0][np.isfinite(near.cosines[:, 0])]
    middle = round(float(np.median(nearest)), 3) if len(nearest) else None
    for temperature in options.temperatures:
        for doubt in dict.fromkeys((None, middle)):
            yield Voting(temperature, options.neighbours, doubt)


def _answers(memory: Memory, near: NearestKeys, asked: Asked) -> HeldAnswers:
    """Return what the memory says by itself, where its doubt speaks for the model."""
    model = asked.answers[MODEL]
    proposed = (model.ids, model.probabilities)
    ids, logits = memory.best_with(proposed, near, 1.0, PROPOSED, asked.held.exclude)
    return HeldAnswers(asked.splits, ids, logits, Calibration())


def _texts(points: Dataset) -> Sequence[str]:
    return points.need_texts("a memory")[0]
