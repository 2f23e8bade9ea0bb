"""`gandalf add-labels`: add labels to a trained model by their texts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gandalf.cli.extras import needs_extra
from gandalf.cli.loading import LOADING, Loading
from gandalf.cli.options import Bundle, Json, offers
from gandalf.cli.output import console, print_written
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
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="OUT", help="Folder for the new model; needed unless --in-place."),
]
InPlace = Annotated[
    bool, typer.Option("--in-place", help="Replace MODEL itself; after an error it is as it was.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a model that is in OUT.")]
Separator = Annotated[
    str, typer.Option("--separator", help="Separator of examples and of neighbours within a cell.")
]


@dataclass(frozen=True)
class Target:
    """The folder for the new model: a new folder, or the model itself."""

    out: Path | None
    in_place: bool
    overwrite: bool

    def folder(self, model: Path) -> Path:
        """Return the folder to write; raise a DataError if the options contradict one another."""
        if self.in_place:
            if self.out is not None or self.overwrite:
                remedy = "leave out -o and --overwrite, or --in-place"
                raise DataError("--in-place replaces MODEL", remedy=remedy)
            return model
        if self.out is None:
            remedy = "name it: -o OUT, or replace MODEL with --in-place"
            raise DataError("no folder for the new model is named", remedy=remedy)
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
    """Add labels to a trained model by their texts, without training it again.

    A new label needs a text. It is predicted better with [bold]examples[/], texts that are known to have the
    label, and with [bold]neighbours[/], known labels that are like it, by id or text. Give several as a JSON
    list or separated by ;. Known labels keep their scores. The quality of added labels:
    docs/guide/new_labels.md.

    $ gandalf add-labels my-model new.txt -o longer-model
    $ gandalf add-labels my-model new.jsonl --in-place

    A line of new.jsonl: [bold]{"text": "zstd - fast compression", "examples": ["pack a folder quickly"],
    "neighbours": ["gzip", "xz"]}[/]
    """
    with needs_extra("adding labels"):
        from gandalf.model.save import save_derived
    folder = target.folder(model)
    labels = read_new_labels(file, separator)
    with only_writer(folder, parents=True):  # locked before the model is read, since it may be replaced
        longer = loading.load(model).with_labels(labels)
        save_derived(longer, model, folder, overwrite=target.in_place or target.overwrite)
    _tell(longer, labels, folder, json)


def _tell(model: Part, labels: Sequence[NewLabel], folder: Path, json: bool) -> None:
    from gandalf.model.added_labels import ADDED

    record = model.config[ADDED][-1]
    more = ", ".join(
        f"{record[key]:,} with {key.removeprefix('with_')}"
        for key in ("with_examples", "with_neighbours")
        if record[key]
    )
    what = f"{counted(len(labels), 'label')} added{f' ({more})' if more else ''}, {model.num_labels:,} in all"
    print_written(folder, what, {"added": record, "all_labels": model.num_labels}, json)
    if not json:
        command = shlex.join(["gandalf", "predict", str(folder), labels[0].text])
        console().print(escape(f"try it: {command}"))
