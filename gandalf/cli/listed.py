"""List the commands in groups; a command is imported only when it runs, so that help is quick."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

CONTEXT = {"help_option_names": ["-h", "--help"]}

GROUPS: dict[str, dict[str, str]] = {
    "Your data": {
        "check": "Find what is wrong in a data set: file, line and remedy.",
        "stats": "Count points, labels and words, and show how long the tail is.",
        "graph": "Show which labels occur together.",
        "diagnose": "Measure whether label points get the right targets on this data.",
        "split": "Hold out a test split.",
        "augment": "Write the training set with every label's text as an extra point, for any trainer.",
    },
    "Train and predict": {
        "train": "Train a model: without --system, search for the best one.",
        "predict": "Predict labels of a text, a file, a test split or lines of standard input.",
        "evaluate": "Score anyone's predictions, or compare two sets of them.",
        "explain": "Show why a text gets a label.",
        "embed": "Write vectors of texts, for search and clustering elsewhere.",
        "mix": "Mix models of the same labels into one.",
        "remember": "Give a trained model a memory of its training points.",
        "add-labels": "Add labels to a trained model, without training it again.",
        "add-examples": "Add texts with known labels to a model, without training it again.",
        "systems": "Describe the systems that can be trained.",
        "config": "Print all settings of a training run as a TOML file.",
        "bench": "Compare quality and cost with other people's trainers on your data.",
    },
    "Serve": {
        "serve": "Serve a model by HTTP, with a page for people.",
        "export": "Write a model that predicts without PyTorch.",
    },
    "The paper": {
        "demo": "Train a model four ways and show what label points change.",
        "reproduce": "Run the paper's studies on any data set.",
        "report": "Write a page of the tables, pictures and claims of the studies.",
    },
}
NAMES = tuple(name for names in GROUPS.values() for name in names)
EXAMPLE = "$ "  # begins each line of a paragraph of examples


def function_of(name: str) -> Callable[..., None]:
    """Import the function of a command; it has the name of its module."""
    module = name.replace("-", "_")
    found: Callable[..., None] = getattr(import_module(f"gandalf.cli.{module}"), module)
    return found


class BareFlags:
    """A command whose help shows no type behind flags, which take no value."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401  click's context, under typer's name for it
        """Return the parameters."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in found:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return found


class Command(BareFlags, TyperCommand):
    """A command of `gandalf`."""


class Listed(BareFlags, TyperGroup):
    """A group of commands; help shows a line of each, and a command is imported when it runs."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401  typer's own
        super().__init__(**{**given, "help": help_text(given.get("help") or "")})
        for group, lines in GROUPS.items():
            for name, line in lines.items():
                self.commands[name] = Command(name, short_help=line, help=line, rich_help_panel=group)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Return the names in the order of the groups."""
        return list(NAMES)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Import the command that is run."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in NAMES else listed, rest


def load_command(name: str) -> Any:  # noqa: ANN401  click's command, under typer's name for it
    """Return a command with its options."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", context_settings=CONTEXT)
    function = function_of(name)
    app.command(name, cls=Command, help=help_text(function.__doc__ or ""))(function)
    return get_command(app)


def help_text(docstring: str) -> str:
    """Return the help of a command from its docstring, with examples in bold.

    Typer would keep the line breaks within paragraphs, and a narrow terminal would break the lines again.
    """
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(_examples(p) if p.startswith(EXAMPLE) else p.replace("\n", " ") for p in paragraphs)


def _examples(paragraph: str) -> str:
    lines = [line.removeprefix(EXAMPLE).partition("  #") for line in paragraph.splitlines()]
    commands = (f"  [bold]{command}[/]{mark}{comment}" for command, mark, comment in lines)
    return "\n".join(["Example:" if len(lines) == 1 else "Examples:", *commands])
