"""`gandalf diagnose`: does the paper's assumption hold on this data, and which targets to use."""

from __future__ import annotations

from rich.markup import escape

from gandalf.cli.graph_options import Delta
from gandalf.cli.options import Json, Plot, Seed, Source, reads_data
from gandalf.cli.output import console, print_json, share
from gandalf.graph.postulate import diagnose as diagnosed
from gandalf.report.graphs import plot_reliability, quality_table, reliability_table


@reads_data
def diagnose(
    source: Source, delta: Delta = 0.1, seed: Seed = 0, plot: Plot = None, json: Json = False
) -> None:
    """Measure how far P(i | text of j) = P(i | j) holds, on labels whose text is also a training text.

    [bold]gandalf diagnose man[/]

    [bold]gandalf diagnose man --plot reliability.png[/]
    """
    source.refuse_to_write(plot)
    splits = source.load_original()
    found = diagnosed(splits.train, delta=delta, seed=seed)
    if plot is not None:
        plot_reliability(found, plot, title=splits.name)
    if json:
        print_json({"data": splits.name, "delta": delta, **found.as_dict()})
        return
    out = console()
    matched = found.matched_labels / max(found.labels, 1)
    out.print(
        f"{escape(splits.name)}: {found.matched_labels:,} of {found.labels:,} labels ({share(matched)}) have "
        f"the text of a training point; {found.labels_that_share_a_text:,} labels share their text with "
        f"another, and {found.texts_of_several_points:,} matched texts belong to several points."
    )
    if found.estimates:
        out.print(quality_table(found))
    out.print(
        f"Strength of shrinkage: {found.strength:g}, from {found.strength_fitted_on:,} pairs of labels\n"
    )
    for one in found.estimates:
        if one.name in ("ratio", found.recommended):
            out.print(reliability_table(one))
    out.print(f"\n[bold]{escape(found.verdict)}[/]")
    if plot is not None:
        out.print(f"drawn: {escape(str(plot))}")
