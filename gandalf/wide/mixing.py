"""Compute a mix: the weighted mean of probabilities, over the labels that the parts propose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.model_folder import damaged, name_inside

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Proposals = tuple[Ints, npt.NDArray[np.float64]]  # labels that a part proposes, and their probabilities

MIX = "mix"  # the kind in `config.json` and `slim.json`
NO_LABEL = -1  # id of an empty place if fewer than k labels are found; its score is -inf
# Labels that each part proposes for a text. A label that no part proposes has a probability near 0.
PROPOSED = 50
TINY = 1e-7  # probabilities are clipped to [TINY, 1 - TINY] before they become logits


@dataclass(frozen=True)
class Share:
    """The contribution of one part to the probability of a label."""

    part: str
    weight: float
    probability: float  # of this part alone


def best_of_mix(proposals: Sequence[Proposals], weights: Sequence[float], k: int) -> tuple[Ints, Floats]:
    """Return ids and logits of the k labels with the largest weighted mean of probabilities."""
    ids = np.concatenate([found for found, _ in proposals], axis=1)  # shape: (N, C)
    values = np.concatenate(
        [weight * each for weight, (_, each) in zip(weights, proposals, strict=True)], axis=1
    )
    order = np.argsort(ids, axis=1, kind="stable")
    ids, values = np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1)
    # Places of the same label are now neighbours; the last of them gets the sum.
    total = np.cumsum(values, axis=1)
    last = np.ones(ids.shape, dtype=bool)
    last[:, :-1] = ids[:, 1:] != ids[:, :-1]
    # The last place of the previous label, or -1. Sums may fall, because values of examples may be negative.
    ends = np.maximum.accumulate(np.where(last, np.arange(ids.shape[1]), -1), axis=1)
    ends = np.concatenate([np.full((len(ids), 1), -1), ends[:, :-1]], axis=1)
    before = np.where(ends < 0, 0.0, np.take_along_axis(total, np.maximum(ends, 0), axis=1))
    sums = np.where(last & (ids >= 0), total - before, -np.inf)
    best = np.argsort(-sums, axis=1, kind="stable")[:, :k]
    found, chosen = np.take_along_axis(sums, best, axis=1), np.take_along_axis(ids, best, axis=1)
    none = np.isneginf(found)
    logits = np.where(none, -np.inf, as_logits(np.where(none, 0.5, found)))
    return _pad_to(np.where(none, NO_LABEL, chosen), logits.astype(np.float32), k)


def scores_of_mix(weights: Sequence[float], probabilities: Sequence[npt.NDArray[np.floating[Any]]]) -> Floats:
    """Return the logits of the weighted mean of the parts' probabilities."""
    return as_logits(np.tensordot(weights, np.stack(probabilities), axes=1))


def as_logits(probabilities: npt.ArrayLike) -> Floats:
    """Return logits whose sigmoid gives the probabilities back."""
    inside = np.clip(np.asarray(probabilities, dtype=np.float64), TINY, 1 - TINY)
    return np.asarray(np.log(inside) - np.log1p(-inside), dtype=np.float32)


def read_composition(names: object, weights: object, path: Path) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the checked names and weights of a mix's parts, which were read from `path`."""
    if not isinstance(names, list) or not isinstance(weights, list):
        raise damaged("does not list the parts of a mix and their weights", path)
    parts = tuple(name_inside(name, path) for name in names)
    try:
        found = tuple(float(weight) for weight in weights)
    except (TypeError, ValueError) as error:
        raise damaged(f"has weights that are no numbers ({error})", path) from error
    error_text = composition_error(parts, found)
    if error_text is not None:
        raise damaged(error_text, path)
    return parts, found


def composition_error(names: Sequence[str], weights: Sequence[float]) -> str | None:
    """Return what is wrong with the names and weights of a mix's parts, or None if they are valid."""
    if not names or len(weights) != len(names):
        return "a mix needs parts, and a name and a weight for each"
    plain = all(Path(name).name == name and name not in ("", "..") and "\\" not in name for name in names)
    if not plain or len(set(names)) != len(names):
        return f"the parts of a mix must have different plain names, not {', '.join(names)[:100]}"
    if not all(weight > 0 for weight in weights) or not 0.999 < sum(weights) < 1.001:
        return f"the weights of a mix must be above 0 and sum to 1, not {tuple(weights)}"
    return None


def no_labels(texts: int, k: int) -> tuple[Ints, Floats]:
    """Return the numbers and scores of texts without labels, to be filled."""  # shape: (texts, k) each
    return np.full((texts, k), NO_LABEL, dtype=np.int64), np.full((texts, k), -np.inf, dtype=np.float32)


def pad_row(ids: Ints, scores: Floats, k: int) -> tuple[Ints, Floats]:
    """Return one row of length k, padded by NO_LABEL and -inf; a label with score -inf becomes NO_LABEL."""
    # shape: (k or fewer,) -> (1, k)
    all_ids = np.full((1, k), NO_LABEL, dtype=np.int64)  # not `no_labels`, since this is the path of one text
    all_scores = np.full((1, k), -np.inf, dtype=np.float32)
    all_ids[0, : len(ids)], all_scores[0, : len(ids)] = ids, scores
    all_ids[all_scores == -np.inf] = NO_LABEL
    return all_ids, all_scores


def _pad_to(ids: Ints, logits: Floats, k: int) -> tuple[Ints, Floats]:
    if ids.shape[1] == k:
        return ids, logits
    missing = ((0, 0), (0, k - ids.shape[1]))
    return np.pad(ids, missing, constant_values=NO_LABEL), np.pad(logits, missing, constant_values=-np.inf)
