"""Options that several commands share: where the data is, and how a table of texts and labels is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from gandalf.data.dataset import Splits
from gandalf.data.formats.table import TableOptions
from gandalf.data.load import load

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A folder, a file, or the bundled set [bold]man[/].")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw it into this picture.")]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same result.")]

_TABLE = "Reading one CSV, TSV, JSONL or Parquet file"


def _table_option(flag: str, kind: Any, help: str) -> Any:  # noqa: ANN401  what Annotated makes has no type
    return Annotated[kind | None, typer.Option(flag, help=help, rich_help_panel=_TABLE)]


_TABLE_OPTIONS = {
    "text_column": _table_option("--text-column", str, "Column of texts."),
    "label_column": _table_option("--label-column", str, "Column of labels."),
    "weight_column": _table_option("--weight-column", str, "Column of relevances, one for each label."),
    "separator": _table_option("--separator", str, "What stands between the labels of a cell."),
    "labels": _table_option("--labels", Path, "File of label texts."),
    "test": _table_option("--test", Path, "File of test points."),
}


@dataclass(frozen=True)
class Source:
    """The data set that a command was asked to work on."""

    data: str
    options: TableOptions

    def load(self) -> Splits:
        """Read it; the first error in it ends the command."""
        return load(self.data, options=self.options)


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a command's parameter of type `Source` into the DATA argument and the options of tables.

    Defined here once, not in every command's signature, which typer would otherwise ask for.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY  # typer passes everything by name
    own = inspect.signature(command, eval_str=True).parameters.values()
    (source_name,) = (parameter.name for parameter in own if parameter.annotation is Source)
    data = inspect.Parameter("data", keyword, annotation=Data)
    parameters = [data if p.name == source_name else p.replace(kind=keyword) for p in own] + [
        inspect.Parameter(name, keyword, default=None, annotation=annotation)
        for name, annotation in _TABLE_OPTIONS.items()
    ]

    @wraps(command)
    def with_source(**given: Any) -> None:  # noqa: ANN401  whatever the command line holds
        options = TableOptions(**{name: given.pop(name) for name in _TABLE_OPTIONS})
        command(**{source_name: Source(given.pop("data"), options)}, **given)

    with_source.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_source.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_source
