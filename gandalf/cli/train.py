"""`gandalf train`: train a model on a data set and write its folder."""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from gandalf.cli.extras import needs_extra
from gandalf.cli.options import SOURCE, Bundle, Json, Source, offers, panel
from gandalf.cli.output import console, print_json
from gandalf.cli.ranks import as_one, known_to_all
from gandalf.cli.recipe_options import RECIPE_OPTIONS, RecipeOptions
from gandalf.data.dataset import Splits
from gandalf.data.sentences import counted
from gandalf.report.scores import score_report
from gandalf.report.trials import search_report, targets_report

if TYPE_CHECKING:
    from gandalf.recipe import Recipe
    from gandalf.runs.folder import RunPlace
    from gandalf.runs.start import Outcome

EXAMPLE = 80  # characters of the text to try
INTERRUPTED = 130  # 128 + SIGINT, the convention of shells
Out = Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the model: a new one, or an empty one.")]


@dataclass(frozen=True)
class RunOptions:
    """The options of a run and its folder: how it starts, its checkpoints, and its trackers."""

    resume: bool
    overwrite: bool
    tensorboard: bool
    mlflow: bool
    wandb: bool
    checkpoint_minutes: float

    @property
    def trackers(self) -> tuple[str, ...]:
        """Return the names of the trackers to log to."""
        return tuple(name for name in ("tensorboard", "mlflow", "wandb") if getattr(self, name))


RUN_OPTIONS = Bundle(
    RunOptions,
    panel(
        "The run and its folder",
        resume=(
            bool,
            False,
            "Continue the run in OUT from its last checkpoint, or start a run.",
        ),
        overwrite=(bool, False, "First remove a run or model that is in OUT."),
        tensorboard=(bool, False, "Also log for TensorBoard."),
        mlflow=(bool, False, "Also log to the MLflow of MLFLOW_TRACKING_URI."),
        wandb=(bool, False, "Also log to Weights & Biases."),
        checkpoint_minutes=(
            float,
            5.0,
            "Minutes between checkpoints; 0: after every update.",
            {"min": 0.0},
        ),
    ),
    RunOptions,
)


@offers(SOURCE, RECIPE_OPTIONS, RUN_OPTIONS)
def train(
    source: Source, out: Out, options: RecipeOptions, run_options: RunOptions, json: Json = False
) -> None:
    """Train a model on the training points of DATA, and write its folder OUT.

    Without --system the command tries several models within a budget of time, and keeps the model or the mix
    that is best on held-out training points. The first usable model is in OUT within seconds. Figures on the
    test split, if DATA has one, are printed and written to OUT/metrics.json.

    $ gandalf train man my-model  # search for the best model
    $ gandalf train man my-model --minutes 2
    $ gandalf train tickets.csv my-model --text-column subject --label-column tags
    $ gandalf train man my-model --system inceptionxml --epochs 20
    $ gandalf train man my-model --set encoder.dim=200 --set head.rate=0.01
    $ gandalf predict my-model "compress a file"

    A setting that no option changes is that of the system's recipe; [bold]gandalf config[/] prints them all.
    Changes are made in this order: --config, named options such as --epochs, --set.

    Ctrl-C stops after a checkpoint. The same command with --resume continues the run, also after a crash.
    torchrun trains in several processes, each with a share of the labels' rows (docs/guide/scaling.md):

    $ torchrun --nproc-per-node 2 -m gandalf train man my-model
    """
    with known_to_all():
        recipe = options.recipe()
    with needs_extra("training"):
        from gandalf.runs.folder import RunPlace
        from gandalf.runs.watch import Interrupted
        from gandalf.train.parallel.several import joined
    with joined() as ranks, as_one(ranks):
        ranks.connect(recipe.device)
        minutes, trackers = run_options.checkpoint_minutes, run_options.trackers
        tell = partial(typer.echo, err=True)
        place = RunPlace(out, run_options.resume, minutes, trackers, ranks=ranks, tell=tell)
        try:
            _train(source, recipe, place, run_options.overwrite, json)
        except Interrupted as stopped:
            again = "go on" if stopped.saved else "nothing was saved yet: begin again"
            typer.secho(f"{stopped}; {again} with the same command and --resume", err=True)
            raise typer.Exit(INTERRUPTED) from stopped


def _train(source: Source, recipe: Recipe, place: RunPlace, overwrite: bool, json: bool) -> None:
    from gandalf.runs.folder import (
        claimed,
        is_finished,
        on_first_rank,
        refuse_other_data,
        refuse_other_settings,
    )
    from gandalf.runs.start import train_claimed

    out, ranks = place.folder, place.ranks
    assert out is not None
    with on_first_rank(ranks, lambda: claimed(out, resume=place.resume, overwrite=overwrite)):
        if ranks.on_first(lambda: place.resume and is_finished(out)):
            ranks.on_first(lambda: refuse_other_settings(out, recipe))
            ranks.on_first(lambda: refuse_other_data(out, source.load_original()))
            _show_finished(out, json)
            return
        splits = source.load_original()
        if not json:
            say = partial(typer.echo, err=True)
            place = replace(place, tell_targets=_show_choice, tell_search=say)
        outcome = train_claimed(splits, recipe, place)
    if ranks.rank:
        return
    if json:
        print_json(outcome.metrics)
        return
    _show(out, splits, outcome)


def _show_choice(table: dict[str, Any]) -> None:
    console().print(targets_report(table))


def _show_finished(out: Path, json: bool) -> None:
    from gandalf.model_folder import METRICS, RECIPE, read_json

    if json:
        print_json(read_json(out / METRICS))
        return
    console().print(
        f"{escape(str(out))}: the run is finished, and nothing was changed; its settings stand in {RECIPE}"
    )


def _show(out: Path, splits: Splits, outcome: Outcome) -> None:
    screen = console()
    trained, training = outcome.trained, outcome.metrics["training"]
    used = training["targets"].get("targets_used")
    with_labels = f" and {counted(trained.label_points, 'label point')} ({used} targets)" if used else ""
    screen.print(
        f"{escape(trained.model.config['system'])} on {escape(splits.name)}: "
        f"{counted(trained.points, 'training point')}{with_labels}, "
        f"{counted(trained.model.num_labels, 'label')}, {counted(trained.steps, 'update')} in "
        f"{trained.seconds:,.0f} s{_memory(training['peak_memory_bytes'])}"
    )
    for name, value in training["targets"].items():
        if name != "targets_used":
            screen.print(f"[dim]{name.replace('_', ' ')}: {escape(str(value))}[/]")
    if trained.kept is not None:
        screen.print(_validation(trained.kept))
    screen.print(search_report(outcome.metrics))
    if outcome.scores is not None:
        screen.print("On the test split", style="bold")
        screen.print(score_report(outcome.scores))
    for note in outcome.notes:
        screen.print(f"note: {escape(note)}")
    text = textwrap.shorten((splits.train.texts or [""])[0], EXAMPLE, placeholder="")
    screen.print(f"The model is in {escape(str(out))}. Try it:")
    screen.print(escape(f"  gandalf predict {shlex.quote(str(out))} {shlex.quote(text)}"), style="bold")


def _memory(size: int | None) -> str:
    return "" if size is None else f", at most {size / 1e9:.1f} GB of memory"


def _validation(found: dict[str, Any]) -> str:
    figures = ", ".join(f"{name} {found[name]:.2f}" for name in ("P@1", "P@5", "PSP@5"))
    parts = {"label_text": "texts that are a label's", "new_text": "new texts"}
    apart = ", ".join(
        f"P@1 {found[name]:.2f} on {title}" for name, title in parts.items() if found.get(name) is not None
    )
    return f"On held-out training points: {figures}" + (f" ({apart})" if apart else "")
