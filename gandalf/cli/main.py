"""Run the command `gandalf`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gandalf import __version__
from gandalf.cli.listed import CONTEXT, Listed
from gandalf.errors import DataError
from gandalf.progress import show_progress_by_lines

BAD_INPUT = 2  # typer uses the same exit code for wrong usage
INTERRUPTED = 130  # 128 + SIGINT, the convention of shells


class Commands(Listed):
    """The commands; bad input ends with one sentence on standard error, never with a traceback."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  click's context, which typer carries under its own name
        """Run the command."""
        show_progress_by_lines()
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # typer exits quietly if the reader of a pipe has gone
        except (DataError, OSError, MemoryError) as error:
            typer.secho(f"error: {_sentence(error)}", err=True, fg=typer.colors.RED)
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as error:
            typer.secho("stopped", err=True)
            raise typer.Exit(INTERRUPTED) from error


def _sentence(error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error.problem.with_flags())
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or "there is not enough memory"  # only a MemoryError has no text


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gandalf {__version__}")
        raise typer.Exit


@app.callback()
def gandalf(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Predict which of very many labels fit a short text, when every label has a text of its own.

    Check data, train, predict, explain and serve; add label points for any trainer; score any predictions.

    DATA is a folder in a known layout, one CSV, TSV, JSONL or Parquet file, or the bundled set [bold]man[/].
    [bold]gandalf COMMAND --help[/] shows what a command does, its options, and examples.

    $ gandalf check man  # read a data set and list its problems
    $ gandalf train man my-model  # find the best model for it
    $ gandalf predict my-model "compress a file"
    $ gandalf demo  # or see in a few minutes what label points change
    """
