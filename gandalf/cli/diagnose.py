"""`gandalf diagnose`: measure whether the paper's assumption holds, and recommend targets."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gandalf.cli.extras import needs_extra
from gandalf.cli.graph_options import Delta
from gandalf.cli.options import Json, Plot, Seed, Source, reads_data
from gandalf.cli.output import console, print_json, share
from gandalf.data.dataset import Dataset
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.graph.postulate import Diagnosis
from gandalf.graph.postulate import diagnose as diagnosed
from gandalf.report.graphs import gains_table, plot_reliability, quality_table, reliability_table

if TYPE_CHECKING:
    from gandalf.runs.choose import Gains

GAINS_MINUTES = 1.0


Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        min=0.0,
        help="Minutes in which to train with each kind of label points and compare on held-out points; 0: do"
        f" not train. Default: {GAINS_MINUTES:g} if no label text is a training text, else 0.",
    ),
]


@reads_data
def diagnose(
    source: Source,
    delta: Delta = 0.1,
    seed: Seed = 0,
    minutes: Minutes = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Measure whether label points get the right targets on this data, and recommend a kind of targets.

    The paper assumes that a point with the text of label j has the targets of the points with label j. The
    command compares the two on labels whose text is also a training text. If there are hardly any, it says
    what co-occurrences alone tell, and measures in a minute of training what label points gain.

    $ gandalf diagnose man
    $ gandalf diagnose man --plot reliability.png
    """
    source.refuse_to_write(plot)
    splits = source.load_original()
    found = diagnosed(splits.train, delta=delta, seed=seed)
    if plot is not None and not found.estimates:
        raise DataError("there is nothing to draw: no target can be observed", remedy="leave --plot out")
    if plot is not None:
        plot_reliability(found, plot, title=splits.name)
    if minutes is None:
        minutes = 0.0 if found.estimates or find_spec("torch") is None else GAINS_MINUTES
    if not json:
        _show(splits.name, found, console())
        if plot is not None:
            console().print(f"drawn: {escape(str(plot))}")
    gains = _gains(splits.train, found, minutes, seed) if minutes else None
    if json:
        more = {} if gains is None else {"gains": gains.as_dict()}
        print_json({"data": splits.name, "delta": delta, **found.as_dict(), **more})
    elif gains is not None:
        if gains.tried:
            console().print(gains_table(gains))
        console().print(f"[bold]{escape(gains.verdict)}[/]")


def _gains(points: Dataset, found: Diagnosis, minutes: float, seed: int) -> Gains:
    """Train with every kind of label points that can differ on this data, and return the gains."""
    with needs_extra("--minutes"):
        from gandalf.runs.choose import label_point_gains
    kinds = ["self"]
    if found.together.with_others:
        kinds += ["ratio", "shrunk"]
    if found.estimates:
        kinds.append("calibrated")
    return label_point_gains(points, kinds, minutes, seed=seed, tell=partial(typer.secho, err=True, dim=True))


def _show(name: str, found: Diagnosis, out: Console) -> None:
    if not found.estimates:
        out.print(f"{escape(name)}\n\n[bold]{escape(found.verdict)}[/]\n")
        return
    matched = found.matched_labels / max(found.labels, 1)
    labels, shared = counted(found.labels, "label"), counted(found.labels_that_share_a_text, "label")
    out.print(
        f"{escape(name)}: {found.matched_labels:,} of {labels} ({share(matched)}) have the text of a "
        f"training point; {shared} share a text with another, and "
        f"{counted(found.texts_of_several_points, 'matched text')} with several points."
    )
    out.print(quality_table(found))
    fitted = counted(found.strength_fitted_on, "pair")
    out.print(f"Strength of shrinkage: {found.strength:g}, from {fitted} of labels\n")
    for one in found.estimates:
        if one.name in ("ratio", found.recommended):
            out.print(reliability_table(one))
    out.print(f"\n[bold]{escape(found.verdict)}[/]")
