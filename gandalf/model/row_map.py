"""Predict the row of a label from its text, by a ridge regression on the known labels in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.floating[Any]]

# Candidate strengths, as multiples of the mean eigenvalue of the vectors' scatter matrix.
STRENGTHS = tuple(float(value) for value in 10.0 ** np.arange(-6, 3.01, 0.5))
BLOCK = 8_192  # labels converted to float64 at once
JUDGED = 4_096  # labels whose leave-one-out error chooses the strength
PULL = 0.1  # share of the mean variance that is added to every variance before the covariance is inverted
_LEAST = 1e-9  # lowest value of 1 - leverage, for a label that alone determines its row


@dataclass(frozen=True, eq=False)
class RowMap:
    """The fitted map at one strength, in the basis that makes the scatter matrix of the vectors diagonal."""

    labels: int  # number of labels in the fit
    mean: Floats  # mean of the vectors; shape: (dim,)
    mean_row: Floats  # shape: (dim,)
    basis: Floats  # eigenvectors of the scatter matrix, as columns; shape: (dim, dim)
    sizes: Floats  # eigenvalues of the scatter matrix; shape: (dim,)
    products: Floats  # basis^T X^T Y, both centred; shape: (dim, dim)
    strength: float = 0.0
    explained: float = 0.0  # share of the rows' variance explained on left-out labels

    def __call__(self, vectors: Matrix) -> Floats:
        """Return the rows of labels whose texts have these vectors."""  # shape: (C, dim) -> (C, dim)
        return self._predicted(self._turned(vectors)) + self.mean_row

    def left_out(self, vectors: Matrix, rows: Matrix) -> Floats:
        """Return the row of each label of the fit by a map that was fitted without that label.

        If the error on a label of the fit is e, the error on the same label left out is e / (1 - leverage).
        """  # shape: (C, dim), (C, dim) -> (C, dim)
        turned = self._turned(vectors)
        leverage = (turned**2 / (self.sizes + self.strength)).sum(1) + 1 / self.labels  # shape: (C,)
        missed = rows - self._predicted(turned) - self.mean_row
        return np.asarray(rows - missed / np.maximum(1 - leverage, _LEAST)[:, None], dtype=np.float64)

    def discriminant(self, vectors: Matrix) -> Floats:
        """Return linear discriminants: rows that separate these vectors from those of known label texts.

        The covariance is that of the known label texts, pulled towards equal variances.
        """  # shape: (C, dim) -> (C, dim)
        variances = self.sizes / self.labels
        pull = PULL * (float(variances.mean()) or 1.0)
        return np.asarray((self._turned(vectors) / (variances + pull)) @ self.basis.T)

    def _turned(self, vectors: Matrix) -> Floats:
        return np.asarray((vectors - self.mean) @ self.basis)

    def _predicted(self, turned: Floats) -> Floats:
        return np.asarray((turned / (self.sizes + self.strength)) @ self.products)


def fit_row_map(
    vectors: Matrix, rows: Matrix, rng: np.random.Generator, strengths: Sequence[float] = STRENGTHS
) -> RowMap:
    """Fit the map on known labels: vectors of their texts and their rows, L x dim each, equal weights.

    The intercept is not penalised. One decomposition serves all strengths. The strength with the least
    leave-one-out error is kept.
    """
    base = _decomposed(vectors, rows)
    # All sizes may be 0; a strength of 0 would then divide by 0.
    unit = float(base.sizes.mean()) or 1.0
    judged = np.sort(rng.permutation(base.labels)[:JUDGED])
    spread = float(((rows[judged] - base.mean_row) ** 2).sum())
    tried = [replace(base, strength=strength * unit) for strength in strengths]
    errors = [_left_out_error(each, vectors[judged], rows[judged]) for each in tried]
    best = int(np.argmin(errors))
    explained = 1 - errors[best] / spread if spread > 0 else 0.0
    return replace(tried[best], explained=min(max(explained, 0.0), 1.0))


def _left_out_error(row_map: RowMap, vectors: Matrix, rows: Matrix) -> float:
    return float(((rows - row_map.left_out(vectors, rows)) ** 2).sum())


def _decomposed(vectors: Matrix, rows: Matrix) -> RowMap:
    """Return the map without a strength, after the eigendecomposition of the scatter matrix."""
    labels, dim = vectors.shape
    mean, mean_row = vectors.mean(0, dtype=np.float64), rows.mean(0, dtype=np.float64)
    scatter, products = np.zeros((dim, dim)), np.zeros((dim, rows.shape[1]))
    for block in (slice(start, start + BLOCK) for start in range(0, labels, BLOCK)):
        x = vectors[block] - mean  # shape: (C, dim), in float64
        scatter += x.T @ x
        products += x.T @ (rows[block] - mean_row)
    sizes, basis = np.linalg.eigh(scatter)
    return RowMap(labels, mean, mean_row, basis, np.maximum(sizes, 0.0), basis.T @ products)
