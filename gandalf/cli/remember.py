"""`gandalf remember`: give a trained model a memory of its training points."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from gandalf.cli.extras import needs_extra
from gandalf.cli.graph_options import GRAPH
from gandalf.cli.loading import LOADING, Loading
from gandalf.cli.mix import Overwrite, Share
from gandalf.cli.options import SOURCE, Bundle, Json, Source, offers
from gandalf.cli.output import console, print_written
from gandalf.cli.predict import ModelFolder
from gandalf.data.claim import only_writer
from gandalf.data.files import refuse_to_replace
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions
from gandalf.model_folder import PARTS
from gandalf.report.scores import score_report

if TYPE_CHECKING:
    from gandalf.runs.remember import Remembered

Out = Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="Folder for the model with a memory.")]
Neighbours = Annotated[
    int,
    typer.Option(
        "--neighbours", min=1, help="Nearest points and label texts that vote for the labels of a text."
    ),
]
SHOWN = 5  # trials in the table
KEPT_GRAPH = Bundle(
    GraphOptions, GRAPH.parameters | {"targets": (GRAPH.parameters["targets"][0], "shrunk")}, GraphOptions
)


@offers(SOURCE, KEPT_GRAPH, LOADING)
def remember(
    model: ModelFolder,
    source: Source,
    graph: GraphOptions,
    loading: Loading,
    out: Out,
    neighbours: Neighbours = 50,
    share: Share = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Give a trained model a memory of its training points; no weight is trained again.

    The memory keeps the vectors of training points and label texts as keys, and their labels as values. When
    the model predicts, the nearest keys of a text vote for their labels. The weight of the memory, its
    temperature and the values of label texts (none, their label, or their row of the label graph) are fitted
    on training points that the model held out, never on the test split. If no memory helps, OUT is a copy of
    MODEL.

    $ gandalf remember my-model tickets.csv -o with-memory  # the data that my-model was trained on
    """
    with needs_extra("a memory"):
        from gandalf.model.card import CHANGED_SINCE
        from gandalf.model.save import save_derived
        from gandalf.runs.remember import TOO_KIND, MemoryOptions
        from gandalf.runs.remember import remember as fit
        from gandalf.runs.validation import test_scores
    source.refuse_to_write(out)
    if out.resolve() == model.resolve():
        raise DataError("is the model itself", remedy="choose another name", file=out)
    with only_writer(out, parents=True):
        refuse_to_replace(out, overwrite, (PARTS,))  # before minutes of work
        splits = source.load_original()
        options = MemoryOptions(neighbours=neighbours, graph=graph)
        found = fit(loading.load(model), splits, options, share)
        if found.seen:
            typer.secho(f"warning: {TOO_KIND}", err=True, dim=True)
        scores = test_scores(found.model, splits)
        since = {CHANGED_SINCE: "a memory was added" if scores is None else None}
        metrics = ({} if scores is None else scores.as_dict()) | {"memory": found.as_dict(), **since}
        save_derived(found.model, model, out, metrics=metrics, overwrite=overwrite)
    if not json:
        console().print(_table(found.as_dict()))
    print_written(out, _sentence(found), metrics, json)
    if scores is not None and not json:
        console().print(score_report(scores))


def _sentence(found: Remembered) -> str:
    chosen = found.trials[0]
    if not chosen.weight:
        return "the model as it was: no memory helps on these points"
    values = {
        "none": "without label texts",
        "own": "in which a label text stands for its label",
        "graph": "in which a label text stands for its row of the label graph",
    }
    return f"a memory of weight {chosen.weight:.0%}, {values[chosen.label_values]}"


def _table(about: dict[str, Any]) -> Table:
    figures = list(about["alone"])
    kind = "training" if about["may_have_been_seen"] else "held-out training"
    found = Table(title=f"On {about['held_out_points']:,} {kind} points", title_justify="left")
    for name in ("label texts", "temperature", "doubt", "weight", *figures):
        found.add_column(name, justify="left" if name == "label texts" else "right")
    found.add_row("the model alone", "", "", "-", *(f"{about['alone'][name]:.2f}" for name in figures))
    for at, each in enumerate(about["tried"][:SHOWN]):
        doubt = "-" if each["doubt"] is None else f"{each['doubt']:.2f}"
        cells = (each["label_values"], f"{each['temperature']:g}", doubt, f"{each['weight']:.0%}")
        row = (*cells, *(f"{each[name]:.2f}" for name in figures))
        found.add_row(*row, style=None if at else "bold")
    return found
