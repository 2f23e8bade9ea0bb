"""`gandalf config`: print every setting of a training run with its value and meaning."""

from __future__ import annotations

import typer

from gandalf.cli.extras import needs_extra
from gandalf.cli.options import offers
from gandalf.cli.recipe_options import RECIPE_OPTIONS, RecipeOptions
from gandalf.settings import as_toml


@offers(RECIPE_OPTIONS)
def config(options: RecipeOptions) -> None:
    """Print the settings that gandalf train would use with the same options, as a TOML file.

    Change the file and train with it. It may hold a few settings only; the others stay as in the recipe of
    the system.

    $ gandalf config --system inceptionxml > mine.toml
    $ gandalf train man my-model --config mine.toml
    """
    with needs_extra("training"):
        from gandalf.systems import recipe
    found = options.recipe()
    typer.echo(as_toml(found, recipe(found.system)), nl=False)
