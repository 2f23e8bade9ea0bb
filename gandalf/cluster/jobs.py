"""A job of bulk prediction as it stands on disk: its parts, what marks them as done, and what it is."""

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
from gandalf.data.formats.table_files import damaged, is_table, open_table
from gandalf.errors import DataError, Findings
from gandalf.model.layout import CARD, CONFIG, INDEX, INDEX_FACTS, METRICS
from gandalf.predict.inputs import columns_of
from gandalf.wide.folder import HASHES, read_json

JOB, DONE, SUCCESS, LABELS = "_job.json", "_done", "_SUCCESS", "_labels.parquet"
DAMAGE = (pyarrow.ArrowException, OSError)
SUFFIX = ".parquet"
_OTHER_OUT = "choose another OUT, or remove this one"
_READ = 1 << 22  # bytes hashed at once


@dataclass(frozen=True)
class Part:
    """One row group of an input file: what one task predicts, and one file of the output."""

    file: Path
    group: int
    rows: int
    first_row: int  # of the file, counted from 0
    text: str  # columns
    id: str | None

    @property
    def name(self) -> str:
        """Of the output file."""
        return f"{self.file.stem}-{self.group:05}{SUFFIX}"


@dataclass(frozen=True)
class Job:
    """A model, what it is asked, and where the answers go."""

    model: Path
    identity: str  # of the model
    out: Path
    top: int
    threshold: float | None
    device: str

    def facts(self) -> dict[str, Any]:
        """What two runs must share for their parts to belong together."""
        return {"model": self.identity, "top": self.top, "threshold": self.threshold}


def parts_of(given: Path, text_column: str | None) -> list[Part]:
    """The row groups of a Parquet file, or of the Parquet files of a folder in the order of their names."""
    files = [given] if given.is_file() else sorted(given.iterdir()) if given.is_dir() else []
    files = [path for path in files if is_table(path) and path.suffix.lower() == SUFFIX]
    files = [path for path in files if path.name[0] not in "._"]
    if not files:
        raise DataError(
            "is no Parquet file, and no folder of them, which is what a cluster predicts",
            remedy="write the texts as Parquet, or leave --cluster out",
            file=given,
        )
    return [part for path in files for part in _parts_of_file(path.resolve(), text_column)]


def input_hash(part: Part) -> str:
    """Of the bytes that hold the part's texts and ids."""
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
        raise damaged(part.file) from error
    return digest.hexdigest()


def model_identity(folder: Path) -> str:
    """A hash of all files that the model's predictions depend on."""
    digest = hashlib.sha256()
    facts = read_json(folder / CONFIG)
    for key in ("files", HASHES):  # an index may be added to them
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


def begin(job: Job, parts: Sequence[Part]) -> None:
    """Open the folder to write, or go on in one that this very job has begun."""
    inputs = [{**asdict(part), "file": part.file.name} for part in parts]
    facts = {**job.facts(), "input": inputs}
    if (job.out / JOB).is_file():
        _refuse_another(read_json(job.out / JOB), facts, job.out)
    else:
        _refuse_to_lose(job.out)
        job.out.mkdir(parents=True, exist_ok=True)
        write_json(job.out / JOB, facts)
    (job.out / DONE).mkdir(exist_ok=True)
    (job.out / SUCCESS).unlink(missing_ok=True)


def is_done(job: Job, part: Part) -> bool:
    """Whether the part is written; if so, of this very input."""
    mark = job.out / DONE / f"{part.name}.json"
    if not mark.is_file():
        return False
    facts = read_json(mark)
    if facts != mark_of(job, part, input_hash(part)):
        raise DataError(
            f"row group {part.group} is not what it was when {mark} was written",
            remedy=_OTHER_OUT,
            file=part.file,
        )
    try:
        return bool(parquet.read_metadata(job.out / part.name).num_rows == part.rows)
    except DAMAGE:
        return False


def mark_of(job: Job, part: Part, digest: str) -> dict[str, Any]:
    """What is kept of a part that is done."""
    known = {"input": part.file.name, "row_group": part.group, "rows": part.rows, "sha256": digest}
    return {**known, **job.facts()}


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Write an object, wholly or not at all."""
    with written(path) as file:
        file.write(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def _parts_of_file(path: Path, text_column: str | None) -> list[Part]:
    text, id = columns_of(open_table(path, Findings()), text_column)
    try:
        facts = parquet.read_metadata(path)
    except DAMAGE as error:
        raise damaged(path) from error
    parts, first = [], 0
    for group in range(facts.num_row_groups):
        rows = facts.row_group(group).num_rows
        parts.append(Part(path, group, rows, first, text, id))
        first += rows
    return parts


def _refuse_to_lose(out: Path) -> None:
    filled = out.is_dir() and any(path.suffix != ".part" for path in out.iterdir())
    if filled or (out.exists() and not out.is_dir()):
        what = (
            "holds other things than predictions" if filled else "is a file where a folder is to be written"
        )
        raise DataError(what, remedy="choose another OUT", file=out)


def _refuse_another(begun: Mapping[str, Any], facts: Mapping[str, Any], out: Path) -> None:
    for name, value in facts.items():
        if begun.get(name) != value:
            raise DataError(f"was begun with another {name}", remedy=_OTHER_OUT, file=out)
