"""Store a job of bulk prediction on disk: its row groups, their marks when done, and the job's facts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from gandalf.data.files import written
from gandalf.data.formats.table_files import damaged_parquet, is_table, open_table
from gandalf.errors import DataError, Findings
from gandalf.model_folder import CARD, CONFIG, HASHES, INDEX, INDEX_FACTS, METRICS, read_json
from gandalf.predict.inputs import columns_of

JOB, DONE, SUCCESS, LABELS = "_job.json", "_done", "_SUCCESS", "_labels.parquet"
DAMAGE = (pyarrow.ArrowException, OSError)
SUFFIX = ".parquet"
_OTHER_OUT = "choose another OUT, or remove this one"
_READ = 1 << 22  # bytes read and hashed at once


@dataclass(frozen=True)
class RowGroup:
    """One row group of an input file. One task predicts it, and writes one output file."""

    file: Path
    group: int
    rows: int
    first_row: int  # in the file, counted from 0
    text: str  # name of the column of texts
    id: str | None  # name of the column of ids

    @property
    def name(self) -> str:
        """Return the name of the output file."""
        return f"{self.file.stem}-{self.group:05}{SUFFIX}"


@dataclass(frozen=True)
class Job:
    """A job: a model, the arguments of its predictions, and the output folder."""

    model: Path
    identity: str  # hash of the model's files, see `model_identity`
    out: Path
    top: int
    threshold: float | None
    device: str

    def facts(self) -> dict[str, Any]:
        """Return the facts that two runs must share to continue the same job."""
        return {"model": self.identity, "top": self.top, "threshold": self.threshold}


def row_groups_of(source: Path, text_column: str | None) -> list[RowGroup]:
    """Return the row groups of a Parquet file, or of all Parquet files of a folder in the order of their
    names."""
    files = [source] if source.is_file() else sorted(source.iterdir()) if source.is_dir() else []
    files = [path for path in files if is_table(path) and path.suffix.lower() == SUFFIX]
    files = [path for path in files if path.name[0] not in "._"]
    if not files:
        raise DataError(
            "is neither a Parquet file nor a folder of Parquet files, which a cluster needs",
            remedy="write the texts as Parquet, or leave --cluster out",
            file=source,
        )
    return [part for path in files for part in _row_groups_of_file(path.resolve(), text_column)]


def input_hash(part: RowGroup) -> str:
    """Return the hash of the bytes of texts and ids of a row group."""
    try:
        with open(part.file, "rb") as file:
            chunks = parquet.ParquetFile(part.file).metadata.row_group(part.group)
            digest = hashlib.sha256()
            for at in range(chunks.num_columns):
                column = chunks.column(at)
                if column.path_in_schema.split(".")[0] in (part.text, part.id):
                    pages = (column.dictionary_page_offset, column.data_page_offset)
                    file.seek(min(offset for offset in pages if offset is not None))
                    digest.update(file.read(column.total_compressed_size))
    except (*DAMAGE, IndexError) as error:
        raise damaged_parquet(part.file) from error
    return digest.hexdigest()


def model_identity(folder: Path) -> str:
    """Return a hash of all files that determine the model's predictions."""
    digest = hashlib.sha256()
    facts = read_json(folder / CONFIG)
    for key in ("files", HASHES):  # these change if an index is added
        facts.pop(key, None)
    digest.update(json.dumps(facts, sort_keys=True).encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name in (CONFIG, CARD, METRICS, INDEX, INDEX_FACTS) or path.name.startswith("."):
            continue
        digest.update(f"\n{path.relative_to(folder).as_posix()} {path.stat().st_size}\n".encode())
        with open(path, "rb") as file:
            while block := file.read(_READ):
                digest.update(block)
    return digest.hexdigest()


def begin(job: Job, parts: Sequence[RowGroup]) -> None:
    """Start the output folder, or continue a folder that the same job has started."""
    inputs = [{**asdict(part), "file": part.file.name} for part in parts]
    facts = {**job.facts(), "input": inputs}
    if (job.out / JOB).is_file():
        _refuse_other_job(read_json(job.out / JOB), facts, job.out)
    else:
        _refuse_foreign_folder(job.out)
        job.out.mkdir(parents=True, exist_ok=True)
        write_json(job.out / JOB, facts)
    (job.out / DONE).mkdir(exist_ok=True)
    (job.out / SUCCESS).unlink(missing_ok=True)


def is_done(job: Job, part: RowGroup) -> bool:
    """Return True if the row group is predicted; raise a DataError if its input has changed since."""
    mark = job.out / DONE / f"{part.name}.json"
    if not mark.is_file():
        return False
    facts = read_json(mark)
    if facts != mark_of(job, part, input_hash(part)):
        raise DataError(
            f"row group {part.group} has changed since {mark} was written",
            remedy=_OTHER_OUT,
            file=part.file,
        )
    try:
        return bool(parquet.read_metadata(job.out / part.name).num_rows == part.rows)
    except DAMAGE:
        return False


def mark_of(job: Job, part: RowGroup, digest: str) -> dict[str, Any]:
    """Return the facts that mark a row group as done."""
    known = {"input": part.file.name, "row_group": part.group, "rows": part.rows, "sha256": digest}
    return {**known, **job.facts()}


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a JSON object; on failure leave no file."""
    with written(path) as file:
        file.write(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def _row_groups_of_file(path: Path, text_column: str | None) -> list[RowGroup]:
    text, id = columns_of(open_table(path, Findings()), text_column)
    try:
        facts = parquet.read_metadata(path)
    except DAMAGE as error:
        raise damaged_parquet(path) from error
    parts, first = [], 0
    for group in range(facts.num_row_groups):
        rows = facts.row_group(group).num_rows
        parts.append(RowGroup(path, group, rows, first, text, id))
        first += rows
    return parts


def _refuse_foreign_folder(out: Path) -> None:
    filled = out.is_dir() and any(path.suffix != ".part" for path in out.iterdir())
    if filled or (out.exists() and not out.is_dir()):
        what = "holds files other than predictions" if filled else "is a file, but a folder is needed"
        raise DataError(what, remedy="choose another OUT", file=out)


def _refuse_other_job(begun: Mapping[str, Any], facts: Mapping[str, Any], out: Path) -> None:
    for name, value in facts.items():
        if begun.get(name) != value:
            raise DataError(f"was started with another {name}", remedy=_OTHER_OUT, file=out)
