"""Define the options that several commands share: the data, and how a table is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from gandalf.data.dataset import Splits
from gandalf.data.formats.table import TableOptions
from gandalf.data.load import load
from gandalf.errors import DataError, Problem

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A folder, a file, or the bundled set [bold]man[/].")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw it into this picture.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Work on Dask: tcp://HOST:8786, or [bold]local[/] for workers on this machine. The scheduler"
        " must be on a trusted network. Needs the extra cluster.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same result.")]

# Findings that every command tells, not only `check`: the data differs from the letter of its files.
TOLD = ("guessed-separator", "guessed-weights", "graded-targets-scaled", "duplicate-label")

_TABLE = "Reading one CSV, TSV, JSONL or Parquet file"


def _table_option(flag: str, kind: Any, help: str) -> Any:  # noqa: ANN401  what Annotated makes has no type
    return Annotated[kind | None, typer.Option(flag, help=help, rich_help_panel=_TABLE)]


_TABLE_OPTIONS = {
    "text_column": _table_option("--text-column", str, "Column of texts."),
    "label_column": _table_option("--label-column", str, "Column of labels."),
    "weight_column": _table_option("--weight-column", str, "Column of relevances, one for each label."),
    "separator": _table_option(
        "--separator", str, "Separator of labels within a cell; [bold]none[/]: one label in each cell."
    ),
    "labels": _table_option("--labels", Path, "File of label texts."),
    "test": _table_option("--test", Path, "File of test points."),
    "language": _table_option("--language", str, "Language of label texts, if a vocabulary has several."),
    "include": _table_option("--include", Path, "File of the labels to use, one a line."),
    "exclude": _table_option("--exclude", Path, "File of labels not to use."),
}


def tell(findings: Iterable[Problem]) -> None:
    """Print to standard error what was guessed or changed in the data."""
    for problem in findings:
        if problem.kind in TOLD:
            typer.secho(f"{problem.severity}: {problem.with_flags()}", err=True, dim=True)


@dataclass(frozen=True)
class Source:
    """The data set of a command: its name and the options for reading it."""

    data: str
    options: TableOptions

    @property
    def files(self) -> list[Path]:
        """Return the paths that are read: the data itself, and files that options name."""
        named = (value for value in self.options.given.values() if isinstance(value, Path))
        return [Path(self.data), *named]

    def load(self) -> Splits:
        """Read the data set; its first error ends the command. Tell what was guessed or changed."""
        splits = load(self.data, options=self.options)
        tell(splits.findings)
        return splits

    def holds(self, path: Path) -> bool:
        """Return True if writing to the path would change a file that is read."""
        path = path.resolve()
        return any(one.exists() and one.resolve() in (path, *path.parents) for one in self.files)

    def refuse_to_write(self, *paths: Path | None) -> None:
        """Refuse output paths that are part of the data."""
        for path in paths:
            if path is not None and self.holds(path):
                raise DataError("is part of the data that is read", remedy="choose another name", file=path)

    def load_original(self) -> Splits:
        """Read the data set; refuse an augmented set, since label points must not be added twice."""
        splits = self.load()
        if splits.origin is not None:
            raise DataError(
                f"is already augmented, from {splits.origin.name}",
                remedy="give the original set",
                file=self.data,
            )
        return splits


@dataclass(frozen=True)
class Bundle:
    """Options that several commands share and that together make one value.

    A command takes the value as one parameter; the command line offers the options one by one. Typer itself
    would need all of them in the signature of each command.
    """

    of: type
    parameters: dict[str, tuple[Any, Any]]  # name -> (annotated type, default)
    build: Callable[..., Any]


def offers(*bundles: Bundle) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces each parameter of a bundle's type by the bundle's options."""
    by_type = {bundle.of: bundle for bundle in bundles}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        built = {p.name: by_type[p.annotation] for p in own if p.annotation in by_type}
        parameters = [
            each
            for p in own
            for each in (_expanded(built[p.name]) if p.name in built else [p.replace(kind=p.KEYWORD_ONLY)])
        ]

        @wraps(command)
        def unbundled(**given: Any) -> None:  # noqa: ANN401  whatever the command line holds
            values = {
                name: bundle.build(**{option: given.pop(option) for option in bundle.parameters})
                for name, bundle in built.items()
            }
            command(**values, **given)

        unbundled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        unbundled.__annotations__ = {p.name: p.annotation for p in parameters}
        return unbundled

    return decorate


def _expanded(bundle: Bundle) -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY  # typer passes everything by name
    return [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in bundle.parameters.items()
    ]


def _source(data: str, **table: Any) -> Source:  # noqa: ANN401  columns and files
    return Source(data, TableOptions(**table))


SOURCE = Bundle(
    Source,
    {"data": (Data, inspect.Parameter.empty)} | {name: (kind, None) for name, kind in _TABLE_OPTIONS.items()},
    _source,
)

reads_data = offers(SOURCE)
