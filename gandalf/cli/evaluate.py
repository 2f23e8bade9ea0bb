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
        help="Scores for the test points of DATA: a file that gandalf predict -o wrote, or any .npz matrix or"
        " JSON lines.",
    ),
]
Other = Annotated[
    Path | None,
    typer.Option(
        "--other", metavar="PREDICTIONS", help="Other predictions; is the difference more than chance?"
    ),
]
K = Annotated[
    list[int] | None,
    typer.Option("--k", min=1, help="The k of P@k and the like; repeatable. Default: 1, 3, 5."),
]
PropensityA = Annotated[
    float | None, typer.Option("--A", help="Propensity constant. Default: by the data set's name, else 0.55.")
]
PropensityB = Annotated[
    float | None, typer.Option("--B", help="Propensity constant. Default: by the data set's name, else 1.5.")
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
    """Score anyone's predictions on the test split of DATA, or compare two sets of predictions.

    Figures are P@k, nDCG@k, PSP@k, PSnDCG@k, recall, MRR, coverage, macro precision, and P@5 by bins of label
    frequency (docs/guide/metrics.md). Excluded pairs are dropped before the top k are taken; figures with
    these pairs stand beside. Every figure is also given on known texts, which are label texts too, and on new
    texts.

    $ gandalf predict my-model man -o predictions.npz
    $ gandalf evaluate predictions.npz man
    $ gandalf evaluate with.npz man --other without.npz
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
