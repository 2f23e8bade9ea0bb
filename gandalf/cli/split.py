"""`gandalf split`: hold out a test split, in the way that gandalf holds out training points."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from gandalf.cli.augment import FormatName, Out
from gandalf.cli.options import Json, Seed, Source, reads_data
from gandalf.cli.output import print_written
from gandalf.data.export import export
from gandalf.data.holdout import hold_out_points
from gandalf.data.sentences import counted
from gandalf.errors import DataError

Share = Annotated[
    float, typer.Option("--share", help="Share of the points that become test points, between 0 and 1.")
]
Format = Annotated[FormatName, typer.Option("--format", help="Layout to write, or the trainer to write for.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an OUT that gandalf split wrote.")]


@reads_data
def split(
    source: Source,
    out: Out,
    share: Share = 0.1,
    seed: Seed = 0,
    format: Format = "raw",
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Split a data set without a test split into training points and test points.

    All points with one text go into one part; the choice depends on texts and seed alone. A test point keeps
    only labels that have a training point. On item-to-item data it also loses its own label, and pairs that
    the training points hold in the other direction. A test point without labels is in neither part.

    $ gandalf split tickets.csv tickets
    $ gandalf reproduce main tickets  # needs a test split
    """
    source.refuse_to_write(out)
    splits = source.load_original()
    if splits.test is not None:
        what = f"has a test split already, of {counted(len(splits.test), 'point')}"
        raise DataError(what, remedy="give the training points alone", file=source.data)
    parts = hold_out_points(splits.train, share, seed, at_most=None)
    export(replace(splits, train=parts.rest, test=parts.held), out, format, overwrite=overwrite)
    left = len(splits.train) - len(parts.rest) - len(parts.held)
    counts = {"train": len(parts.rest), "test": len(parts.held), "left_out": left}
    sentence = f"{counted(len(parts.rest), 'training point')} and {counted(len(parts.held), 'test point')}"
    if left:
        sentence += f"; left out: {counted(left, 'point')} without a label that can be asked for"
    print_written(out, sentence, {**counts, "labels": splits.train.num_labels}, json)
