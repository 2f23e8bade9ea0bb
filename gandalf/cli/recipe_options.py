"""Define the options of a training run, which `train` and `config` share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from gandalf.cli.engine import engine
from gandalf.cli.options import Bundle
from gandalf.errors import DataError
from gandalf.lab.benchmarks import BENCHMARKS, derived
from gandalf.recipe import Recipe
from gandalf.settings import override, read_toml, updated
from gandalf.systems import check_one_system, default_system, recipe

_DEFAULT = Recipe()
_MODEL, _POINTS, _LENGTH = "What is trained", "Label points", "How long, and where"


@dataclass(frozen=True)
class Asked:
    """The options of a command line that make a recipe: a system and changes of its settings."""

    system: str | None = None
    config: Path | None = None
    changes: tuple[str, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()  # (setting, value)

    def recipe(self) -> Recipe:
        """Return the system's recipe, changed by the file, then by named options, then by --set."""
        found = self._base()
        for name, value in self.named:
            found = updated(found, _nested(name, value))
        found = override(found, self.changes)
        if find_spec("torch") is not None:  # encoders and heads know their own limits, and need PyTorch
            with engine("training"):
                from gandalf.runs.checks import check_recipe
            check_recipe(found)
        return found

    def _base(self) -> Recipe:
        """Return the system's recipe changed by the file, or the recipe derived for a benchmark."""
        if str(self.config) in BENCHMARKS:
            return derived(self._system(None), str(self.config))
        given = {} if self.config is None else read_toml(self.config)
        return updated(recipe(self._system(given.get("system"))), given, file=self.config)

    def _system(self, in_file: object) -> str:
        """Return the name of the system; raise a DataError if two options name different systems."""
        said = [change.partition("=")[2].strip() for change in self.changes if _changes_system(change)]
        wanted = [name for name in (self.system, *said) if name is not None]
        check_one_system(in_file, wanted, self.config)
        if wanted or in_file is not None:
            return str([in_file, *wanted][-1])
        several = int(os.environ.get("WORLD_SIZE", "1")) > 1  # a search needs a single process
        given = [*(name for name, _ in self.named), *self.changes]
        return "astec" if several or self.config is not None else default_system(given)


def _changes_system(change: str) -> bool:
    return change.partition("=")[0].strip() == "system"


def _nested(name: str, value: object) -> dict[str, Any]:
    table, dot, inner = name.partition(".")
    return {table: _nested(inner, value) if dot else value}


def _option(flag: str, kind: Any, panel: str, help: str, metavar: str | None = None) -> Any:  # noqa: ANN401
    return Annotated[kind | None, typer.Option(flag, help=help, metavar=metavar, rich_help_panel=panel)]


_SYSTEM = _option(
    "--system",
    str,
    _MODEL,
    "Train this system; [bold]gandalf systems[/] lists them. Default: search for the best model or mix of "
    "models for the data, or astec where an option below says how one system is trained.",
    "NAME",
)
_CONFIG = _option(
    "--config",
    Path,
    _MODEL,
    "Settings that differ from the recipe; or the name of one of the paper's sets, for what is derived from "
    "constants that were published for it.",
    "FILE.toml",
)
_SET = _option(
    "--set",
    list[str],
    _MODEL,
    "Change any setting; repeat it. [bold]gandalf config[/] shows all.",
    "KEY=VALUE",
)
_TARGETS_HELP = (
    "Of label points. none: no label points. self: each label alone (Z1). ratio: the paper's. shrunk, "
    "calibrated, glas, walk: see gandalf graph. teacher: by a model, --set targets.teacher=FOLDER. "
    "auto: chosen on held-out training points, by trial. "
    f"Default {_DEFAULT.targets.targets}."
)

# Option: the setting that it changes, and how it is offered.
NAMED: dict[str, tuple[str, Any]] = {
    "targets": (
        "targets.targets",
        _option("--targets", str, _POINTS, _TARGETS_HELP, "NAME"),
    ),
    "delta": (
        "targets.delta",
        _option("--delta", float, _POINTS, "Keep targets strictly greater than this."),
    ),
    "scale": ("targets.scale", _option("--scale", float, _POINTS, "Multiply targets off the diagonal.")),
    "strength": (
        "targets.strength",
        _option("--strength", float, _POINTS, "Of shrunk targets; else fitted."),
    ),
    "label_weight": (
        "targets.label_weight",
        _option("--label-weight", float, _POINTS, "What a label point counts in the loss."),
    ),
    "label_epochs": (
        "targets.label_epochs",
        _option(
            "--label-epochs",
            float,
            _POINTS,
            "Share of the updates that meet them, from the start; then come training points alone. "
            f"Default {_DEFAULT.targets.label_epochs:g}.",
            "SHARE",
        ),
    ),
    "keep": (
        "targets.keep",
        _option(
            "--keep",
            str,
            _POINTS,
            "both: G. labels: Z alone. half: N/2 of it. uniform: U(G,N).",
            "both|labels|half|uniform",
        ),
    ),
    "share": ("targets.share", _option("--share", float, _POINTS, "Those of this share of the labels.")),
    "order": (
        "targets.order",
        _option("--order", str, _POINTS, "Which share: at random, or tail first.", "random|tail"),
    ),
    "epochs": (
        "training.epochs",
        _option("--epochs", float, _LENGTH, "Of N + L points, whatever the targets."),
    ),
    "steps": ("training.steps", _option("--steps", int, _LENGTH, "Updates, in place of epochs.")),
    "batch": (
        "training.batch",
        _option("--batch", int, _LENGTH, "Points in an update; default by the machine."),
    ),
    "minutes": (
        "search.minutes",
        _option(
            "--minutes",
            float,
            _LENGTH,
            "What the search may take in all; by default by the size of the data, said before it starts.",
        ),
    ),
    "validation": (
        "validation.share",
        _option(
            "--validation", float, _LENGTH, "Hold out this share of the training points; 0: none.", "SHARE"
        ),
    ),
    "head_kernel": (
        "head.kernel",
        _option(
            "--head-kernel",
            str,
            _LENGTH,
            "How free rows are trained on a GPU: plain, fused, or fused where it can be.",
            "torch|triton|auto",
        ),
    ),
    "seed": ("seed", _option("--seed", int, _LENGTH, "Same seed, same model.")),
    "device": ("device", _option("--device", str, _LENGTH, "Where to compute.", "auto|cpu|cuda")),
}


def _says_how_long(setting: str) -> bool:
    name, _, value = (part.strip() for part in setting.partition("="))
    return name in _LENGTHS and value.lower() != "none"


_LENGTHS = ("epochs", "steps", "training.epochs", "training.steps")


def _asked(system: str | None, config: Path | None, set: list[str] | None, **named: object) -> Asked:
    said = [f"--{name}" for name in ("epochs", "steps") if named.get(name) is not None]
    said += [f"--set {each}" for each in set or () if _says_how_long(each)]
    if len(said) > 1:
        what = f"{' and '.join(said)} both say how long to train"
        raise DataError(what, remedy="give one of them")
    if named.get("epochs") is not None:
        named = {"steps": "none", **{name: value for name, value in named.items() if name != "steps"}}
    given = tuple((NAMED[name][0], value) for name, value in named.items() if value is not None)
    return Asked(system, config, tuple(set or ()), given)


ASKED = Bundle(
    Asked,
    {"system": (_SYSTEM, None), "config": (_CONFIG, None), "set": (_SET, None)}
    | {name: (kind, None) for name, (_, kind) in NAMED.items()},
    _asked,
)
