"""`gandalf evaluate`: score anyone's predictions, or compare two sets of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gandalf.cli.options import Json, Seed, Source, reads_data
from gandalf.cli.output import console, print_json
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import KS
from gandalf.metrics.evaluate import evaluate as scored
from gandalf.report.scores import difference_report, score_report

Predictions = Annotated[
    Path,
    typer.Argument(
        metavar="PREDICTIONS",
        help="Scores for the test points: what gandalf predict -o writes, or any .npz matrix or JSON lines.",
    ),
]
Other = Annotated[
    Path | None,
    typer.Option("--other", metavar="PREDICTIONS", help="A second set; is the difference real?"),
]
K = Annotated[
    list[int] | None, typer.Option("--k", min=1, help="Places that count; repeat it. Default 1, 3, 5.")
]
PropensityA = Annotated[
    float | None, typer.Option("--A", help="Propensity constant. Default by the data set's name, else 0.55.")
]
PropensityB = Annotated[
    float | None, typer.Option("--B", help="Propensity constant. Default by the data set's name, else 1.5.")
]


@reads_data
def evaluate(
    predictions: Predictions,
    source: Source,
    other: Other = None,
    k: K = None,
    A: PropensityA = None,
    B: PropensityB = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Score predictions: P@k, nDCG@k, PSP@k, PSnDCG@k, recall, MRR, coverage, macro precision, P@5 by bins.

    Excluded pairs are dropped before the top k are taken; figures with these pairs stand beside. Every figure
    is also given on known texts, which are label texts that label points train on, and on new texts.

    [bold]gandalf evaluate predictions.npz man[/]

    [bold]gandalf evaluate with.npz man --other without.npz[/]
    """
    splits = source.load()
    paths = [predictions] if other is None else [predictions, other]
    scores = [scored(path, splits, ks=tuple(k or KS), A=A, B=B) for path in paths]
    difference = compare(*scores, seed=seed) if len(scores) == 2 else None
    if json:
        found = scores[0].as_dict()
        if difference is not None:
            found |= {"other": scores[1].as_dict(), "difference": difference.as_dict()}
        print_json(found)
        return
    out = console()
    for path, each in zip(paths, scores, strict=True):
        out.print(str(path), style="bold", markup=False)
        out.print(score_report(each))
    if difference is not None:
        out.print(difference_report(difference, scores[0].ks))
