"""`gandalf predict`, as its tests call it."""

from __future__ import annotations

from functools import partial

import command_line

done = partial(command_line.done, "predict")
fails = partial(command_line.fails, "predict")
