"""`gandalf add-labels`: labels that a model was not trained on, from their texts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gandalf.cli.engine import engine
from gandalf.cli.loading import LOADING, Loading
from gandalf.cli.options import Bundle, Json, offers
from gandalf.cli.output import console, print_json
from gandalf.cli.predict import ModelFolder
from gandalf.data.claim import only_writer
from gandalf.data.new_labels import NewLabel, read_new_labels
from gandalf.data.sentences import counted
from gandalf.errors import DataError

if TYPE_CHECKING:
    from gandalf.model import Part

LabelFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The new labels: .txt with a label's text on each line, or a CSV, TSV, JSONL or Parquet table"
        " with the column text and, if you have them, id, examples and neighbours.",
    ),
]
Out = Annotated[Path | None, typer.Option("-o", "--out", metavar="OUT", help="Folder for the new model.")]
InPlace = Annotated[bool, typer.Option("--in-place", help="Replace MODEL itself, wholly or not at all.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a model that is in OUT.")]
Separator = Annotated[
    str, typer.Option("--separator", help="What stands between the examples or neighbours of a cell.")
]


@dataclass(frozen=True)
class Target:
    """Where the new model goes."""

    out: Path | None
    in_place: bool
    overwrite: bool

    def folder(self, model: Path) -> Path:
        """The folder to write, once it is clear that this is what was meant."""
        if self.in_place:
            if self.out is not None or self.overwrite:
                remedy = "leave out -o and --overwrite, or --in-place"
                raise DataError("--in-place replaces MODEL", remedy=remedy)
            return model
        if self.out is None:
            remedy = "name it: -o OUT, or replace MODEL with --in-place"
            raise DataError("it is not said where the new model goes", remedy=remedy)
        if self.out.resolve() == model.resolve():
            raise DataError("is the model itself", remedy="replace it with --in-place", file=self.out)
        return self.out


TARGET = Bundle(
    Target, {"out": (Out, None), "in_place": (InPlace, False), "overwrite": (Overwrite, False)}, Target
)


@offers(TARGET, LOADING)
def add_labels(
    model: ModelFolder,
    file: LabelFile,
    target: Target,
    loading: Loading,
    separator: Separator = ";",
    json: Json = False,
) -> None:
    """Add labels to a trained model without training it: what is needed of a label is its text.

    Better with [bold]examples[/], texts that are known to have the label, and [bold]neighbours[/], labels of
    the model that are like it, by id or text; several of them as a JSON list or with ; between them. Known
    labels keep their scores. How good labels are that were added like this: docs/guide/new_labels.md.

    [bold]gandalf add-labels my-model new.txt -o longer-model[/]

    A line of a .jsonl file: [bold]{"text": "zstd - fast compression", "examples": ["pack a folder quickly"],
    "neighbours": ["gzip", "xz"]}[/]
    """
    with engine("adding labels"):
        from gandalf.model.save import save_derived
    folder = target.folder(model)
    labels = read_new_labels(file, separator)
    with only_writer(folder, parents=True):  # from before the model is read: it may be the one to replace
        longer = loading.load(model).with_labels(labels)
        save_derived(longer, model, folder, overwrite=target.in_place or target.overwrite)
    _tell(longer, labels, folder, json)


def _tell(model: Part, labels: Sequence[NewLabel], folder: Path, json: bool) -> None:
    from gandalf.model.added_labels import ADDED

    record = model.config[ADDED][-1]
    if json:
        print_json({"out": str(folder), "added": record, "all_labels": model.num_labels})
        return
    more = ", ".join(
        f"{record[key]:,} with {key.removeprefix('with_')}"
        for key in ("with_examples", "with_neighbours")
        if record[key]
    )
    what = f"{counted(len(labels), 'label')} added{f' ({more})' if more else ''}, {model.num_labels:,} in all"
    try_it = f"gandalf predict {shlex.quote(str(folder))} {shlex.quote(labels[0].text)}"
    console().print(f"{escape(str(folder))}: {what}\ntry it: {escape(try_it)}")
