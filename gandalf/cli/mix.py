"""`gandalf mix`: mix several models into one."""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from gandalf.cli.extras import needs_extra
from gandalf.cli.loading import LOADING, Loading
from gandalf.cli.options import SOURCE, Bundle, Json, Source, offers
from gandalf.cli.output import console, print_written
from gandalf.data.claim import only_writer
from gandalf.data.files import refuse_to_replace
from gandalf.errors import DataError
from gandalf.model_folder import PARTS
from gandalf.report.scores import score_report

if TYPE_CHECKING:
    from gandalf.model import Part
    from gandalf.runs.mix import Mixed

Models = Annotated[
    list[Path], typer.Argument(metavar="MODEL MODEL ...", help="Folders of models with the same labels.")
]
Out = Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="Folder for the mix.")]
DataOption = Annotated[
    str, typer.Option("--data", metavar="DATA", help="Training data of the models; weights are fitted on it.")
]
Share = Annotated[
    float | None,
    typer.Option(
        "--share",
        min=0.0,
        max=1.0,
        help="Share of the training points to fit weights on. Default: the share that train holds out.",
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed for drawing these training points.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a model that is in OUT.")]

MIXED_ON = Bundle(Source, SOURCE.parameters | {"data": (DataOption, Parameter.empty)}, SOURCE.build)


@offers(MIXED_ON, LOADING)
def mix(
    models: Models,
    out: Out,
    source: Source,
    loading: Loading,
    share: Share = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Mix models of the same labels into one: the weighted mean of their probabilities.

    Weights are fitted on training points of DATA, never on its test split: on points that all networks held
    out, if there are any. Label trees are trained again without these points, for the weights alone. A model
    that adds nothing is left out. [bold]gandalf train[/] without --system makes a mix by itself.

    $ gandalf train man linear-model --system linear
    $ gandalf train man deep-model --system astec
    $ gandalf mix linear-model deep-model -o mixed-model --data man
    """
    with needs_extra("mixing models"):
        from gandalf.model import save_model
        from gandalf.runs.mix import TOO_KIND, mix_models
        from gandalf.runs.validation import test_scores
    _refuse_to_lose(out, models, source)
    with only_writer(out, parents=True):
        refuse_to_replace(out, overwrite, (PARTS,))  # before minutes of work
        splits = source.load_original()
        loaded: dict[str, Part] = {}
        for folder in models:
            loaded[_new_name(folder, loaded)] = loading.load(folder)
        found = mix_models(loaded, splits, share, seed)
        if found.seen:
            typer.secho(f"warning: {TOO_KIND}", err=True, dim=True)
        scores = test_scores(found.model, splits)
        about = found.as_dict()
        metrics = ({} if scores is None else scores.as_dict()) | {"mixing": about}
        save_model(found.model, out, metrics=metrics, overwrite=overwrite)
    if not json:
        console().print(_table(about))
    print_written(out, _sentence(found), metrics, json)
    if scores is not None and not json:
        console().print(score_report(scores))


def _refuse_to_lose(out: Path, models: list[Path], source: Source) -> None:
    """Refuse an OUT that is, or is inside, an input of the command."""
    source.refuse_to_write(out)
    for folder in models:
        if folder.resolve() in (out.resolve(), *out.resolve().parents):
            what = f"is the model {folder}, or lies in it"
            raise DataError(what, remedy="choose another name", file=out)


def _new_name(folder: Path, taken: dict[str, Part]) -> str:
    """Return the folder's name, with a number appended if an earlier model has the same name."""
    name = folder.resolve().name
    return next(each for each in (name, *(f"{name}-{n}" for n in range(2, 100))) if each not in taken)


def _sentence(found: Mixed) -> str:
    names, weights = found.fitted.names, found.fitted.weights
    if len(names) == 1:
        return f"{names[0]} alone: the others add nothing on these points"
    return "a mix of " + ", ".join(
        f"{name} {weight:.0%}" for name, weight in zip(names, weights, strict=True)
    )


def _table(about: dict[str, Any]) -> Table:
    figures = list(about["mix"])
    kind = "training" if about["may_have_been_seen"] else "held-out training"
    title = f"On {about['held_out_points']:,} {kind} points"
    found = Table(title=title, title_justify="left")
    for name in ("", *figures, "weight"):
        found.add_column(name, justify="right" if name else "left")
    for each in about["parts"]:
        weight = f"{each['weight']:.0%}" if each["weight"] else "-"
        found.add_row(escape(each["name"]), *(f"{each[name]:.2f}" for name in figures), weight)
    found.add_row("the mix", *(f"{about['mix'][name]:.2f}" for name in figures), "", style="bold")
    return found
