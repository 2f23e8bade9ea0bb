"""`gandalf graph`: build the label graph, show neighbours of labels, and save the graph."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from scipy.sparse import csr_array, save_npz

from gandalf.cli.graph_options import GRAPH
from gandalf.cli.opened_set import OpenedSet, open_set
from gandalf.cli.options import SOURCE, Cluster, Json, Plot, Source, offers
from gandalf.cli.output import console, print_json
from gandalf.data.claim import only_writer
from gandalf.data.files import written
from gandalf.graph.kind import LabelGraph
from gandalf.graph.label_graph import GraphOptions
from gandalf.graph.neighbours import Neighbourhood, find_labels, typical_labels
from gandalf.report.graphs import neighbour_table, plot_neighbours

MENTIONED = 5  # most names of other labels that match the same query

Label = Annotated[
    list[str] | None,
    typer.Option(
        "--label", help="Show the neighbours of this label, by id, text or words of its text; repeatable."
    ),
]
Save = Annotated[
    Path | None, typer.Option("--save", metavar="GRAPH.npz", help="Write the graph, a SciPy CSR matrix.")
]


@offers(SOURCE, GRAPH)
def graph(
    source: Source,
    options: GraphOptions,
    label: Label = None,
    save: Save = None,
    plot: Plot = None,
    cluster: Cluster = None,
    json: Json = False,
) -> None:
    """Show which labels occur together, and save the label graph.

    Row j of the graph holds the targets of a point with the text of label j: how likely each other label is
    for that text. Without --label the command shows some typical labels.

    $ gandalf graph man --label gzip
    $ gandalf graph man --targets calibrated --save graph.npz
    $ gandalf graph shards --cluster tcp://scheduler:8786 --save graph.npz  # on Dask
    """
    source.refuse_to_write(save, plot)
    with open_set(source, options, cluster) as opened:
        matches = [find_labels(opened.labelled, query) for query in label or ()]
        found = opened.label_graph(options)
        shown = [labels[0] for labels in matches] or typical_labels(opened.labelled, found.matrix)
        near = [opened.neighbourhood(found.matrix, each) for each in shown]
        if save is not None:
            with only_writer(save), written(save, "wb") as file:
                save_npz(file, found.matrix)
    if plot is not None:
        plot_neighbours(near, plot)
    if json:
        print_json(_as_dict(opened.name, found, options, near))
        return
    _show(opened, found, near, matches)
    for path, done in ((save, "written"), (plot, "drawn")):
        if path is not None:
            console().print(f"{done}: {escape(str(path))}")


def _show(opened: OpenedSet, found: LabelGraph, near: list[Neighbourhood], matches: list[list[int]]) -> None:
    out = console()
    for each in near:
        out.print(neighbour_table(each))
        out.print()
    texts = opened.labelled.label_texts
    for labels in matches:
        if len(labels) > 1 and texts is not None:
            others = "; ".join(texts[label] for label in labels[1 : 1 + MENTIONED])
            out.print(f"[dim]{len(labels) - 1:,} more labels match the query: {escape(others)}[/]")
    facts = summary(found.matrix)
    out.print(
        f"{opened.name}: {found.estimate} targets, {facts['entries']:,} entries, "
        f"{facts['neighbours_per_label']:.2f} neighbours a label, "
        f"{facts['labels_alone']:,} of {facts['labels']:,} labels alone with themselves"
    )
    for name, value in found.details.items():
        out.print(f"[dim]{name.replace('_', ' ')}: {escape(str(value))}[/]")


def summary(matrix: csr_array) -> dict[str, Any]:
    """Return the size of a label graph in a few numbers."""
    labels = matrix.shape[0]
    return {
        "labels": labels,
        "entries": int(matrix.nnz),
        "neighbours_per_label": (matrix.nnz - labels) / max(labels, 1),
        "labels_alone": int((np.diff(matrix.indptr) == 1).sum()),
    }


def _as_dict(
    name: str, found: LabelGraph, options: GraphOptions, near: list[Neighbourhood]
) -> dict[str, Any]:
    return {
        "data": name,
        "targets": found.estimate,
        "options": asdict(options),
        "details": found.details,
        **summary(found.matrix),
        "neighbourhoods": [asdict(one) for one in near],
    }
