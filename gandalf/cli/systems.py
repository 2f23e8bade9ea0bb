"""`gandalf systems`: describe the systems that can be trained, and where ours departs from its paper."""

from __future__ import annotations

import json as text_of
from functools import reduce
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from gandalf.cli.options import Json
from gandalf.cli.output import console, print_json
from gandalf.recipe import Recipe
from gandalf.settings import NONE, differing, to_dict
from gandalf.systems import SYSTEMS, recipe
from gandalf.train.rates import RATED_FOR

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Describe this system in full.")]


def systems(name: Name = None, json: Json = False) -> None:
    """Describe the systems that can be trained: their parts and their papers.

    A system is a published method as a recipe. With NAME the command also tells where ours departs from the
    paper and why, and which settings make the system.

    $ gandalf systems
    $ gandalf systems ngame
    $ gandalf config --system ngame  # all its settings
    """
    if name is None:
        if json:
            print_json({"systems": [_facts(each) for each in SYSTEMS]})
            return
        console().print(_overview())
        return
    found = recipe(name)
    if json:
        here = {setting: values[0] for setting, values in _changed(found).items()}
        print_json({**_facts(name), "settings": here, "commands": _commands(found)})
        return
    out = console()
    for part in _story(name, found):
        out.print(part)


def _facts(name: str) -> dict[str, Any]:
    system = SYSTEMS[name]
    return {"name": name, "parts": system.parts, "paper": system.paper, "departs": system.departs}


def _overview() -> Table:
    caption = "gandalf systems NAME tells where ours departs from the paper, and why"
    table = Table(caption=caption, caption_justify="left")
    table.add_column("system", no_wrap=True)
    table.add_column("parts")
    table.add_column("paper")
    for name, system in SYSTEMS.items():
        table.add_row(name, escape(system.parts), escape(system.paper))
    return table


def _story(name: str, found: Recipe) -> list[RenderableType]:
    """Return everything about one system, from its parts to the commands."""
    facts = Table.grid(padding=(0, 2))
    for key, value in _facts(name).items():
        facts.add_row(f"[bold]{key}[/]", escape(value))
    needed = {"transformers": found.encoder.model is not None, "parabel": found.trees.kind != "none"}
    for extra in (name for name, is_needed in needed.items() if is_needed):
        facts.add_row("[bold]needs[/]", escape(f"pip install 'gandalf-xmc[{extra}]'"))
    commands = map(escape, _commands(found))
    return [facts, "", _settings(name, found), *_rates(found), "", *commands]


def _settings(name: str, found: Recipe) -> Table:
    caption = f"all settings: gandalf config --system {name}"
    table = Table(caption=caption, caption_justify="left", box=None)
    for heading in ("setting", "here", "by default"):
        table.add_column(heading)
    for setting, values in _changed(found).items():
        table.add_row(setting, *(escape(_written(value)) for value in values))
    return table


def _rates(found: Recipe) -> list[str]:
    """Return a sentence about SGD rates, which follow the batch size, or nothing without SGD."""
    if "sgd" not in (found.head.optimiser, found.encoder.optimiser):
        return []
    return [f"A rate by sgd is for a batch of {RATED_FOR}, and grows with the batch."]


def _changed(found: Recipe) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from the defaults: name -> (value, default)."""
    here, default = to_dict(found), to_dict(Recipe())
    names = [each for each in differing(default, here) if each != "system"]
    return {each: (_at(here, each), _at(default, each)) for each in names}


def _at(settings: dict[str, Any], path: str) -> Any:  # noqa: ANN401  whatever is set
    return reduce(lambda table, part: table[part], path.split("."), settings)


def _written(value: object) -> str:
    """Return a value in the notation of `--set`."""
    if value is None:
        return NONE
    return value if isinstance(value, str) else text_of.dumps(value)


def _commands(found: Recipe) -> list[str]:
    train = f"gandalf train man my-model --system {found.system}"
    return [train, 'gandalf predict my-model "compress a file"']
