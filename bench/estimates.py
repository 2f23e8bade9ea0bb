"""The estimates of P(i | j) compared without any training.

    python -m bench.estimates real        held-out training points of real sets
    python -m bench.estimates synthetic   squared bias and variance where the truth is known

real: the training texts are cut into five folds. The points of a fold are taken away altogether; counts and
fits use the rest; then, for labels whose text is among the texts taken away, each estimate is compared with
the mean target of those points. The test split is never read. Besides the shipped estimates it shows two that
were not chosen: `left in` (calibrated, but fitted on counts that still hold the matched points) and `surface`
(calibrated without its cells).

synthetic: one law, many disjoint sets drawn from it. Over these sets the estimate of each pair has a mean
and a spread; against the true P(i | j) that gives squared bias and variance, averaged over the pairs whose
input label has about so many points, and over those of them that are strong links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix

from bench.command import argument_parser
from bench.machine import DATA_ROOT, keep
from gandalf import GraphOptions, label_graph, load, synthetic
from gandalf.data.dataset import Dataset
from gandalf.data.matching import text_groups
from gandalf.graph.cooccurrence import counts_together, frequencies
from gandalf.graph.estimates.calibrated import fit_calibrated
from gandalf.graph.estimates.ratio import Ratio
from gandalf.graph.estimates.shrunk import fit_shrunk
from gandalf.graph.joint_sums import Floats
from gandalf.graph.matched_pairs import Pairs, match_labels
from gandalf.graph.postulate import log_loss, reliability

SETS = ("LF-ManSeeAlso-9K", "LF-WebSeeAlsoTitles-6K", "LF-DocsSeeAlsoTitles-79K", "LF-WordNetRelated-64K")
FOLDS = 5
Score = Callable[[Floats, Floats, Floats], Floats]


def main() -> None:
    """Run one of the two studies."""
    parser = argument_parser(__doc__)
    parser.add_argument("study", choices=["real", "synthetic"])
    parser.add_argument("--data", type=Path, default=DATA_ROOT, help="folder that holds the real sets")
    chosen = parser.parse_args()
    results = real(chosen.data) if chosen.study == "real" else bias_and_variance()
    print(keep(f"estimates_{chosen.study}", results))


# ---- real sets


def real(folder: Path) -> dict[str, Any]:
    """Return log loss, squared error and reliability of each estimate on each set."""
    results = {}
    for name in SETS:
        if not (folder / name).is_dir():
            print(f"{name}: not in {folder}, left out")
            continue
        results[name] = compare(load(folder / name).train)
        print(f"\n{name}")
        for estimate, found in results[name].items():
            print(
                f"  {estimate:11} log loss {found['log_loss']:.4f}  "
                f"squared error {found['squared_error']:.4f}  "
                f"mean {found['mean']:.3f}  observed {found['observed']:.3f}  "
                f"calibration error {found['calibration_error']:.3f}  pairs {found['pairs']:,}"
            )
    return results


def compare(points: Dataset, seed: int = 0) -> dict[str, Any]:
    """Score the pairs of held-out texts by every estimate, over all folds."""
    scores: dict[str, list[Floats]] = {}
    observed: list[Floats] = []
    for rest, pairs in held_out(points, seed):
        for name, score in fitted(rest, seed).items():
            scores.setdefault(name, []).append(score(pairs.joint, pairs.given, pairs.other))
        observed.append(pairs.observed)
    truth = np.concatenate(observed)
    return {name: judged(np.concatenate(parts), truth) for name, parts in scores.items()}


def judged(score: Floats, observed: Floats) -> dict[str, Any]:
    """Return how close scores come to what was observed."""
    rows = reliability(score, observed)
    gap = sum(row.pairs * abs(row.estimate - row.observed) for row in rows) / len(score)
    return {
        "pairs": len(score),
        "log_loss": log_loss(score, observed),
        "squared_error": float(np.mean((score - observed) ** 2)),
        "mean": float(score.mean()),
        "observed": float(observed.mean()),
        "calibration_error": gap,  # mean distance of observed from estimate over the reliability table
        "reliability": [vars(row) for row in rows],
    }


def held_out(points: Dataset, seed: int) -> Iterator[tuple[Dataset, Pairs]]:
    """Yield for each fold the points of all other texts, and the pairs that the fold's points judge."""
    texts, label_texts = points.need_texts("this study")
    of_points, of_labels = text_groups(texts, label_texts)
    number = int(max(of_points.max(), of_labels.max())) + 1
    fold = np.random.default_rng(seed).permutation(number) % FOLDS
    for at in range(FOLDS):
        away = fold[of_points] == at
        yield points[~away], judged_pairs(points.targets, away, of_points, of_labels)


def judged_pairs(targets: csr_array, away: Any, of_points: Any, of_labels: Any) -> Pairs:  # noqa: ANN401
    """Return the pairs of labels whose text was taken away, with counts of the rest, observed there."""
    rest, gone = csr_array(targets[~away]), csr_array(targets[away])
    number = int(max(of_points.max(), of_labels.max())) + 1
    group = of_points[away]
    size = np.bincount(group, minlength=number)
    member = csr_array((np.ones(len(group)), (group, np.arange(len(group)))), shape=(number, len(group)))
    carried = csr_matrix(member @ gone)
    labels = np.flatnonzero(size[of_labels] > 0)
    joint, frequency = counts_together(rest, labels), frequencies(rest)
    given = np.repeat(labels, np.diff(joint.indptr))
    off = joint.indices != given
    given, other, together = given[off], joint.indices[off].astype(np.int64), joint.data[off]
    text = of_labels[given]
    observed = np.asarray(carried[text, other], dtype=float).ravel() / size[text]
    return Pairs(given, other, text, together, frequency[given], frequency[other], observed)


def fitted(rest: Dataset, seed: int) -> dict[str, Score]:
    """Return each estimate, fitted where it needs to be."""
    pairs = match_labels(rest, seed=seed).pairs
    whole = left_in(rest.targets, pairs)
    calibrated = fit_calibrated(pairs)
    surface = replace(calibrated, corrections=np.zeros_like(calibrated.corrections))
    return {
        "ratio": Ratio().score,
        "shrunk": fit_shrunk(rest.targets, seed=seed).score,
        "left in": fit_calibrated(whole).score,
        "surface": surface.score,
        "calibrated": calibrated.score,
    }


def left_in(targets: csr_array, pairs: Pairs) -> Pairs:
    """Return the same pairs with counts that still hold the points on which they were observed."""
    frequency = frequencies(targets)
    labels, row = np.unique(pairs.given_label, return_inverse=True)
    joint = np.asarray(
        csr_matrix(counts_together(targets, labels))[row, pairs.other_label], dtype=float
    ).ravel()
    return replace(pairs, joint=joint, given=frequency[pairs.given_label], other=frequency[pairs.other_label])


# ---- synthetic sets

POINTS, LABELS, DRAWS = 20_000, 8_000, 20
BUCKETS = (0, 2, 4, 8, 16, 64, 10_000)
STRONG = 0.1  # links that the usual threshold means to keep


def bias_and_variance() -> list[dict[str, Any]]:
    """Return squared bias and variance of each estimate, by the expected frequency of the input label."""
    law = synthetic(POINTS * DRAWS, LABELS, seed=0, labels_per_point=2.3, known=0.5, postulate=1.0)
    truth = law.truth()
    given = np.repeat(np.arange(LABELS), np.diff(truth.indptr))
    off = truth.indices != given
    given, other, true = given[off], truth.indices[off], truth.data[off]
    expected = frequencies(law.splits.train.targets)[given] / DRAWS
    sums: dict[str, Any] = {}
    for draw in range(DRAWS):
        points = law.splits.train[draw * POINTS : (draw + 1) * POINTS]
        for name, graph in shipped(points).items():
            value = values_at(graph, given, other)
            first, second = sums.setdefault(name, (np.zeros(len(given)), np.zeros(len(given))))
            first += value
            second += value**2
    rows: list[dict[str, Any]] = []
    for name, (first, second) in sums.items():
        mean = first / DRAWS
        spread = (second - DRAWS * mean**2) / (DRAWS - 1)  # unbiased
        bias = (mean - true) ** 2 - spread / DRAWS  # the mean's own noise would count as bias
        for kind, of_kind in (("all", true > 0), ("strong", true > STRONG)):
            for low, high in pairwise(BUCKETS):
                here = of_kind & (expected > low) & (expected <= high)
                figures = {"truth": true, "mean": mean, "squared_bias": bias, "variance": spread}
                row = {"estimate": name, "pairs_are": kind, "points_of_label": f"{low}-{high}"}
                means = {key: float(value[here].mean()) for key, value in figures.items()}
                rows.append(row | {"pairs": int(here.sum())} | means)
    for row in rows:
        shown = "  ".join(f"{key} {value:.4f}" for key, value in row.items() if isinstance(value, float))
        print(
            f"{row['estimate']:11} {row['pairs_are']:6} {row['points_of_label']:>9}",
            f"{row['pairs']:7,}  {shown}",
        )
    return rows


def shipped(points: Dataset) -> dict[str, csr_array]:
    """Return the graphs a user can choose between, as they are before any threshold."""
    return {
        name: label_graph(points, GraphOptions(name, delta=0.0)).matrix
        for name in ("ratio", "shrunk", "calibrated")
    }


def values_at(graph: csr_array, given: Any, other: Any) -> Floats:  # noqa: ANN401
    """Return the graph's entries for the pairs; 0 where they were never seen together."""
    return np.asarray(csr_matrix(graph)[given, other], dtype=float).ravel()


if __name__ == "__main__":
    main()
