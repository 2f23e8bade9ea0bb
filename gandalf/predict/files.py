"""Write predictions to files, in formats that `gandalf evaluate` and other tools read."""

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
from gandalf.predict.inputs import InputChunk
from gandalf.predict.predictor import Ids, Predictor, Probabilities
from gandalf.predict.tables import NAMES, Columns, label_columns

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # first characters of a cell that a spreadsheet computes


@dataclass(frozen=True, eq=False)
class Predicted:
    """A chunk of texts with its predictions."""

    chunk: InputChunk
    ids: Ids  # label numbers; -1: no label; shape: (n, k)
    scores: Probabilities  # shape: (n, k)
    first_row: int  # number of the first text in the input, from 0

    def rows(self) -> Iterator[tuple[str, str | None, list[int], list[str]]]:
        """Yield the text, its id in the input, its labels and their scores, best first."""
        names = repeat(None, len(self.chunk.texts)) if self.chunk.ids is None else self.chunk.ids
        places = zip(self.ids.tolist(), self.scores.tolist(), strict=True)
        for text, name, (labels, scores) in zip(self.chunk.texts, names, places, strict=True):
            found = len(labels) - labels.count(-1)  # the numbers -1 stand last
            # Nine digits keep every float32 exactly.
            yield text, name, labels[:found], [f"{score:.9g}" for score in scores[:found]]

    def columns(self, model: Part) -> Columns:
        """Return the columns of a table with one row for each predicted label."""
        chunk = self.chunk
        return label_columns(model, chunk.texts, self.ids, self.scores, chunk.ids, self.first_row)


Writer = Callable[[Path, Iterable[Predicted], Part], None]


def predict_chunks(
    predictor: Predictor, chunks: Iterable[InputChunk], k: int, threshold: float | None = None
) -> Iterator[Predicted]:
    """Predict the chunks one by one, each when the caller asks for it."""
    k, first_row = min(k, predictor.model.num_labels), 0
    for chunk in chunks:
        yield Predicted(chunk, *predictor.predict(chunk.texts, k, chunk.exclude, threshold), first_row)
        first_row += len(chunk.texts)


def write_predictions(
    path: Path, predicted: Iterable[Predicted], model: Part, *, escape_formulas: bool = False
) -> int:
    """Write the format that the file name ends in, completely or not at all; return the number of texts.

    With `escape_formulas`, a cell of a CSV file that a spreadsheet would compute gets a leading apostrophe.
    """
    check_output(path, escape_formulas)
    writer = partial(_write_csv, shown=escaped) if escape_formulas else _writer(path)
    texts = 0

    def counted() -> Iterator[Predicted]:
        nonlocal texts
        for each in predicted:
            texts = each.first_row + len(each.ids)
            yield each

    writer(path, counted(), model)
    return texts


def check_output(path: Path, escape_formulas: bool = False) -> None:
    """Refuse, before any work, an unknown ending, and `escape_formulas` with a format other than CSV."""
    if _writer(path) is not _write_csv and escape_formulas:
        what, remedy = "only cells of a CSV file are taken for formulas", "leave --escape-formulas out"
        raise DataError(what, remedy=remedy, file=path)


def escaped(cell: object) -> object:
    """Return the cell; a text that a spreadsheet would compute gets a leading apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULAS) else cell


def _writer(path: Path) -> Writer:
    suffix = Path(plain_name(path)).suffix
    if suffix not in _WRITERS or (suffix in _BINARY and path.suffix != suffix):
        remedy = f"name a file that ends in {', '.join(_WRITERS)}"
        raise DataError("is in no format that predictions can be written in", remedy=remedy, file=path)
    return _WRITERS[suffix]


def _write_npz(path: Path, predicted: Iterable[Predicted], model: Part) -> None:
    """Write a SciPy CSR matrix of scores, one row for each text and one column for each label."""
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


def json_lines(predicted: Iterable[Predicted], model: Part) -> Iterator[str]:
    """Yield one line for each text as soon as its chunk is predicted."""
    texts = [json.dumps(text, ensure_ascii=False) for text in model.label_texts]
    ids = None if model.label_ids is None else [json.dumps(id, ensure_ascii=False) for id in model.label_ids]
    for each in predicted:
        for row, (text, name, labels, scores) in enumerate(each.rows(), start=each.first_row):
            known = {"row": row} | ({} if name is None else {"uid": name}) | {"text": text}
            parts = [json.dumps(known, ensure_ascii=False)[1:-1], f'"labels": {labels}']
            parts.append(f'"scores": [{", ".join(scores)}]')
            if ids is not None:
                parts.append(f'"label_ids": [{", ".join(ids[label] for label in labels)}]')
            parts.append(f'"label_texts": [{", ".join(texts[label] for label in labels)}]')
            yield f"{{{', '.join(parts)}}}\n"


def _write_json_lines(path: Path, predicted: Iterable[Predicted], model: Part) -> None:
    """Write one JSON object for each text, with labels by number, id and text."""
    with written(path) as file:
        file.writelines(json_lines(predicted, model))


def _write_csv(
    path: Path,
    predicted: Iterable[Predicted],
    model: Part,
    shown: Callable[[object], object] = lambda cell: cell,
) -> None:
    """Write one row for each predicted label."""
    with written(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(NAMES)
        for each in predicted:
            columns = each.columns(model)
            columns["score"] = [f"{score:.9g}" for score in columns["score"].tolist()]
            table.writerows(map(shown, row) for row in zip(*columns.values(), strict=True))


def _write_parquet(path: Path, predicted: Iterable[Predicted], model: Part) -> None:
    """Write the same rows as a CSV file, with typed columns."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        remedy = "pip install 'gandalf-xmc[parquet]'"
        raise DataError("writing Parquet needs pyarrow", file=path, remedy=remedy) from error
    text, whole = pyarrow.string(), pyarrow.int64()
    kinds = (whole, text, text, pyarrow.int32(), pyarrow.int32(), text, text, pyarrow.float32())
    schema = pyarrow.schema(list(zip(NAMES, kinds, strict=True)))
    with written(path, "wb") as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for each in predicted:
            writer.write_table(pyarrow.table(each.columns(model), schema=schema))


_WRITERS: dict[str, Writer] = {
    ".npz": _write_npz,
    ".jsonl": _write_json_lines,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
_BINARY = (".npz", ".parquet")  # formats that compress themselves, so .npz.gz is refused
