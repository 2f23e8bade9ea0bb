"""Demos that take seconds: the commands, a small set, and texts that try to be markup."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import command_line

import gandalf
from gandalf.data.dataset import Splits

NAMES = ["D", "Z1", "G", "default"]
HOSTILE = '<script src="https://evil.example/x.js">alert(1)</script> & "quoted" [bold]'

done = partial(command_line.done, "demo")
fails = partial(command_line.fails, "demo")


def small(points: int = 240, labels: int = 60, name: str = "made-up") -> Splits:
    return replace(gandalf.synthetic(points, labels, seed=3).splits, name=name)


def hostile_splits() -> Splits:
    splits = small(name="<b>set</b>")
    parts = {}
    for name in ("train", "test"):
        part = getattr(splits, name)
        parts[name] = replace(
            part,
            texts=[f"{text} {HOSTILE}" for text in part.texts],
            label_texts=[f"[red]label[/] {text} {HOSTILE}" for text in part.label_texts],
        )
    return replace(splits, **parts)
