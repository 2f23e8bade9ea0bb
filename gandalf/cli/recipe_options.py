"""Define the options of a training run, which `train` and `config` share."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gandalf.cli.extras import needs_extra
from gandalf.cli.options import Bundle, panel
from gandalf.errors import DataError
from gandalf.recipe import Recipe
from gandalf.settings import override, read_toml, updated
from gandalf.systems import check_one_system, default_system, recipe


@dataclass(frozen=True)
class RecipeOptions:
    """The options of a command line that make a recipe: a system and changes of its settings."""

    system: str | None = None
    config: Path | None = None
    changes: tuple[str, ...] = ()  # of --set
    named: tuple[tuple[str, Any], ...] = ()  # (setting, value) of the options in NAMED

    def recipe(self) -> Recipe:
        """Return the system's recipe, changed by the file, then by named options, then by --set."""
        found = self._base()
        for setting, value in self.named:
            found = updated(found, _nested(setting, value))
        found = override(found, self.changes)
        if find_spec("torch") is not None:  # encoders and heads know their own limits, and need PyTorch
            with needs_extra("training"):
                from gandalf.runs.checks import check_recipe
            check_recipe(found)
        return found

    def _base(self) -> Recipe:
        """Return the system's recipe changed by the file, or the recipe derived for a benchmark."""
        if self.config is None:
            return recipe(self._system(None))
        from gandalf.lab.benchmarks import BENCHMARKS, derived

        if str(self.config) in BENCHMARKS:
            return derived(self._system(None), str(self.config))
        given = read_toml(self.config)
        return updated(recipe(self._system(given.get("system"))), given, file=self.config)

    def _system(self, in_file: object) -> str:
        """Return the name of the system; raise a DataError if two options name different systems."""
        in_changes = [value for setting, value in map(_parsed, self.changes) if setting == "system"]
        wanted = [name for name in (self.system, *in_changes) if name is not None]
        check_one_system(in_file, wanted, self.config)
        if wanted or in_file is not None:
            return str([in_file, *wanted][-1])
        several = int(os.environ.get("WORLD_SIZE", "1")) > 1  # a search needs a single process
        given = [*(setting for setting, _ in self.named), *self.changes]
        return "astec" if several or self.config is not None else default_system(given)


def _parsed(change: str) -> tuple[str, str]:
    """Return setting and value of a `--set`."""
    setting, _, value = change.partition("=")
    return setting.strip(), value.strip()


def _nested(setting: str, value: object) -> dict[str, Any]:
    """Return the tables of a setting such as `targets.delta`, with the value in the innermost."""
    table, dot, inner = setting.partition(".")
    return {table: _nested(inner, value) if dot else value}


# Options that change one setting each: name of the option -> setting.
_POINTS = ("targets", "delta", "scale", "strength", "label_weight", "label_epochs", "keep", "share", "order")
_OF_POINTS = {name: f"targets.{name}" for name in _POINTS}
_OF_LENGTH = {
    **{name: f"training.{name}" for name in ("epochs", "steps", "batch")},
    "minutes": "search.minutes",
    "validation": "validation.share",
    "head_kernel": "head.kernel",
    "seed": "seed",
    "device": "device",
}
NAMED = _OF_POINTS | _OF_LENGTH
_HELP = {
    "targets": "Targets of label points. none: no label points. self: each label alone (Z1). ratio: the "
    "paper's. shrunk, calibrated, glas, walk: see gandalf graph. teacher: by a model, --set "
    "targets.teacher=FOLDER. auto: chosen by trial on held-out training points. "
    f"Default: {Recipe().targets.targets}.",
    "steps": "Number of updates, in place of --epochs.",
}


def option_facts(setting: str) -> tuple[Any, str | None, str]:
    """Return the type, the metavar and the help of an option that changes the setting."""
    *tables, name = setting.split(".")
    table = type(reduce(getattr, tables, Recipe()))
    field = next(each for each in fields(table) if each.name == name)
    hint = get_type_hints(table)[name]
    kinds = get_args(hint) or (hint,)
    kind = next((each for each in kinds if each in (int, float)), str)
    metavar = "|".join(kinds) if get_origin(hint) is Literal else "NAME" if kind is str else None
    return kind, metavar, field.metadata["help"]


def _named_options(settings: dict[str, str]) -> dict[str, tuple[Any, ...]]:
    found = {}
    for name, setting in settings.items():
        kind, metavar, help = option_facts(setting)
        found[name] = (kind | None, None, _HELP.get(name, help), {"metavar": metavar})
    return found


def _recipe_options(
    system: str | None, config: Path | None, set: list[str] | None, **named: object
) -> RecipeOptions:
    lengths = [f"--{name}" for name in ("epochs", "steps") if named.get(name) is not None]
    lengths += [f"--set {change}" for change in set or () if _sets_length(change)]
    if len(lengths) > 1:
        raise DataError(f"{' and '.join(lengths)} both say how long to train", remedy="give one of them")
    if named.get("epochs") is not None:  # steps of a file would count more than epochs
        named = {"steps": None} | named | {"steps": "none"}
    given = tuple((NAMED[name], value) for name, value in named.items() if value is not None)
    return RecipeOptions(system, config, tuple(set or ()), given)


def _sets_length(change: str) -> bool:
    setting, value = _parsed(change)
    return setting in ("epochs", "steps", "training.epochs", "training.steps") and value.lower() != "none"


_SYSTEM_HELP = (
    "Train this system; [bold]gandalf systems[/] lists them. Default: search for the best model or mix of "
    "models; with options that only a single system has, such as --epochs: astec."
)
_CONFIG_HELP = (
    "File of settings that differ from the recipe of the system; [bold]gandalf config[/] prints one. Or the "
    "name of one of the paper's sets: a recipe derived from constants that were published for it."
)
_SET_HELP = "Change any setting that [bold]gandalf config[/] prints, such as encoder.dim=200; repeatable."
RECIPE_OPTIONS = Bundle(
    RecipeOptions,
    panel(
        "What is trained",
        system=(str | None, None, _SYSTEM_HELP, {"metavar": "NAME"}),
        config=(Path | None, None, _CONFIG_HELP, {"metavar": "FILE.toml"}),
        set=(list[str] | None, None, _SET_HELP, {"metavar": "KEY=VALUE"}),
    )
    | panel("Label points", **_named_options(_OF_POINTS))
    | panel("How long, and where", **_named_options(_OF_LENGTH)),
    _recipe_options,
)
