"""Predictions as files that `gandalf evaluate` and everybody else can read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, save_npz

from gandalf.data.files import plain_name, written
from gandalf.errors import DataError
from gandalf.model import Part
from gandalf.predict.inputs import Chunk
from gandalf.predict.predictor import Ids, Predictor, Probabilities

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet computes


@dataclass(frozen=True, eq=False)
class Predicted:
    """A chunk of texts and what was predicted for each."""

    chunk: Chunk
    ids: Ids  # shape: (n, k), -1 for none
    scores: Probabilities  # shape: (n, k)

    def rows(self) -> Iterator[tuple[str, str | None, list[int], list[str]]]:
        """Text, the input's own id, labels and scores of each text, best first."""
        names = repeat(None, len(self.chunk.texts)) if self.chunk.ids is None else self.chunk.ids
        places = zip(self.ids.tolist(), self.scores.tolist(), strict=True)
        for text, name, (labels, scores) in zip(self.chunk.texts, names, places, strict=True):
            count = len(labels) - labels.count(-1)  # none stand last
            # Nine digits are all that a float32 has.
            yield text, name, labels[:count], [f"{score:.9g}" for score in scores[:count]]


def predict_chunks(
    predictor: Predictor, chunks: Iterable[Chunk], k: int, threshold: float | None = None
) -> Iterator[Predicted]:
    """Predict chunk by chunk, as they are asked for."""
    k = min(k, predictor.model.num_labels)
    for chunk in chunks:
        ids, scores = predictor.predict(chunk.texts, k, chunk.exclude, threshold)
        yield Predicted(chunk, ids, scores)


def write_predictions(
    path: Path, predicted: Iterable[Predicted], model: Part, *, escape_formulas: bool = False
) -> int:
    """Write `.npz`, `.jsonl` or `.csv`, as its name says, wholly or not at all; count the texts.

    With `escape_formulas`, a cell of a `.csv` that a spreadsheet would compute gets an apostrophe in front.
    """
    check_output(path, escape_formulas)
    writer = partial(_write_csv, shown=escaped) if escape_formulas else _writer(path)
    return writer(path, predicted, model)


def check_output(path: Path, escape_formulas: bool = False) -> None:
    """Refuse, before any work is done, a name that no writer goes by, and formulas where there are none."""
    if _writer(path) is not _write_csv and escape_formulas:
        what, remedy = "only cells of a CSV file are taken for formulas", "leave --escape-formulas out"
        raise DataError(what, remedy=remedy, file=path)


def escaped(cell: object) -> object:
    """Return a text that a spreadsheet will not compute."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULAS) else cell


def _writer(path: Path) -> Callable[[Path, Iterable[Predicted], Part], int]:
    suffix = path.suffix if path.suffix == ".npz" else Path(plain_name(path)).suffix
    if suffix not in _WRITERS or (suffix == ".npz" and path.suffix != ".npz"):
        remedy = f"name a file that ends in {', '.join(_WRITERS)}"
        raise DataError("is in no format that predictions can be written in", remedy=remedy, file=path)
    return _WRITERS[suffix]


def _write_npz(path: Path, predicted: Iterable[Predicted], model: Part) -> int:
    """A SciPy CSR matrix of scores, one row for each text and one column for each label."""
    labels, scores = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.float32)]
    lengths = [np.zeros(1, dtype=np.int64)]
    for each in predicted:
        kept = each.ids >= 0
        lengths.append(kept.sum(axis=1))
        labels.append(each.ids[kept].astype(np.int32))
        scores.append(each.scores[kept])
    indptr = np.cumsum(np.concatenate(lengths))
    shape = (len(indptr) - 1, model.num_labels)
    matrix = csr_array((np.concatenate(scores), np.concatenate(labels), indptr), shape=shape)
    matrix.sort_indices()
    with written(path, "wb") as file:
        save_npz(file, matrix, compressed=False)
    return shape[0]


def _write_json_lines(path: Path, predicted: Iterable[Predicted], model: Part) -> int:
    """One object a text, its labels by index, id and text."""
    texts = [json.dumps(text, ensure_ascii=False) for text in model.label_texts]
    ids = None if model.label_ids is None else [json.dumps(id, ensure_ascii=False) for id in model.label_ids]
    count = 0
    with written(path) as file:
        for each in predicted:
            for text, name, labels, scores in each.rows():
                known = ({} if name is None else {"uid": name}) | {"text": text}
                parts = [json.dumps(known, ensure_ascii=False)[1:-1], f'"labels": {labels}']
                parts.append(f'"scores": [{", ".join(scores)}]')
                if ids is not None:
                    parts.append(f'"label_ids": [{", ".join(ids[label] for label in labels)}]')
                parts.append(f'"label_texts": [{", ".join(texts[label] for label in labels)}]')
                file.write(f"{{{', '.join(parts)}}}\n")
            count += len(each.ids)
    return count


def _write_csv(
    path: Path,
    predicted: Iterable[Predicted],
    model: Part,
    shown: Callable[[object], object] = lambda cell: cell,
) -> int:
    """One row for each predicted label."""
    ids = model.label_ids or range(model.num_labels)
    count = 0
    with written(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["uid", "text", "rank", "label_id", "label_text", "score"])
        for each in predicted:
            for text, name, labels, scores in each.rows():
                table.writerows(
                    [*map(shown, (name, text, rank, ids[label], model.label_texts[label])), score]
                    for rank, (label, score) in enumerate(zip(labels, scores, strict=True), start=1)
                )
            count += len(each.ids)
    return count


_WRITERS: dict[str, Callable[[Path, Iterable[Predicted], Part], int]] = {
    ".npz": _write_npz,
    ".jsonl": _write_json_lines,
    ".csv": _write_csv,
}
