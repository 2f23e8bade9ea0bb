"""Make rows and biases of labels that a model was not trained on.

The direction of a new row is a weighted sum of three unit vectors:
- the ridge map from label texts to learned rows;
- the discriminant of the label's text and of its examples;
- the mean row of its neighbours, known labels that are like it.

Length and bias decide how a new label ranks against known labels. They are fitted on the known labels: rows
are made for known labels in the same way, each without its own learned row, and must give the probabilities
of the learned rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from gandalf.model.calibration import minimise
from gandalf.model.row_map import Floats, Ints, Matrix, RowMap, fit_row_map

# Weights of the three vectors, chosen on labels and points held out of training (docs/lab/new_labels.md).
# The label's own text counts like an example; the map counts by the variance that it explains.
TEXT, NEIGHBOUR = 1.0, 0.5
MOST_OF_MAP = 100.0  # the map's weight if it explains all variance
QUERIES = 1_024  # texts of known labels on which probabilities are compared
BLOCK = 4_096  # labels that are scored against the queries at once
BINS = 4_096  # bins of scores; finer bins would not change the two fitted numbers
HALVINGS = 50  # steps of a bisection


@dataclass(frozen=True, eq=False)
class Known:
    """Known labels: the vectors of their texts, their learned rows and their biases."""

    vectors: Matrix  # shape: (L, dim)
    rows: Matrix  # shape: (L, dim)
    biases: Matrix  # shape: (L,)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Texts, examples and neighbours of new labels, as vectors."""

    vectors: Matrix  # of the label texts; shape: (C, dim)
    example_sums: Matrix  # sums of the vectors of the examples; shape: (C, dim)
    examples: Matrix  # numbers of examples; shape: (C,)
    neighbours: Matrix  # mean directions of the neighbours' rows; shape: (C, dim)
    near: Matrix  # numbers of neighbours; shape: (C,)

    @staticmethod
    def of_texts(vectors: Matrix) -> Evidence:
        """Return the evidence of labels of which only the texts are known."""
        nothing, none = np.zeros_like(vectors), np.zeros(len(vectors))
        return Evidence(vectors, nothing, none, nothing, none)


@dataclass(frozen=True, eq=False)
class NewRows:
    """A maker of rows and biases, fitted on the known labels of one model."""

    row_map: RowMap
    queries: Floats  # shape: (Q, dim)
    scale: float = 1.0  # length of a new row
    offset: float = 0.0  # bias of a label of which only the text is known

    def __call__(self, evidence: Evidence) -> tuple[Floats, Floats]:
        """Return rows and biases of new labels; no label depends on another."""  # shape: (C, dim), (C,)
        mapped = self.row_map(evidence.vectors)
        rows = self.scale * self.directions(evidence, mapped)
        plain = self.scale * self.directions(Evidence.of_texts(evidence.vectors), mapped)
        biases = np.full(len(rows), self.offset)
        more = np.flatnonzero((evidence.examples > 0) | (evidence.near > 0))
        for at in (more[start : start + BLOCK] for start in range(0, len(more), BLOCK)):
            before = self.queries @ plain[at].T + self.offset  # shape: (Q, C)
            biases[at] = self.offset + _bias_change(before, self.queries @ rows[at].T + self.offset)
        return rows, biases

    def directions(self, evidence: Evidence, mapped: Floats) -> Floats:
        """Return unit directions of rows; `mapped` are the rows by the ridge map."""  # shape: (C, dim)
        explained = self.row_map.explained
        of_map = min(explained / max(1 - explained, 1 / MOST_OF_MAP), MOST_OF_MAP)
        texts = TEXT + evidence.examples[:, None]
        pooled = (TEXT * evidence.vectors + evidence.example_sums) / texts
        return unit(
            of_map * unit(mapped - self.row_map.mean_row)
            + texts * unit(self.row_map.discriminant(pooled))
            + NEIGHBOUR * evidence.near[:, None] * unit(evidence.neighbours)
        )


def fit_new_rows(known: Known, rng: np.random.Generator) -> NewRows:
    """Fit the map, and the length and bias of new rows, on known labels."""
    return matched(fit_row_map(known.vectors, known.rows, rng), known, rng)


def matched(row_map: RowMap, known: Known, rng: np.random.Generator) -> NewRows:
    """Return a maker with this map, and fit the length and bias of new rows on known labels."""
    chosen = np.sort(rng.permutation(len(known.vectors))[:QUERIES])
    maker = NewRows(row_map, known.vectors[chosen].astype(np.float64))
    scale, offset = _fit_scale_and_offset(maker, known, chosen)
    return replace(maker, scale=scale, offset=offset)


def unit(vectors: Matrix) -> Floats:
    """Divide each row by its length; a row of zeros stays."""  # shape: (C, dim)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), dtype=np.float64)


def _fit_scale_and_offset(maker: NewRows, known: Known, chosen: Ints) -> tuple[float, float]:
    """Fit scale and offset so that left-out rows give the probabilities of the learned rows.

    They are the two numbers of a logistic curve, fitted by likelihood. A label's score on its own text is
    left out: a trained label fits its own text better than a new label can. Scores are counted in bins, so
    that memory does not grow with the labels.
    """
    centred = known.rows - maker.row_map.mean_row
    start = (float(np.linalg.norm(centred, axis=1).mean()) or 1.0, float(known.biases.mean()))
    reach = float(np.linalg.norm(maker.queries, axis=1).max(initial=0.0)) or 1.0
    counts, masses = np.zeros(BINS), np.zeros(BINS)
    for student, teacher in _scored_pairs(maker, known, chosen):
        bins = np.clip((student / reach + 1) * (BINS / 2), 0, BINS - 1).astype(np.int64)
        counts += np.bincount(bins, minlength=BINS)
        masses += np.bincount(bins, weights=teacher, minlength=BINS)
    scores = ((np.arange(BINS) + 0.5) * (2 / BINS) - 1) * reach
    total = masses.sum()
    if total <= 0:
        return start

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = weights[0] * scores + weights[1]
        missed = (counts * expit(logits) - masses) / total
        value = (counts * np.logaddexp(0.0, logits) - masses * logits).sum() / total
        return float(value), np.array([missed @ scores, missed.sum()])

    # A few pairs must not make rows of new labels much longer than learned rows.
    return minimise(loss, start, ((1e-3 * start[0], 3 * start[0]), (None, None)))


def _scored_pairs(maker: NewRows, known: Known, chosen: Ints) -> Iterator[tuple[Floats, Floats]]:
    """Yield the scores by new directions and the learned probabilities of query-label pairs, by blocks."""
    for start in range(0, len(known.vectors), BLOCK):
        block = slice(start, start + BLOCK)
        vectors, rows = known.vectors[block], known.rows[block]
        mapped = maker.row_map.left_out(vectors, rows)
        student = maker.queries @ maker.directions(Evidence.of_texts(vectors), mapped).T  # shape: (Q, C)
        teacher = expit(maker.queries @ rows.T.astype(np.float64) + known.biases[block])
        others = chosen[:, None] != np.arange(start, start + len(rows))
        yield student[others], teacher[others]


def _bias_change(before: Floats, after: Floats) -> Floats:
    """Return the bias to add so that each label keeps its mean probability over all queries.

    More evidence turns a row; it must not make the label more frequent. The bias is found by bisection.
    """  # shape: (Q, C), (Q, C) -> (C,)
    wanted = expit(before).mean(0)
    low = before.min(0) - after.max(0)  # lowers every new score below all scores before
    high = before.max(0) - after.min(0)  # raises every new score above all scores before
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        less = expit(after + middle).mean(0) < wanted
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray((low + high) / 2)
