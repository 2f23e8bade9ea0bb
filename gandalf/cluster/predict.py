"""Predict Parquet files on a cluster; each row is predicted once, also if the job is interrupted and
resumed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow
from distributed import Client, as_completed
from pyarrow import parquet

from gandalf.cluster.client import submit
from gandalf.cluster.jobs import (
    DAMAGE,
    DONE,
    LABELS,
    SUCCESS,
    Job,
    RowGroup,
    begin,
    input_hash,
    is_done,
    mark_of,
    write_json,
)
from gandalf.data.claim import only_writer
from gandalf.data.files import written
from gandalf.data.formats.frames import decode_bytes
from gandalf.data.formats.table_files import damaged_parquet
from gandalf.data.formats.texts import Texts
from gandalf.errors import DataError, Findings
from gandalf.progress import meter

if TYPE_CHECKING:
    from gandalf.predict.predictor import Ids, Predictor, Probabilities

CHUNK = 8_192  # texts predicted at once
ROW = "row"  # output column of row numbers, if the input has no ids
_LOADING = threading.Lock()


class Predicted(NamedTuple):
    """Counts of a finished job."""

    rows: int
    parts: int
    skipped: int  # row groups that an earlier run had predicted


def predict_row_groups(client: Client, job: Job, parts: list[RowGroup]) -> Predicted:
    """Predict all row groups that are not done, and finish the job."""
    _need_same_columns(parts)
    with only_writer(job.out, parents=True):
        return _predict_row_groups(client, job, parts)


def _predict_row_groups(client: Client, job: Job, parts: list[RowGroup]) -> Predicted:
    begin(job, parts)
    write_label_table(job)
    rows = skipped = 0
    try:
        futures = [submit(client, predict_row_group, job, part) for part in parts]
        with meter("predicting", float(sum(part.rows for part in parts))) as bar:
            for future in as_completed(futures):
                found, made = future.result()
                bar.advance(float(found))
                rows, skipped = rows + found, skipped + (not made)
    finally:
        client.run(forget_model, on_error="ignore")
    assert rows == sum(part.rows for part in parts), "every row once"
    for path in job.out.rglob(".*.part"):  # unfinished files of killed workers
        path.unlink(missing_ok=True)
    write_json(job.out / SUCCESS, {"rows": rows, "parts": len(parts)})
    return Predicted(rows, len(parts), skipped)


def predict_row_group(job: Job, part: RowGroup) -> tuple[int, bool]:
    """Predict a row group unless it is done; return its rows, and True if it was predicted now.

    Runs on a worker.
    """
    if is_done(job, part):
        return part.rows, False
    digest = input_hash(part)
    predictor = predictor_of(job)
    rows = 0
    with written(job.out / part.name, "wb") as file:
        tables = _prediction_tables(predictor, job, part)
        first = next(tables)  # an empty table with the schema
        with parquet.ParquetWriter(file, first.schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)
                rows += len(table)
    if rows != part.rows or input_hash(part) != digest:
        raise DataError(
            f"row group {part.group} changed while it was read",
            remedy="start again in another OUT",
            file=part.file,
        )
    write_json(job.out / DONE / f"{part.name}.json", mark_of(job, part, digest))
    return rows, True


def predictor_of(job: Job) -> Predictor:
    """Return the predictor, which each process loads once."""
    with _LOADING:
        return _loaded(job.model, job.identity, job.device)


def forget_model() -> None:
    """Free the memory of the model."""
    _loaded.cache_clear()


def write_label_table(job: Job) -> None:
    """Write the table of label numbers, ids and texts."""
    from gandalf.model.facts import read_facts, read_labels
    from gandalf.model_folder import LABELS as MODEL_LABELS

    ids, texts = read_labels(job.model / MODEL_LABELS, read_facts(job.model).labels)
    columns: dict[str, Any] = {"label": pyarrow.array(range(len(texts)), pyarrow.int32())}
    if ids is not None:
        columns["id"] = pyarrow.array(ids, pyarrow.string())
    columns["text"] = pyarrow.array(texts, pyarrow.string())
    with written(job.out / LABELS, "wb") as file:
        parquet.write_table(pyarrow.table(columns), file)


@lru_cache(maxsize=1)
def _loaded(folder: Path, identity: str, device: str) -> Predictor:
    import torch

    from gandalf.cluster.jobs import model_identity
    from gandalf.model import load_model
    from gandalf.predict.predictor import Predictor

    if model_identity(folder) != identity:
        what = "differs between a worker and the client, or has changed since the job began"
        raise DataError(what, remedy="do not change the model during a job", file=folder)
    found = torch.cuda.is_available()
    if device == "cuda" and not found:
        raise DataError("a worker has no CUDA device", remedy="leave --device out, or use --device cpu")
    if device == "auto":
        device = "cuda" if found else "cpu"
    return Predictor(load_model(folder, device, verify=False))


def _prediction_tables(predictor: Predictor, job: Job, part: RowGroup) -> Iterator[pyarrow.Table]:
    """Yield an empty table, then a table for each chunk of texts in their order."""
    k = min(job.top, predictor.model.num_labels)
    row = part.first_row
    names = [part.text] if part.id is None else [part.text, part.id]
    try:
        file = parquet.ParquetFile(part.file)
        kind = pyarrow.int64() if part.id is None else file.schema_arrow.field(part.id).type
        none = np.empty((0, k))
        yield _table(part, pyarrow.array([], kind), none.astype(np.int64), none.astype(np.float32))
        for batch in file.iter_batches(CHUNK, row_groups=[part.group], columns=names):
            texts = Texts(part.file, Findings())
            for line, value in enumerate(batch.column(part.text).to_pylist(), start=row + 1):
                texts.add_cell(decode_bytes(value), line)
            ids, scores = predictor.predict(texts.cleaned, k, None, job.threshold)
            numbers = pyarrow.array(range(row, row + len(batch)), pyarrow.int64())
            yield _table(part, numbers if part.id is None else batch.column(part.id), ids, scores)
            row += len(batch)
    except DAMAGE as error:
        raise damaged_parquet(part.file) from error


def _table(part: RowGroup, names: pyarrow.Array, ids: Ids, scores: Probabilities) -> pyarrow.Table:
    kept = ids >= 0
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32)
    lists = (ids[kept].astype(np.int32), scores[kept])
    labels, values = (pyarrow.ListArray.from_arrays(ends, pyarrow.array(flat)) for flat in lists)
    return pyarrow.table({part.id or ROW: names, "labels": labels, "scores": values})


def _need_same_columns(parts: list[RowGroup]) -> None:
    for part in parts:
        if part.id != parts[0].id:
            what = f"its column of ids is {part.id}, but that of {parts[0].file.name} is {parts[0].id}"
            raise DataError(what, remedy="write the same columns into every file", file=part.file)
