"""Write a data set in the format of another trainer; `FORMATS` lists the formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import new_folder, write_lines
from gandalf.data.formats import pecos, raw, renee, table, xc
from gandalf.data.formats.filters import write_filters
from gandalf.data.harden import POINT_HARDENINGS, harden_points, harden_targets, is_soft
from gandalf.data.origin import write_origin
from gandalf.data.sparse_text import rows_as_text
from gandalf.data.tf_idf import add_features
from gandalf.errors import DataError, Problem, argument

NO_WORDS = "<no words>"  # name of the extra libsvm feature; no word can be equal to it


@dataclass(frozen=True)
class Format:
    """The function that writes a data set, and the abilities and needs of the format."""

    write: Callable[[Splits, Path], None]
    carries_soft: bool
    needs_features: bool = False
    fill_rows: bool = False  # every point must have a feature


@dataclass(frozen=True)
class ExportOptions:
    """Arguments of `export`."""

    format: str = "raw"
    harden: str | None = None
    overwrite: bool = False
    seed: int = 0


def export(
    splits: Splits,
    folder: str | Path,
    format: str,
    *,
    harden: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    origin: tuple[Mapping[str, Any], npt.NDArray[np.int64]] | None = None,
) -> tuple[Problem, ...]:
    """Write training points, test points and labels into a new folder; return a note of each change to the
    data.

    If the format needs features and the data set has none, they are made from the texts, and `Xf.txt` names
    their columns. `harden` turns soft training targets into hard ones; formats that carry only 0 and 1 need
    it, and `copies` writes each training point three times. With `harden`, every positive of a test point
    becomes 1, as in the metrics. All test points are written in their order. The same arguments give the same
    bytes. For an augmented set, `origin` holds the record of its making and the label frequencies of the
    original set; both are written to the folder.
    """
    if format not in FORMATS:
        raise DataError(f"unknown format {format!r}", remedy="choose one of " + ", ".join(FORMATS))
    chosen = FORMATS[format]
    words: tuple[str, ...] = ()
    notes: tuple[Problem, ...] = ()
    if harden is not None or not chosen.carries_soft:
        splits = _with_hard_targets(splits, format, harden, seed)
    if chosen.needs_features and splits.train.features is None:
        splits, words = add_features(splits)
    if chosen.fill_rows:
        splits, notes = fill_empty_rows(splits)
    with new_folder(Path(folder), overwrite=overwrite) as out:
        chosen.write(splits, out)
        if words:
            write_lines(out / "Xf.txt", (f"{word}\n" for word in (*words, *(NO_WORDS for _ in notes))))
        if origin is not None:
            write_origin(out, *origin)
    return notes


def write_libsvm(splits: Splits, folder: Path) -> None:
    """Write `train.txt` and `test.txt` for omikuji and napkinXC.

    The header is "N D L", and each further line is "label,label feature:value feature:value".
    """
    for name, points in splits.named():
        features = _features(points)
        header = f"{len(points)} {features.shape[1]} {points.num_labels}\n"
        labels = (",".join(map(str, ids)) for ids, _ in rows_as_text(points.targets))
        pairs = (" ".join(map("{}:{}".format, ids, values)) for ids, values in rows_as_text(features))
        lines = (f"{a} {b}\n" for a, b in zip(labels, pairs, strict=True))
        write_lines(folder / f"{name}.txt", chain([header], lines))
    _write_beside(splits, folder)


def write_fasttext(splits: Splits, folder: Path) -> None:
    """Write `train.txt` and `test.txt` for fastText: "__label__12 text" for label 12."""
    for name, points in splits.named():
        # fastText would read a word of the text that begins with "__label__" as a label.
        texts = (_one_line(text).replace("__label__", "__label_") for text in _texts(points, "fasttext"))
        labels = ("".join(f"__label__{label} " for label in ids) for ids, _ in rows_as_text(points.targets))
        write_lines(folder / f"{name}.txt", (f"{a}{b}\n" for a, b in zip(labels, texts, strict=True)))
    _write_beside(splits, folder)


def write_libmultilabel(splits: Splits, folder: Path) -> None:
    """Write `train.txt` and `test.txt` for LibMultiLabel: "12 7", a tab, the text."""
    for name, points in splits.named():
        texts = map(_one_line, _texts(points, "libmultilabel"))
        labels = (" ".join(map(str, ids)) for ids, _ in rows_as_text(points.targets))
        write_lines(folder / f"{name}.txt", (f"{a}\t{b}\n" for a, b in zip(labels, texts, strict=True)))
    _write_beside(splits, folder)


def write_pairs(splits: Splits, folder: Path) -> None:
    """Write `pairs.jsonl` and `pairs_test.jsonl` for sentence-transformers: one line for each positive.

    `anchor` is the text of the point, `positive` the label text, `score` the target. For
    MultipleNegativesRankingLoss select the columns (anchor, positive). For CosineSimilarityLoss the three
    columns are (sentence1, sentence2, score). Pairs with an empty text are left out. `test.txt` holds the
    texts of all test points in their order, for predictions.
    """
    for name, points in splits.named():
        texts, label_texts = points.need_texts("the format pairs")
        pairs = (
            {"anchor": text, "positive": label_texts[int(label)], "score": float(value)}
            for text, (ids, values) in zip(texts, rows_as_text(points.targets), strict=True)
            for label, value in zip(ids, values, strict=True)
        )
        lines = (
            json.dumps(pair, ensure_ascii=False) + "\n"
            for pair in pairs
            if pair["anchor"] and pair["positive"]
        )
        write_lines(folder / {"train": "pairs.jsonl", "test": "pairs_test.jsonl"}[name], lines)
        if name == "test":
            write_lines(folder / "test.txt", (_one_line(text) + "\n" for text in texts))
    _write_beside(splits, folder)


FORMATS: dict[str, Format] = {
    "raw": Format(raw.write, carries_soft=True),
    "renee": Format(renee.write, carries_soft=True),
    "csv": Format(table.write, carries_soft=True),
    "jsonl": Format(partial(table.write, suffix=".jsonl"), carries_soft=True),
    "xc": Format(xc.write, carries_soft=True, needs_features=True),
    "npz": Format(pecos.write_npz, carries_soft=True, needs_features=True),
    "pecos": Format(pecos.write_text, carries_soft=True),
    "libsvm": Format(write_libsvm, carries_soft=False, needs_features=True, fill_rows=True),
    "fasttext": Format(write_fasttext, carries_soft=False),
    "libmultilabel": Format(write_libmultilabel, carries_soft=False),
    "pairs": Format(write_pairs, carries_soft=True),
}


def fill_empty_rows(splits: Splits) -> tuple[Splits, tuple[Problem, ...]]:
    """Give points without features one extra feature, the column `NO_WORDS`, and note how many there are.

    omikuji rejects a row without features. Rows cannot be dropped, because then the test points would no
    longer match their targets and the filter file.
    """
    empty = sum(int(np.sum(np.diff(_features(points).indptr) == 0)) for _, points in splits.named())
    if not empty:
        return splits, ()
    what = (
        f"{empty:,} points have no features; each was given the extra feature {NO_WORDS!r}, the last column"
    )
    train, *test = (_with_no_words(points) for _, points in splits.named())
    filled = replace(splits, train=train, test=test[0] if test else None)
    return filled, (Problem("no-features", "note", what),)


def _with_no_words(points: Dataset) -> Dataset:
    features = _features(points)
    column = csr_array((np.diff(features.indptr) == 0).astype(np.float32)[:, np.newaxis])
    return replace(points, features=csr_array(hstack([features, column], format="csr")), label_features=None)


def _with_hard_targets(splits: Splits, format: str, how: str | None, seed: int) -> Splits:
    train, test = splits.train, splits.test
    if how is not None:
        train = harden_points(train, how, seed=seed)
    elif is_soft(train.targets):
        raise DataError(
            f"{format} carries only 0 and 1, and the points to write have soft targets",
            remedy="choose "
            + " or ".join(argument("harden", name) for name in POINT_HARDENINGS)
            + ", or a format that carries soft targets: "
            + ", ".join(name for name, one in FORMATS.items() if one.carries_soft),
        )
    if test is not None:
        test = replace(test, targets=harden_targets(test.targets, "threshold", threshold=0.0))
    return replace(splits, train=train, test=test)


def _features(points: Dataset) -> csr_array:
    if points.features is None:
        what = "the format libsvm needs features for every split"
        raise DataError(what, remedy="use a data set with texts in both splits")
    return points.features


def _texts(points: Dataset, format: str) -> Sequence[str]:
    if points.texts is None:
        what = f"the format {format} needs texts, and this data set has none"
        raise DataError(what, remedy="use its raw layout (trn/tst/lbl.json.gz), or the format libsvm")
    return points.texts


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _write_beside(splits: Splits, folder: Path) -> None:
    """Write `labels.txt`, with the text, id or number of each label, and the filter files."""
    train = splits.train
    names = train.label_texts or train.label_ids or map(str, range(train.num_labels))
    write_lines(folder / "labels.txt", (_one_line(name) + "\n" for name in names))
    write_filters(splits, folder)
