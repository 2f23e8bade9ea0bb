"""From a name to a data set: which layout a source has, and which sets come with the package."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path

from gandalf.data.dataset import Splits
from gandalf.data.files import plain_name
from gandalf.data.formats import LAYOUTS, Layout
from gandalf.data.formats.table import TableOptions
from gandalf.data.origin import FREQUENCIES, ONE_WAY, Origin, read_origin
from gandalf.errors import DataError, Findings


def bundled() -> dict[str, Path]:
    """The data sets that come with the package, by name."""
    folder = Path(str(resources.files("gandalf.data"))) / "bundled"
    return {entry.name: entry for entry in sorted(folder.iterdir()) if entry.is_dir()}


def load(
    source: str | Path, *, options: TableOptions | None = None, findings: Findings | None = None
) -> Splits:
    """Read a data set: a folder or file of any known layout, or the name of a bundled set.

    A bundled name wins over a folder of the same name; write `./man` for the folder.
    """
    options = TableOptions() if options is None else options
    findings = Findings() if findings is None else findings
    of_package = bundled().get(str(source))
    path = Path(source) if of_package is None else of_package
    origin = read_origin(path)
    if origin is not None and origin.format in ONE_WAY:
        raise DataError(
            f"is written for a trainer, in the format {origin.format}, and cannot be read back",
            remedy=f"give the original set, {origin.name}",
            file=path,
            kind="unknown-layout",
        )
    layout = _layout_of(path, options)
    _refuse_unheeded(layout, path, options)
    splits = layout.read(path, findings, options)
    name = _name(path) if of_package is None else _bundled_name(path)
    if origin is not None:
        _check_origin(origin, splits, path)
        name = origin.name  # the constants of the metrics go by it
    return replace(splits, name=name, findings=tuple(findings.problems), origin=origin)


def _layout_of(path: Path, options: TableOptions) -> Layout:
    if not path.exists():
        raise DataError(
            f"there is no file or folder '{path}' and no bundled data set of that name",
            remedy=f"bundled are: {', '.join(bundled())}",
            kind="unknown-source",
        )
    for layout in LAYOUTS:
        # To name columns is to say that the source is a table.
        if (layout.name == "table" or not options.names_columns) and layout.recognise(path):
            return layout
    known = "; ".join(f"{layout.name} ({layout.needs})" for layout in LAYOUTS)
    raise DataError(
        f"is in no layout that can be read: {_contents(path)}",
        remedy=f"known are {known}; docs/data.md describes them",
        file=path,
        kind="unknown-layout",
    )


def _check_origin(origin: Origin, splits: Splits, path: Path) -> None:
    if len(origin.label_frequencies) != splits.train.num_labels:
        raise DataError(
            f"lists {len(origin.label_frequencies)} labels, but the data set has {splits.train.num_labels}",
            remedy="write the folder again with gandalf augment",
            file=path / FREQUENCIES,
        )


def _refuse_unheeded(layout: Layout, path: Path, options: TableOptions) -> None:
    for name, value in asdict(options).items():
        if value is not None and name not in layout.heeds:
            raise DataError(
                f"is in the {layout.name} layout, which has its own place for what --{name} gives",
                remedy=f"leave --{name} out, and give the folder that holds all files of the data set",
                file=path,
            )


def _contents(path: Path) -> str:
    if not path.is_dir():
        return "the file's name ends in none of the known ways"
    names = sorted(entry.name for entry in path.iterdir())
    if not names:
        return "the folder is empty"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"it holds {', '.join(names[:10])}{more}"


def _name(path: Path) -> str:
    return path.resolve().name if path.is_dir() else Path(plain_name(path)).stem


def _bundled_name(path: Path) -> str:
    facts = path / "stats.json"
    found = json.loads(facts.read_text("utf-8")).get("name") if facts.is_file() else None
    return found if isinstance(found, str) else path.name
