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
        "--label", help="Show this label's neighbours: its id, its text, or some words of it. Repeatable."
    ),
]
Save = Annotated[
    Path | None, typer.Option("--save", metavar="GRAPH.npz", help="Write the graph (SciPy CSR).")
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
    """Show which labels occur together: row j of the graph holds the targets of a point with label j's text.

    [bold]gandalf graph man --label gzip[/]

    [bold]gandalf graph man --targets calibrated --save graph.npz[/]

    [bold]gandalf graph shards --cluster tcp://scheduler:8786 --save graph.npz[/]  counted on Dask
    """
    source.refuse_to_write(save, plot)
    with open_set(source, options, cluster) as points:
        answers = [find_labels(points.labelled, query) for query in label or ()]
        found = points.label_graph(options)
        shown = [one[0] for one in answers] or typical_labels(points.labelled, found.matrix)
        near = [points.neighbourhood(found.matrix, one) for one in shown]
        if save is not None:
            with only_writer(save), written(save, "wb") as file:
                save_npz(file, found.matrix)
    if plot is not None:
        plot_neighbours(near, plot)
    if json:
        print_json(_as_dict(points.name, found, options, near))
        return
    _show(points, found, near, answers)
    for path, done in ((save, "written"), (plot, "drawn")):
        if path is not None:
            console().print(f"{done}: {escape(str(path))}")


def _show(points: OpenedSet, found: LabelGraph, near: list[Neighbourhood], answers: list[list[int]]) -> None:
    out = console()
    for one in near:
        out.print(neighbour_table(one))
        out.print()
    texts = points.labelled.label_texts
    for same in (a for a in answers if len(a) > 1 and texts is not None):
        others = "; ".join(texts[i] for i in same[1 : 1 + MENTIONED]) if texts else ""
        out.print(f"[dim]{len(same) - 1:,} more labels match the query: {escape(others)}[/]")
    facts = summary(found.matrix)
    out.print(
        f"{points.name}: {found.estimate} targets, {facts['entries']:,} entries, "
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
