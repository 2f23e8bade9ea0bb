"""Make the data sets that `bench.default` measures: whole sets, samples, a single-label and a graded one.

`DERIVED` holds sets of regimes that no development set has. Their points are all training points, so what is
learnt from them about the search is not learnt from a test split.

A sample stands for the data of a user who has little. A label without a training point in the sample is
removed, from the test truth too: nobody would give such a label to a trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial, reduce
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf import Dataset, Splits, load
from gandalf.data.holdout import hold_out_points
from gandalf.metrics.predictions import need_test_points

SEED = 0  # of every draw below, so that all rows see the same points
TEST_POINTS = 3_000  # test points that a sample keeps at most
OTHER_GRADE = 0.5  # target of every label of a point but its main label
ASKED_SHARE = 0.2  # of the training points, that the sets of `DERIVED` ask for in place of the test split
MANY_POINTS, DOCUMENTS = 30_000, 5_000  # training points of larger samples
MAIN_LABELS, FEW_LABELS = 100, 10  # most frequent ones
FEW_POINTS = (2_500, 2_000)  # training points with several labels and with one, where labels are few
TITLES = 12  # of a made-up document
LATIN = "abcdefghijklmnopqrstuvwxyz"
CYRILLIC = "бвгдежзийклмнопрстуфхцчшщъ"
CIPHER = str.maketrans(LATIN + LATIN.upper(), CYRILLIC + CYRILLIC.upper())
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
    sample = replace(
        splits, train=draw_points(splits.train, number, rng), name=f"{splits.name}?sample={number}"
    )
    sample = drop_untrained_labels(sample)
    return replace(sample, test=draw_points(need_test_points(sample), TEST_POINTS, rng))


def drop_untrained_labels(splits: Splits) -> Splits:
    """Remove labels without a training point, then test points without a label."""
    labels = np.flatnonzero(splits.train.label_frequencies)
    test = keep_labels(need_test_points(splits), labels)
    asked = np.flatnonzero(np.diff(test.targets.indptr))
    return replace(splits, train=keep_labels(splits.train, labels), test=test[asked])


def keep_main_labels(splits: Splits) -> Splits:
    """Keep one label of each point: the one with most training points, the smaller index if two tie."""
    frequencies = splits.train.label_frequencies
    train, test = (_single(points, frequencies) for points in (splits.train, need_test_points(splits)))
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


# ---- other regimes, made of training points alone


def of_training_points(splits: Splits) -> Splits:
    """Ask for a share of the training points in place of the test split, which is not looked at."""
    parts = hold_out_points(splits.train, ASKED_SHARE, SEED, at_most=TEST_POINTS)
    name = f"{splits.name}?training"
    return drop_untrained_labels(replace(splits, train=parts.rest, test=parts.held, name=name))


def code_labels(splits: Splits) -> Splits:
    """Replace every label text by a code that says nothing."""
    codes = [f"t{number:04}" for number in range(splits.train.num_labels)]
    return _with_texts(splits, lambda texts: texts, codes)


def cipher_texts(splits: Splits) -> Splits:
    """Replace Latin by Cyrillic letters, one for one: a language that no pre-trained model knows."""

    def ciphered(texts: Sequence[str]) -> list[str]:
        return [text.translate(CIPHER) for text in texts]

    return _with_texts(splits, ciphered, ciphered(splits.train.label_texts or ()))


def keep_frequent(splits: Splits, number: int) -> Splits:
    """Keep the most frequent labels, one of them for each point, and the points that have one."""
    order = np.argsort(-splits.train.label_frequencies, kind="stable")[:number]
    train, test = (keep_labels(points, np.sort(order)) for points in (splits.train, need_test_points(splits)))
    return keep_main_labels(replace(splits, train=train, test=test))


def join_titles(splits: Splits) -> Splits:
    """Join titles that share their main label to a document; it carries the labels of a quarter of them."""
    train, test = (_documents(points, splits.train.label_frequencies) for points in _both(splits))
    return drop_untrained_labels(replace(splits, train=train, test=test, name=f"{splits.name}?joined"))


def _documents(points: Dataset, frequencies: npt.NDArray[np.int64]) -> Dataset:
    points = points[np.flatnonzero(np.diff(points.targets.indptr))]
    main = _main_labels(points.targets, frequencies)
    order = np.argsort(main, kind="stable")
    starts = np.flatnonzero(np.diff(main[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    document = np.cumsum((place % TITLES) == 0) - 1  # of each point in this order
    texts, _ = points.need_texts("documents")
    joined = [
        ". ".join(texts[row] for row in rows)
        for rows in np.split(order, np.flatnonzero(np.diff(document)) + 1)
    ]
    member = csr_array((np.ones(len(order)), (document, order)), shape=(len(joined), len(order)))
    sums = csr_array(member @ points.targets)
    sizes = np.repeat(np.bincount(document), np.diff(sums.indptr))
    sums.data = np.where(sums.data >= np.maximum(sizes / 4, 1), 1.0, 0.0).astype(np.float32)
    sums.eliminate_zeros()
    return Dataset(sums, texts=joined, label_texts=points.label_texts)


def _both(splits: Splits) -> tuple[Dataset, Dataset]:
    return splits.train, need_test_points(splits)


def _with_texts(
    splits: Splits, changed: Callable[[Sequence[str]], Sequence[str]], label_texts: Sequence[str]
) -> Splits:
    def of(points: Dataset) -> Dataset:
        texts, _ = points.need_texts("this set")
        return replace(points, texts=list(changed(texts)), label_texts=list(label_texts))

    return replace(splits, train=of(splits.train), test=of(need_test_points(splits)))


def _then(*steps: Made) -> Made:
    return lambda splits: reduce(lambda found, step: step(found), steps, splits)


def _unchanged(splits: Splits) -> Splits:
    return splits


DERIVED: dict[str, tuple[str, Made]] = {
    "cooking-codes": ("cooking", _then(of_training_points, code_labels)),
    "cooking-cipher": ("cooking", _then(of_training_points, cipher_texts)),
    "packages-few": ("packages", _then(partial(keep_frequent, number=FEW_LABELS), of_training_points)),
    "library-main": ("library", _then(partial(keep_frequent, number=MAIN_LABELS), of_training_points)),
    "library-joined": (
        "library",
        _then(join_titles, of_training_points, partial(draw_sample, number=DOCUMENTS)),
    ),
    "packages-2500": ("packages", _then(of_training_points, partial(draw_sample, number=FEW_POINTS[0]))),
    "packages-single-2000": (
        "packages",
        _then(keep_main_labels, of_training_points, partial(draw_sample, number=FEW_POINTS[1])),
    ),
    "library-30000": ("library", _then(of_training_points, partial(draw_sample, number=MANY_POINTS))),
}

# Sets by name: the whole set, and what is made of it.
SETS: dict[str, tuple[str, Made]] = {
    **{name: (name, _unchanged) for name in WHOLE},
    **{f"{name}-{n}": (name, partial(draw_sample, number=n)) for name in SAMPLED for n in NUMBERS},
    "packages-single": ("packages", keep_main_labels),
    "cooking-graded": ("cooking", grade_labels),
    **DERIVED,
}


def open_default_set(name: str, root: Path) -> Splits:
    """Return the set of that name; `root` is the folder of the whole sets."""
    base, made = SETS[name]
    return made(_whole(WHOLE[base], root))


@lru_cache(maxsize=1)
def _whole(folder: str, root: Path) -> Splits:
    return load(root / folder if (root / folder).is_dir() else folder)


def draw_points(points: Dataset, number: int, rng: np.random.Generator) -> Dataset:
    """Draw at most `number` of the points that have a label; keep their order."""
    rows = np.flatnonzero(np.diff(points.targets.indptr))
    return points[np.sort(rng.permutation(rows)[:number])]


def keep_labels(points: Dataset, labels: npt.NDArray[np.int64]) -> Dataset:
    """Return the points with these labels alone, numbered in this order."""
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
