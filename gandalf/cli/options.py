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
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.load import load
from gandalf.errors import DataError, Problem

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder, a CSV, TSV, JSONL or Parquet file, or the bundled set [bold]man[/]. All layouts:"
        " docs/reference/layouts.md.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.png", help="Also draw a picture: .png, .svg or .pdf."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Compute on Dask: tcp://HOST:8786, or [bold]local[/] for workers on this machine. The scheduler"
        " must be on a trusted network. Needs the extra cluster.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of all random choices: the same seed, the same result.")
]

# Findings that every command prints, not only `check`: something in the files was guessed or changed.
PRINTED = ("guessed-separator", "guessed-weights", "graded-targets-scaled", "duplicate-label")


def print_findings(findings: Iterable[Problem]) -> None:
    """Print to standard error what was guessed or changed in the data."""
    for problem in findings:
        if problem.kind in PRINTED:
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
        """Read the data set, and print what was guessed or changed; its first error is a DataError."""
        splits = load(self.data, options=self.options)
        print_findings(splits.findings)
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

    A command takes the value as one parameter, but the command line offers each option. Typer alone would
    need every option in the signature of every command.
    """

    value_type: type
    parameters: dict[str, tuple[Any, Any]]  # name -> (annotated type, default)
    build: Callable[..., Any]


def panel(title: str, **options: tuple[Any, ...]) -> dict[str, tuple[Any, Any]]:
    """Return parameters of a bundle that help shows in one panel.

    An option is (type, default, help) and, if needed, a dictionary of further arguments of `typer.Option`.
    """
    found = {}
    for name, (kind, default, help, *more) in options.items():
        settings = {"help": help, "rich_help_panel": title, **(more[0] if more else {})}
        found[name] = (Annotated[kind, typer.Option(f"--{name.replace('_', '-')}", **settings)], default)
    return found


def offers(*bundles: Bundle) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces each parameter of a bundle's type by the bundle's options."""
    by_type = {bundle.value_type: bundle for bundle in bundles}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        declared = inspect.signature(command, eval_str=True).parameters.values()
        bundled = {p.name: by_type[p.annotation] for p in declared if p.annotation in by_type}
        parameters = [each for p in declared for each in _expanded(p, bundled.get(p.name))]

        @wraps(command)
        def unbundled(**given: Any) -> None:  # noqa: ANN401  whatever the command line holds
            values = {
                name: bundle.build(**{option: given.pop(option) for option in bundle.parameters})
                for name, bundle in bundled.items()
            }
            command(**values, **given)

        unbundled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        unbundled.__annotations__ = {p.name: p.annotation for p in parameters}
        return unbundled

    return decorate


def _expanded(parameter: inspect.Parameter, bundle: Bundle | None) -> list[inspect.Parameter]:
    """Return the parameters of the bundle's options; without a bundle, the parameter itself."""
    keyword = inspect.Parameter.KEYWORD_ONLY  # typer passes everything by name
    if bundle is None:
        return [parameter.replace(kind=keyword)]
    return [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in bundle.parameters.items()
    ]


def _source(data: str, **table: Any) -> Source:  # noqa: ANN401  columns and files
    return Source(data, TableOptions(**table))


SOURCE = Bundle(
    Source,
    {"data": (Data, inspect.Parameter.empty)}
    | panel(
        "Reading a table: CSV, TSV, JSONL or Parquet",
        text_column=(str | None, None, "Column of texts. Default: guessed from the header."),
        label_column=(str | None, None, "Column of labels. Default: guessed from the header."),
        weight_column=(str | None, None, "Column of relevances, one for each label of the row."),
        separator=(
            str | None,
            None,
            "Separator of labels within a cell; [bold]none[/]: one label in each cell. Default: guessed.",
        ),
        labels=(Path | None, None, "File of label texts: .txt with one a line, or a table of id and text."),
        test=(Path | None, None, "File of test points."),
        language=(str | None, None, "Language of the label texts, if the file of labels has several."),
        include=(Path | None, None, "File of the labels to use, by id or text, one a line."),
        exclude=(Path | None, None, "File of labels to leave out, by id or text, one a line."),
    ),
    _source,
)

reads_data = offers(SOURCE)
