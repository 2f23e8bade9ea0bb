"""Load a data set: recognise the layout of a source, or find a bundled set by name."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from gandalf.data.claim import restore_folder
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import plain_name
from gandalf.data.formats import LAYOUTS, TABLE, Layout
from gandalf.data.formats.frames import split_frames
from gandalf.data.formats.table import read as read_table
from gandalf.data.formats.table_files import is_table
from gandalf.data.formats.table_options import TableArguments, TableOptions
from gandalf.data.formats.table_paths import train_files
from gandalf.data.origin import FREQUENCIES, ONE_WAY, Origin, read_origin
from gandalf.data.sentences import counted
from gandalf.errors import DataError, Findings, argument

# Ends of the remedy for a table option that a layout does not use.
_WHOLE_FOLDER = ", and give the folder that holds all files of the data set"
_ONE_FILE = ", or give the file of the table"


def bundled() -> dict[str, Path]:
    """Return the folders of the bundled data sets by name."""
    folder = Path(str(resources.files("gandalf.data"))) / "bundled"
    return {entry.name: entry for entry in sorted(folder.iterdir()) if entry.is_dir()}


def load(
    source: Any,  # noqa: ANN401  a path, or a table of any library
    *,
    options: TableOptions | None = None,
    findings: Findings | None = None,
    **table: Unpack[TableArguments],
) -> Splits:
    """Read a data set from a folder or file of any known layout, a table in memory, or a bundled set by name.

    A table in memory is a DataFrame of pandas or polars, an Arrow table, a dataset of Hugging Face, a list of
    dicts, or a dict of these by split. These arguments describe a table: `text_column`, `label_column`,
    `weight_column`, `separator`, `labels` (label texts) and `test` (test points).
    The name of a bundled set wins over a folder of the same name; write `./man` for the folder.
    """
    options = (options or TableOptions()).with_arguments(table)
    findings = Findings() if findings is None else findings
    _refuse_missing_files(options)
    if not isinstance(source, str | PathLike):
        return _load_frame(source, options, findings)
    of_package = bundled().get(str(source))
    path = Path(source) if of_package is None else of_package
    restore_folder(path)
    origin = read_origin(path)
    _refuse_one_way_format(origin, path)
    layout = _layout_of(path, options)
    _refuse_unused_options(layout, source, options)
    splits = layout.read(path, findings, options)
    name = set_name(path) if of_package is None else _bundled_name(path)
    if origin is not None:
        _check_origin(origin, splits, path)
        name = origin.name  # propensity constants depend on the name
    return replace(splits, name=name, findings=tuple(findings.problems), origin=origin)


def _load_frame(source: Any, options: TableOptions, findings: Findings) -> Splits:  # noqa: ANN401
    if isinstance(source, Splits | Dataset):
        raise DataError(f"a {type(source).__name__} is loaded already", remedy="use it as it is")
    train, test = split_frames(source, findings)
    options = replace(options, test=options.test or test)
    splits = read_table(train, findings, options)
    return replace(splits, name=type(source).__name__, findings=tuple(findings.problems))


def _layout_of(path: Path, options: TableOptions) -> Layout:
    if not path.exists():
        what = f"there is no file or folder '{path}' and no bundled data set of that name"
        raise DataError(what, remedy=f"bundled are: {', '.join(bundled())}", kind="unknown-source")
    if options.names_columns and _has_table(path):
        return TABLE  # the caller who names columns means a table
    found = next((layout for layout in LAYOUTS if layout.recognise(path)), None)
    if found is not None:
        return found
    what = f"has no layout that can be read: {_describe_contents(path)}"
    remedy = f"use a layout of docs/guide/data.md: {', '.join(layout.name for layout in LAYOUTS)}"
    raise DataError(what, remedy=remedy, file=path, kind="unknown-layout")


def _has_table(path: Path) -> bool:
    """Return True if there is a table; `trn.json` does not count, since it belongs to the raw layout."""
    train = (path,) if path.is_file() else train_files(path)
    return bool(train) and is_table(train[0]) and plain_name(train[0]) != "trn.json"


def _refuse_missing_files(options: TableOptions) -> None:
    for name, path in options.given.items():
        if isinstance(path, Path) and (not path.exists() or path.is_dir()):
            state = "is a folder" if path.is_dir() else "does not exist"
            what = f"{state}, and {argument(name)} names a file"
            raise DataError(what, remedy="correct the name", file=path, kind="unknown-source")


def _refuse_one_way_format(origin: Origin | None, path: Path) -> None:
    if origin is not None and origin.format in ONE_WAY:
        what = f"is written for a trainer in the format {origin.format}, which cannot be read back"
        remedy = f"give the original data set, {origin.name}"
        raise DataError(what, remedy=remedy, file=path, kind="unknown-layout")


def _check_origin(origin: Origin, splits: Splits, path: Path) -> None:
    if len(origin.label_frequencies) != splits.train.num_labels:
        raise DataError(
            f"lists {counted(len(origin.label_frequencies), 'label')}, but the data set has"
            f" {splits.train.num_labels:,}",
            remedy="write the folder again with gandalf augment",
            file=path / FREQUENCIES,
        )


def _refuse_unused_options(layout: Layout, source: str | PathLike[str], options: TableOptions) -> None:
    for name in options.given:
        if name not in layout.options:
            option = argument(name)
            instead = _WHOLE_FOLDER if name in ("labels", "test") else _ONE_FILE
            what = f"is in the {layout.name} layout, and {option} applies to tables only"
            raise DataError(what, remedy=f"leave {option} out{instead}", file=str(source))


def _describe_contents(path: Path) -> str:
    if not path.is_dir():
        return "the suffix of the file's name is unknown"
    names = sorted(entry.name for entry in path.iterdir())
    if not names:
        return "the folder is empty"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"it holds {', '.join(names[:10])}{more}"


def set_name(path: Path) -> str:
    """Return the name of a data set by its folder or file."""
    return path.resolve().name if path.is_dir() else Path(plain_name(path)).stem


def _bundled_name(path: Path) -> str:
    facts = path / "stats.json"
    found = json.loads(facts.read_text("utf-8")).get("name") if facts.is_file() else None
    return found if isinstance(found, str) else path.name
