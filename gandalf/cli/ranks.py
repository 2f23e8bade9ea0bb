"""Let only the first of several processes print, when they run one command together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

import typer

from gandalf.errors import DataError
from gandalf.progress import without_bars

if TYPE_CHECKING:
    from gandalf.train.parallel.ranks import Ranks

BAD_INPUT, LOST = 2, 1


@contextmanager
def known_to_all() -> Iterator[None]:
    """Run a body that does the same on every rank; only the first rank tells its error."""
    try:
        yield
    except DataError as error:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and os.environ.get("RANK", "0") != "0":
            raise typer.Exit(BAD_INPUT) from error
        raise


@contextmanager
def as_one(ranks: Ranks) -> Iterator[None]:
    """Let only the first rank print and show bars, and tell an error of several ranks once."""
    from gandalf.train.parallel.ranks import LostRankError

    if ranks.world == 1:
        yield
        return
    try:
        with ExitStack() as stack:
            if ranks.rank:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(redirect_stdout(nowhere))
                stack.enter_context(redirect_stderr(nowhere))
                stack.enter_context(without_bars())
            yield
    except DataError as error:
        ranks.say_once(f"error: {error.problem.with_flags()}")
        raise typer.Exit(BAD_INPUT) from error
    except LostRankError as error:
        ranks.say_once(f"error: {error}")
        raise typer.Exit(LOST) from error
