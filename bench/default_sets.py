"""Make the data sets that `bench.default` measures: whole sets, samples, a single-label and a graded one.

A sample stands for the data of a user who has little. A label without a training point in the sample is
removed, from the test truth too: nobody would give such a label to a trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf import Dataset, Splits, load
from gandalf.metrics.predictions import test_points

SEED = 0  # of every draw below, so that all rows see the same points
TEST_POINTS = 3_000  # test points that a sample keeps at most
OTHER_GRADE = 0.5  # target of every label of a point but its main label
NUMBERS = (300, 1_000, 3_000)  # training points of the samples

WHOLE = {
    "man": "man",  # bundled with the package
    "web": "LF-WebSeeAlsoTitles-6K",
    "docs": "LF-DocsSeeAlsoTitles-79K",
    "wordnet": "LF-WordNetRelated-64K",
    "library": "LF-LibraryTitles-25K",
    "cooking": "LF-CookingTags-734",
    "packages": "LF-PackageTags-0.5K",
}
SAMPLED = ("cooking", "library", "man")

Made = Callable[[Splits], Splits]


def draw_sample(splits: Splits, number: int) -> Splits:
    """Draw `number` training points; keep their labels and at most `TEST_POINTS` test points."""
    rng = np.random.default_rng(SEED)
    sample = replace(splits, train=_drawn(splits.train, number, rng), name=f"{splits.name}?sample={number}")
    sample = drop_untrained_labels(sample)
    return replace(sample, test=_drawn(test_points(sample), TEST_POINTS, rng))


def drop_untrained_labels(splits: Splits) -> Splits:
    """Remove labels without a training point, then test points without a label."""
    labels = np.flatnonzero(splits.train.label_frequencies)
    test = _with_labels(test_points(splits), labels)
    asked = np.flatnonzero(np.diff(test.targets.indptr))
    return replace(splits, train=_with_labels(splits.train, labels), test=test[asked])


def keep_main_labels(splits: Splits) -> Splits:
    """Keep one label of each point: the one with most training points, the smaller index if two tie."""
    frequencies = splits.train.label_frequencies
    train, test = (_single(points, frequencies) for points in (splits.train, test_points(splits)))
    return drop_untrained_labels(replace(splits, train=train, test=test, name=f"{splits.name}?single"))


def grade_labels(splits: Splits) -> Splits:
    """Grade training targets: 1 for the main label of a point, `OTHER_GRADE` for its other labels.

    The main label is that of `keep_main_labels`: the order in which a file names labels is not kept. The test
    truth stays as it is, since a target counts as true whatever its value.
    """
    targets = splits.train.targets.copy()
    rows = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
    main = _main_labels(targets, splits.train.label_frequencies)[rows]
    targets.data = np.where(targets.indices == main, 1.0, OTHER_GRADE).astype(np.float32)
    return replace(splits, train=replace(splits.train, targets=targets), name=f"{splits.name}?graded")


def _unchanged(splits: Splits) -> Splits:
    return splits


# Sets by name: the whole set, and what is made of it.
SETS: dict[str, tuple[str, Made]] = {
    **{name: (name, _unchanged) for name in WHOLE},
    **{f"{name}-{n}": (name, partial(draw_sample, number=n)) for name in SAMPLED for n in NUMBERS},
    "packages-single": ("packages", keep_main_labels),
    "cooking-graded": ("cooking", grade_labels),
}


def open_default_set(name: str, root: Path) -> Splits:
    """Return the set of that name; `root` is the folder of the whole sets."""
    base, made = SETS[name]
    return made(_whole(WHOLE[base], root))


@lru_cache(maxsize=1)
def _whole(folder: str, root: Path) -> Splits:
    return load(root / folder if (root / folder).is_dir() else folder)


def _drawn(points: Dataset, number: int, rng: np.random.Generator) -> Dataset:
    """Draw at most `number` of the points that have a label; keep their order."""
    rows = np.flatnonzero(np.diff(points.targets.indptr))
    return points[np.sort(rng.permutation(rows)[:number])]


def _with_labels(points: Dataset, labels: npt.NDArray[np.int64]) -> Dataset:
    """Return the points with these labels alone, numbered anew."""
    texts, ids, exclude = points.label_texts, points.label_ids, points.exclude
    return replace(
        points,
        targets=csr_array(points.targets[:, labels]),
        label_texts=None if texts is None else [texts[label] for label in labels],
        label_ids=None if ids is None else [ids[label] for label in labels],
        exclude=None if exclude is None else csr_array(exclude[:, labels]),
    )


def _single(points: Dataset, frequencies: npt.NDArray[np.int64]) -> Dataset:
    points = points[np.flatnonzero(np.diff(points.targets.indptr))]
    main = _main_labels(points.targets, frequencies)
    ones = np.ones(len(main), dtype=np.float32)
    return replace(points, targets=csr_array((ones, main, np.arange(len(main) + 1)), points.targets.shape))


def _main_labels(targets: csr_array, frequencies: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the most frequent label of each row; a row without labels gets label 0."""  # shape: (N,)
    counts = csr_array((frequencies[targets.indices], targets.indices, targets.indptr), shape=targets.shape)
    return np.asarray(counts.argmax(axis=1), dtype=np.int64).ravel()
