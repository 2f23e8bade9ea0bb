"""Options of targets, shared by `graph` and `augment`."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import typer

from gandalf.cli.options import Bundle, Seed
from gandalf.graph.estimates import KINDS
from gandalf.graph.label_graph import GraphOptions, SharedText, TargetName

_PANEL = "How targets are made"


def _option(kind: Any, flag: str, help: str) -> Any:  # noqa: ANN401  what Annotated makes has no type
    return Annotated[kind, typer.Option(flag, help=help, rich_help_panel=_PANEL)]


Delta = _option(float, "--delta", "Keep targets strictly greater than this.")

_TARGETS_HELP = " ".join(f"{name}: {kind.help}." for name, kind in KINDS.items())

GRAPH = Bundle(
    GraphOptions,
    {
        "targets": (_option(TargetName, "--targets", _TARGETS_HELP), get_args(TargetName)[0]),
        "delta": (Delta, 0.1),
        "top_k": (_option(int | None, "--top-k", "Keep this many in a row, itself included."), None),
        "scale": (_option(float, "--scale", "Multiply targets off the diagonal."), 1.0),
        "strength": (_option(float | None, "--strength", "Of shrunk targets; fitted by default."), None),
        "shared_text": (
            _option(SharedText, "--shared-text", "Labels with one text: own rows, or pooled into one."),
            get_args(SharedText)[0],
        ),
        "seed": (Seed, 0),
        "teacher": (
            _option(str | None, "--teacher", "Model folder whose encoder teaches, for teacher targets."),
            None,
        ),
    },
    GraphOptions,
)
