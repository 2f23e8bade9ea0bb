"""`gandalf train` at a size that takes a second: its options, and what a folder holds."""

from __future__ import annotations

from functools import partial

import command_line

SMALL = ("--set", "encoder.dim=16", "--batch", "32", "--steps", "8", "--device", "cpu", "--targets", "ratio")

run = partial(command_line.run, "train")
done = partial(command_line.done, "train")
fails = partial(command_line.fails, "train")


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}
