"""Diagnosis: measure whether the label-feature postulate holds on a data set.

The diagnosis looks at labels whose text is a training text. It compares the targets of the points with this
text with each estimate, which is made from all *other* points. Estimates are fitted on the texts of other
folds.

It answers two questions. First, is P(Y_i | X = z_j) equal to P(Y_i | Y_j)? The shrunk estimate stands for the
right side, because it predicts held-out co-occurrences without reading texts. Second, is the ratio of counts
a good estimate of P(Y_i | Y_j)? The ratio is too high for small counts, whether the postulate holds or not.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gandalf.data.dataset import Dataset
from gandalf.data.sentences import counted
from gandalf.graph.cooccurrence import PairRule, check_threshold
from gandalf.graph.cooccurrence_summary import CooccurrenceSummary, summarise_cooccurrence
from gandalf.graph.estimates import KINDS
from gandalf.graph.estimates.calibrated import MIN_PAIRS, too_few_to_calibrate
from gandalf.graph.estimates.shrunk import Shrunk, fit_shrunk
from gandalf.graph.joint_sums import Floats
from gandalf.graph.kind import CountablePoints
from gandalf.graph.matched_pairs import NO_MATCHES, Matches, match_labels

EDGES = np.linspace(0.0, 1.0, 11)  # of the reliability table
FLOOR = 1e-3  # the log loss clips estimates to [FLOOR, 1 - FLOOR], because it is infinite at 0 and 1
# Limits of (mean observed target / mean shrunk estimate): the postulate holds from HOLDS, and fails below
# FAILS.
HOLDS, FAILS = 0.75, 0.4
SURE = 1.2  # from this value of (mean ratio / mean shrunk estimate), the ratio is called too sure
HARDLY = 100.0  # from this strength, shrinkage leaves almost nothing of a ratio
RARELY = 0.01  # if the mean shrunk estimate is below this, the data do not tell whether the postulate holds
FEW = 0.1  # below this share of kept pairs, label points teach little besides their own label


@dataclass(frozen=True)
class ReliabilityRow:
    """Pairs whose estimate lies in (low, high], with their mean observed target."""

    low: float
    high: float
    pairs: int
    estimate: float
    observed: float


@dataclass(frozen=True)
class EstimateQuality:
    """Errors of one estimate against the observed targets of held-out texts."""

    name: str
    log_loss: float
    squared_error: float
    mean_estimate: float
    recall: float  # share of true links on which the graph puts more than delta
    kept: float  # share of co-occurring pairs that pass delta
    reliability: tuple[ReliabilityRow, ...]


@dataclass(frozen=True)
class Diagnosis:
    """Facts about the postulate on a data set, and the estimate to use."""

    labels: int
    matched_labels: int
    matched_texts: int
    texts_of_several_points: int
    labels_that_share_a_text: int
    pairs: int
    mean_observed: float | None
    reachable: float | None  # share of true links whose labels co-occur elsewhere: an upper bound of recall
    strength: float  # of the shrunk estimate
    strength_fitted_on: int  # pairs of held-out co-occurrences that it was fitted to; 0: a default
    together: CooccurrenceSummary  # labels that stand on one point
    estimates: tuple[EstimateQuality, ...]
    recommended: str
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def diagnose(points: Dataset, *, delta: float = 0.1, seed: int = 0) -> Diagnosis:
    """Compare each estimate with the observed targets of labels whose text is a training text."""
    check_threshold(delta)
    points.need_probabilities()
    shrunk = fit_shrunk(points.targets, seed=seed)
    summary = summarise_cooccurrence(points, shrunk, delta, seed)
    matches, why_not = _matches_of(points, seed)
    if why_not:
        qualities: tuple[EstimateQuality, ...] = ()
        recommended = "shrunk" if summary.shrunk else "self"
        verdict = _verdict_without_matches(why_not, shrunk, summary)
    else:
        qualities = _qualities(matches, shrunk, delta, seed)
        recommended = min(qualities, key=lambda each: each.log_loss).name
        verdict = _verdict(qualities, matches.pairs.observed, recommended)
    observed = matches.pairs.observed
    return Diagnosis(
        labels=points.num_labels,
        matched_labels=matches.labels,
        matched_texts=matches.texts,
        texts_of_several_points=matches.several_points,
        labels_that_share_a_text=matches.shared_texts,
        pairs=len(observed),
        mean_observed=float(observed.mean()) if len(observed) else None,
        reachable=float(observed.sum() / matches.links) if matches.links else None,
        strength=shrunk.strength,
        strength_fitted_on=shrunk.fitted_on,
        together=summary,
        estimates=qualities,
        recommended=recommended,
        verdict=verdict,
    )


def recommended_targets(points: CountablePoints, *, delta: float = 0.1, seed: int = 0) -> tuple[str, str]:
    """Return the kind of targets that `diagnose` recommends, and the reason; points may be on a cluster."""
    check_threshold(delta)
    shrunk = points.shrunk(seed)
    matches = points.matches(seed) if points.has_texts else None
    if matches is not None and not too_few_to_calibrate(matches):
        best = min(_qualities(matches, shrunk, delta, seed), key=lambda each: each.log_loss)
        return best.name, "closest to the observed targets of held-out texts"
    if points.graph(PairRule(shrunk, delta, None)).nnz > points.num_labels:
        return "shrunk", "too few label texts are training texts to calibrate"
    return "self", "no two labels stand together often enough"


def _qualities(matches: Matches, shrunk: Shrunk, delta: float, seed: int) -> tuple[EstimateQuality, ...]:
    return tuple(
        measure_estimate(name, kind.score_pairs(matches.pairs, shrunk, seed), matches, delta)
        for name, kind in KINDS.items()
        if kind.score_pairs is not None
    )


def _matches_of(points: Dataset, seed: int) -> tuple[Matches, str]:
    """Return labels matched to points, and the reason why a calibration cannot be fitted, or ""."""
    if points.texts is None or points.label_texts is None:
        return NO_MATCHES, "the data set has no texts to match labels with points"
    matches = match_labels(points, seed=seed)
    return matches, too_few_to_calibrate(matches)


def measure_estimate(name: str, score: Floats, matches: Matches, delta: float) -> EstimateQuality:
    """Measure losses, reliability and recall of one estimate's scores of the matched pairs."""
    observed = matches.pairs.observed
    return EstimateQuality(
        name=name,
        log_loss=log_loss(score, observed),
        squared_error=float(np.mean((score - observed) ** 2)),
        mean_estimate=float(score.mean()),
        recall=float(observed[score > delta].sum() / max(matches.links, 1e-12)),
        kept=float((score > delta).mean()),
        reliability=reliability(score, observed),
    )


def log_loss(score: Floats, observed: Floats) -> float:
    """Return the mean cross-entropy of observed targets in [0, 1] under the clipped estimate."""
    p = np.clip(score, FLOOR, 1 - FLOOR)
    return -float(np.mean(observed * np.log(p) + (1 - observed) * np.log1p(-p)))


def reliability(score: Floats, observed: Floats) -> tuple[ReliabilityRow, ...]:
    """Return mean estimate and mean observed target for each tenth of [0, 1] that holds estimates."""
    step = np.clip(np.ceil(score * 10 - 1e-9).astype(np.int64) - 1, 0, 9)
    rows = []
    for at in np.unique(step):
        here = step == at
        low, high = float(EDGES[at]), float(EDGES[at + 1])
        rows.append(
            ReliabilityRow(
                low, high, int(here.sum()), float(score[here].mean()), float(observed[here].mean())
            )
        )
    return tuple(rows)


def _verdict_without_matches(why_not: str, shrunk: Shrunk, summary: CooccurrenceSummary) -> str:
    """Return the verdict for data on which the postulate cannot be observed."""
    words = [f"Whether the postulate holds cannot be observed: {why_not}.", summary.sentences]
    if not summary.shrunk:
        return " ".join([*words, "Use self targets."])
    if shrunk.fitted_on:
        words.append(_shrinkage_sentences(shrunk))
    else:
        words.append(
            f"No label of a pair has a second point, so the strength of shrinkage, {shrunk.strength:g}, is a "
            "default."
        )
    return " ".join([*words, "Use shrunk targets."])


def _shrinkage_sentences(shrunk: Shrunk) -> str:
    """Return sentences about the fitted strength of shrinkage."""
    words = [f"Shrinkage by {shrunk.strength:g} predicts held-out co-occurrences best"]
    words.append(f" ({counted(shrunk.fitted_on, 'pair')} of labels).")
    if shrunk.fitted_on < MIN_PAIRS:
        words.append(" So few pairs say little; take it as a guess.")
    if shrunk.strength >= HARDLY:
        words.append(" So strong a shrinkage means that labels seen together hardly ever were again.")
    return "".join(words)


def _verdict(qualities: tuple[EstimateQuality, ...], observed: Floats, recommended: str) -> str:
    """Return sentences: whether the postulate holds, whether the ratio is right, which targets to use."""
    by_name = {q.name: q for q in qualities}
    seen, best = float(observed.mean()), by_name[recommended]
    ratio, shrunk = by_name["ratio"].mean_estimate, by_name["shrunk"].mean_estimate
    holds, sure = seen / max(shrunk, 1e-12), ratio / max(shrunk, 1e-12)
    words = [
        "Where a label's text is a training text, the labels that occur with that label elsewhere were there "
        f"{_chance(seen)}; held-out co-occurrences alone promise {_rounded(shrunk) if shrunk else 'nothing'}."
    ]
    if max(seen, shrunk) < RARELY:
        words.append("Labels that occur together hardly ever do so again: there is no postulate to speak of.")
    elif holds >= HOLDS:
        words.append("So the postulate holds on this data.")
    elif holds >= FAILS:
        words.append(f"So the postulate holds in part: {holds:.0%} of what the labels promise.")
    else:
        words.append("So the postulate does not hold here: a label's text says other things than the label.")
    if sure >= SURE:
        words.append(
            f"The paper's ratio, {_rounded(ratio)}, is too sure of rare labels, by a factor of {sure:.1f}."
        )
    words.append(f"Use {recommended} targets: they come closest on held-out texts.")
    if best.kept < FEW:
        words.append(
            f"Only {best.kept:.0%} of the pairs pass the threshold, so label points will teach little beyond "
            "each label itself."
        )
    return " ".join(words)


def _chance(share: float) -> str:
    return f"with probability {_rounded(share)}" if share else "not once"


def _rounded(share: float) -> str:
    """Return the number with two decimals, or with its first digit that is not 0."""
    return f"{share:.2f}" if share >= 0.1 or not share else f"{share:.1g}"
