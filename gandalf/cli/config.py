"""`gandalf config`: print every setting of a training run with its value and meaning."""

from __future__ import annotations

import typer

from gandalf.cli.engine import engine
from gandalf.cli.options import offers
from gandalf.cli.recipe_options import ASKED, Asked
from gandalf.settings import as_toml


@offers(ASKED)
def config(asked: Asked) -> None:
    """Print the settings that gandalf train would use with the same options, as a TOML file.

    [bold]gandalf config --system inceptionxml > mine.toml[/]  to change, and train with --config mine.toml

    A file may hold a few settings only; the others stay as the system's recipe has them.
    """
    with engine("training"):
        from gandalf.systems import recipe
    found = asked.recipe()
    typer.echo(as_toml(found, recipe(found.system)), nl=False)
