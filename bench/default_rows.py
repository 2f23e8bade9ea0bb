"""Rows of `bench.default`: what each trainer predicts for the test points, and what it costs.

Linear rows are the baselines that the default must not lose to. Settings that are not a library's defaults:

- `sklearn`: `TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)` and one `LinearSVC` a label. C is the
  value of 0.1, 1 and 10 that has the best P@1 on a fifth of the training points (at most 2,000), which
  `gandalf.data.holdout` holds out; then all points are learnt from. Only for sets of at most 2,000 labels.
- `fasttext`: as in `examples/with_fasttext.py`, with epochs by the number of points (`EPOCHS`).
- `omikuji`, `pecos`: the libraries' defaults, as in `examples/`. Rows that end in `+labels` also learn from
  every label's text as a point of that label.
- `astec-D`, `astec-Z1`, `astec-G`: `astec` on the training points alone, with each label's text as a point of
  that label, and with the paper's targets. `linear` and `frozen` are parts that the default may mix.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, load_npz

from gandalf import DataError, Dataset, Splits, load_model
from gandalf.data.export import FORMATS, export
from gandalf.data.harden import is_soft
from gandalf.data.holdout import hold_out_points
from gandalf.lab.peers import PEERS, POINTS, SOFT, interpreter, measured, script
from gandalf.lab.variants import VARIANTS
from gandalf.metrics.evaluate import evaluate
from gandalf.metrics.predictions import Source, need_test_points
from gandalf.model_folder import METRICS
from gandalf.runs.start import train
from gandalf.runs.validation import TOP, test_predictions
from gandalf.train.machine_memory import peak_bytes

MOST_LABELS = 2_000  # of the sets that scikit-learn is run on: it trains a classifier for each label
COSTS = (0.1, 1.0, 10.0)  # values of LinearSVC's C that are tried
HELD_SHARE = 0.2  # of the training points, to choose C by
EPOCHS = {1_000: 300, 20_000: 75, 200_000: 25}  # fastText's, for sets of at most so many training points
FEWEST_EPOCHS = 5  # fastText's, for larger sets


@dataclass(frozen=True)
class Setup:
    """Where other trainers are installed, and how many threads a row may use."""

    venvs: Path | None
    threads: int


@dataclass(frozen=True, eq=False)
class Answer:
    """Predictions for the test points and what they cost."""

    predictions: Source
    seconds: float  # from the texts in memory to the trained model: features and tuning count
    predict_seconds: float
    peak_mb: float
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A trainer of the tables."""

    title: str
    answer: Callable[[Splits, int, Setup], Answer]
    linear: bool = True
    repeats: bool = True  # every run gives the same model, so one seed is enough


# ---- baselines in this process


def popularity(splits: Splits, seed: int, setup: Setup) -> Answer:
    """Give every text the most frequent labels."""
    started = time.perf_counter()
    frequencies = splits.train.label_frequencies
    best = np.argsort(-frequencies, kind="stable")[:TOP]
    shape = (len(need_test_points(splits)), len(best))
    ids, scores = np.broadcast_to(best, shape), np.broadcast_to(frequencies[best].astype(float), shape)
    return Answer((ids, scores), time.perf_counter() - started, 0.0, _own_peak_mb())


def sklearn_svm(splits: Splits, seed: int, setup: Setup) -> Answer:
    """Train a linear SVM for each label over TF-IDF words and word pairs; held-out points choose C."""
    if splits.train.num_labels > MOST_LABELS:
        what = f"scikit-learn's one-vs-rest is not run on {splits.train.num_labels:,} labels"
        raise DataError(what, remedy=f"choose a set of at most {MOST_LABELS:,} labels")
    started = time.perf_counter()
    cut = hold_out_points(splits.train, HELD_SHARE, seed)
    held = Splits(train=cut.rest, test=cut.held, name=splits.name)
    tried = {cost: evaluate(_svm(held, cost)[0], held)["P@1"] for cost in COSTS}
    best = max(tried, key=lambda cost: tried[cost])
    tuned = time.perf_counter() - started
    predictions, fitted, predicted = _svm(splits, best)
    found = {f"{cost:g}": round(figure, 2) for cost, figure in tried.items()}
    return Answer(predictions, tuned + fitted, predicted, _own_peak_mb(), {"C": best, "held-out P@1": found})


def _svm(splits: Splits, cost: float) -> tuple[Source, float, float]:
    """Return predictions for the test points, seconds of training, seconds of prediction."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    started = time.perf_counter()
    texts, _ = splits.train.need_texts("scikit-learn")
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    features = vectorizer.fit_transform(texts)
    known = np.flatnonzero(splits.train.label_frequencies)  # a cut may leave a label without a point
    targets = (splits.train.targets[:, known] > 0).astype(np.int64)
    classifier = OneVsRestClassifier(LinearSVC(C=cost, random_state=0)).fit(features, targets)
    fitted = time.perf_counter()
    test_texts, _ = need_test_points(splits).need_texts("scikit-learn")
    scores = classifier.decision_function(vectorizer.transform(test_texts))  # shape: (N, known labels)
    places = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    best = known[places], np.take_along_axis(scores, places, axis=1)
    return best, fitted - started, time.perf_counter() - fitted


# ---- other people's trainers, each in a process of its own


def peer(splits: Splits, seed: int, setup: Setup, *, name: str, points: str) -> Answer:
    """Train one of `gandalf.lab.peers` by its script in `examples/`."""
    trainer = PEERS[name]
    python = interpreter(name, trainer, setup.venvs)
    if python is None:
        raise DataError(f"{name} is not installed", remedy=f"pip install {' '.join(trainer.packages)}")
    if name == "fasttext":
        os.environ["EPOCHS"] = str(_epochs(len(splits.train)))  # the script reads it there
    started = time.perf_counter()
    made = POINTS[points](splits.train)
    with tempfile.TemporaryDirectory() as place:
        data, model, out = (Path(place) / each for each in ("data", "model", "predictions.npz"))
        export(replace(splits, train=_targets_for(made, trainer.format, trainer.soft)), data, trainer.format)
        written = time.perf_counter() - started
        told, peak = measured([python, str(script(trainer)), str(data), str(model), str(out)], setup.threads)
        predictions = csr_array(load_npz(out))
    return Answer(predictions, written + told["train_seconds"], told["predict_seconds"], peak)


def _epochs(points: int) -> int:
    return next((epochs for most, epochs in EPOCHS.items() if points <= most), FEWEST_EPOCHS)


def _targets_for(points: Dataset, format: str, soft: str) -> Dataset:
    """Return the points with targets that the trainer can read; hard targets stay as they are."""
    if not is_soft(points.targets) or (soft == "weights" and FORMATS[format].carries_soft):
        return points
    return SOFT[soft](points, 0)


# ---- ours


def ours(
    splits: Splits, seed: int, setup: Setup, *, system: str | None, settings: tuple[str, ...] = ()
) -> Answer:
    """Train a system of ours, or what `gandalf train` chooses if None, and predict with the stored model.

    The training is not given the test split.
    """
    given = replace(splits, test=None)
    recipe = () if system is None else (system,)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        started = time.perf_counter()
        train(given, *recipe, *settings, out=folder, seed=seed)
        trained = time.perf_counter()
        predictions: tuple[npt.ArrayLike, npt.ArrayLike] = test_predictions(load_model(folder), splits)
        metrics = json.loads((folder / METRICS).read_text("utf-8"))
    details = {} if "search" not in metrics else {"search": metrics["search"]}  # what was tried, and why
    return Answer(predictions, trained - started, time.perf_counter() - trained, _own_peak_mb(), details)


def ours_on_gpu(splits: Splits, seed: int, setup: Setup) -> Answer:
    """Train what `gandalf train` chooses on a machine with a GPU."""
    if not torch.cuda.is_available():
        raise DataError("this machine has no GPU", remedy="run the row default in place of default-gpu")
    return ours(splits, seed, setup, system=None)


def _own_peak_mb() -> float:
    """Return the most megabytes that this process has held, of the machine's memory."""
    return (peak_bytes("cpu") or 0) / 1e6


def _of_peer(title: str, name: str, points: str, *, repeats: bool = True) -> Row:
    return Row(title, partial(peer, name=name, points=points), repeats=repeats)


def _of_ours(title: str, system: str | None, *settings: str) -> Row:
    return Row(title, partial(ours, system=system, settings=settings), linear=False, repeats=False)


ROWS: dict[str, Row] = {
    "popularity": Row("popularity", popularity),
    "sklearn": Row("scikit-learn, TF-IDF + LinearSVC", sklearn_svm),
    # omikuji draws its trees without a seed.
    "omikuji": _of_peer("omikuji", "omikuji", "D", repeats=False),
    "omikuji+labels": _of_peer("omikuji, label texts as points", "omikuji", "D + Z1", repeats=False),
    "pecos": _of_peer("PECOS", "pecos", "D"),
    "pecos+labels": _of_peer("PECOS, label texts as points", "pecos", "D + Z1"),
    "fasttext": _of_peer("fastText", "fasttext", "D"),
    "astec": _of_ours("`astec`", "astec"),
    "astec-D": _of_ours("`astec`, D", "astec", *VARIANTS["D"].as_settings()),
    "astec-Z1": _of_ours("`astec`, Z1", "astec", *VARIANTS["Z1"].as_settings()),
    "astec-G": _of_ours("`astec`, the paper's G", "astec", *VARIANTS["G"].as_settings()),
    "linear-system": _of_ours("`linear`", "linear"),  # `linear` is the group of the baselines
    "frozen": _of_ours("`frozen`", "frozen"),
    "decaf": _of_ours("`decaf`", "decaf"),
    "default": _of_ours("**default, 2 cores**", None),
    "default-gpu": Row("**default, GPU**", ours_on_gpu, linear=False, repeats=False),
}
LINEAR = tuple(name for name, row in ROWS.items() if row.linear)
