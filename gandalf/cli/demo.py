"""`gandalf demo`: train with and without label texts and compare, in a few minutes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gandalf import __version__
from gandalf.cli.extras import needs_extra
from gandalf.cli.options import SOURCE, Bundle, Json, Seed, Source, offers
from gandalf.cli.output import console, print_json
from gandalf.data.files import written
from gandalf.data.load import bundled
from gandalf.lab.comparison import answers_tables, comparison_table, difference_table
from gandalf.lab.demo_page import demo_page

if TYPE_CHECKING:
    from gandalf.lab.comparison import SideBySide, Treatment

QUERIES = "queries.txt"  # file of a bundled set with texts that a person might ask

Out = Annotated[Path, typer.Argument(metavar="OUT", help="Folder for page, figures and model: a new one.")]
Data = Annotated[str, typer.Option("--data", metavar="DATA", help="Any data set with a test split.")]
System = Annotated[
    str, typer.Option("--system", metavar="NAME", help="System to train; gandalf systems lists them.")
]
Steps = Annotated[
    int | None, typer.Option("--steps", min=1, help="Updates of each model. Default: 12 epochs.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="First remove a demo that is in OUT.")]

DATA = Bundle(Source, SOURCE.parameters | {"data": (Data, "man")}, SOURCE.build)


@offers(DATA)
def demo(
    source: Source,
    out: Out = Path("demo-out"),
    system: System = "astec",
    steps: Steps = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Train a model four ways at equal steps: without label texts, with them, as the paper, as gandalf does.

    The command prints the figures of the four models, the answers to five queries side by side, and which
    differences are more than chance. OUT gets a page with pictures, and the best model. On the bundled set
    that takes some three minutes on two cores; inceptionxml takes seven times as long.

    $ gandalf demo
    $ gandalf demo my-demo --data my-data --system inceptionxml
    """
    with needs_extra("the demo"):
        from gandalf.lab.demo import PAGE, check_demo, demo_folder, demo_recipe, refuse_to_lose, write_results
        from gandalf.lab.demo import demo as run
    source.refuse_to_write(out)
    refuse_to_lose(out, overwrite=overwrite)
    recipe, splits = demo_recipe(system, seed=seed, steps=steps), source.load_original()
    check_demo(splits, recipe)
    screen = Console(stderr=True, highlight=False) if json else console()
    command = _command(source, out, system, steps, seed)
    with demo_folder(out, overwrite=overwrite) as folder:
        found = run(splits, recipe, folder, _queries(source), _printer(screen))
        commands = [command, *_next_commands(source, out, found)]
        results = write_results({"gandalf": __version__, "command": command} | found.as_dict(), folder)
        with written(folder / PAGE) as file:
            file.write(demo_page(found, commands, f"gandalf {__version__}"))
    if json:
        print_json(results)
        return
    _show(screen, found)
    _show_next_steps(screen, found, out / PAGE, commands[1:])


def _queries(source: Source) -> list[str]:
    path = bundled().get(source.data)
    file = None if path is None else path / QUERIES
    return file.read_text("utf-8").splitlines() if file is not None and file.is_file() else []


def _printer(screen: Console) -> Callable[[Treatment], None]:
    def tell(variant: Treatment) -> None:
        screen.print(f"training [bold]{variant.name}[/]: {escape(variant.what)}")

    return tell


def _show(screen: Console, found: SideBySide) -> None:
    for table in (comparison_table(found), difference_table(found), answers_tables(found)):
        screen.print()
        screen.print(table)


def _show_next_steps(screen: Console, found: SideBySide, page: Path, commands: list[str]) -> None:
    screen.print(f"\nSaved is the model {found.saved}: {escape(found.why)}.")
    screen.print(f"A page with pictures: [bold]{escape(str(page))}[/]. What to try next:")
    for line in commands:
        screen.print(escape(f"  {line}"), style="bold", soft_wrap=True)


def _command(source: Source, out: Path, system: str, steps: int | None, seed: int) -> str:
    more = [] if steps is None else ["--steps", str(steps)]
    words = ["gandalf", "demo", str(out), "--data", source.data, "--system", system, *more]
    return shlex.join([*words, "--seed", str(seed)])


def _next_commands(source: Source, out: Path, found: SideBySide) -> list[str]:
    """Return commands to try next."""
    baseline = [] if found.saved == "D" else ["--baseline", str(out / "baseline")]
    ours, paper = (str(out / "predictions" / f"{name}.npz") for name in ("default", "G"))
    return [
        shlex.join(["gandalf", "predict", str(out / "model"), found.questions.texts[0]]),
        shlex.join(["gandalf", "serve", str(out / "model"), *baseline, "--data", source.data])
        + "   # a page to ask it",
        shlex.join(["gandalf", "evaluate", ours, source.data, "--other", paper]),
        shlex.join(["gandalf", "diagnose", source.data]),
        "gandalf train tickets.csv my-model --text-column subject --label-column tags   # your own table",
    ]
