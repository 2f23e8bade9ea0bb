"""`gandalf add-examples`: add texts with known labels to a model, which uses them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gandalf.cli.add_labels import TARGET, Target
from gandalf.cli.extras import needs_extra
from gandalf.cli.loading import LOADING, Loading
from gandalf.cli.options import SOURCE, Json, Source, offers
from gandalf.cli.output import console, print_written
from gandalf.cli.predict import ModelFolder
from gandalf.data.claim import only_writer
from gandalf.data.new_examples import Example
from gandalf.data.sentences import counted
from gandalf.errors import DataError

NewLabels = Annotated[
    bool,
    typer.Option("--new-labels", help="Also add labels that the examples have and the model has not."),
]


@offers(SOURCE, TARGET, LOADING)
def add_examples(
    model: ModelFolder,
    source: Source,
    target: Target,
    loading: Loading,
    new_labels: NewLabels = False,
    json: Json = False,
) -> None:
    """Add texts with known labels to a model; it uses them at once, and nothing is trained again.

    DATA is a table or a folder, as for gandalf train; its training points become examples in the memory of
    the model. A model without a memory gets one that holds the examples alone; [bold]gandalf remember[/] adds
    the training points.

    $ gandalf add-examples my-model more.csv -o better-model
    $ gandalf add-examples my-model more.csv --in-place --new-labels
    """
    with needs_extra("adding examples"):
        from gandalf.model import ModelWithMemory
        from gandalf.model.card import CHANGED_SINCE
        from gandalf.model.examples import examples_for, with_examples, with_new_labels
        from gandalf.model.save import save_derived
    folder = target.folder(model)
    source.refuse_to_write(folder)
    points = source.load_original().train
    with only_writer(folder, parents=True):  # locked before the model is read, since it may be replaced
        loaded = loading.load(model)
        found = with_new_labels(loaded, points) if new_labels else loaded
        examples = examples_for(found, points)
        if not examples:
            what = "has no training point with a label"
            raise DataError(what, remedy="give texts with their labels", file=source.data)
        longer = with_examples(found, examples)
        since = {CHANGED_SINCE: "examples were added"}
        save_derived(longer, model, folder, metrics=since, overwrite=target.in_place or target.overwrite)
    fresh = not isinstance(loaded, ModelWithMemory)
    _tell(folder, examples, longer.num_labels - loaded.num_labels, fresh, json)


def _tell(folder: Path, examples: list[Example], labels: int, fresh: bool, json: bool) -> None:
    more = f", and {counted(labels, 'new label')}" if labels else ""
    facts = {"examples": len(examples), "labels": labels, "new_memory": fresh}
    print_written(folder, f"{counted(len(examples), 'example')} added{more}", facts, json)
    if fresh and not labels and not json:
        note = (
            "the memory holds these examples alone; gandalf remember adds the training points and keeps them"
        )
        console().print(f"[dim]{note}[/]")
