"""Define the options of targets of `graph` and `augment`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from gandalf.cli.options import Bundle, Seed
from gandalf.graph.estimates import KINDS
from gandalf.graph.label_graph import GraphOptions, SharedText, TargetName

if TYPE_CHECKING:
    from gandalf.cli.opened_set import OpenedSet

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


@dataclass(frozen=True)
class Wanted:
    """The options of targets, whose kind the data may decide."""

    options: GraphOptions
    chosen: bool  # True if the kind was named, or follows from an option of a single kind

    def settled(self, points: OpenedSet) -> tuple[GraphOptions, str]:
        """Return the options and ""; without a chosen kind, the recommended kind and the reason."""
        if self.chosen:
            return self.options, ""
        name, why = points.recommended(self.options.delta, self.options.seed)
        return replace(self.options, targets=name), why


def _wanted(targets: str | None = None, **options: Any) -> Wanted:  # noqa: ANN401  values of GraphOptions
    owned = next((OWNED[name] for name in OWNED if options[name] is not None), None)
    return Wanted(GraphOptions(targets or owned or ASSUMED, **options), bool(targets or owned))


ASSUMED = "calibrated"  # until the data decides; it needs all that the other recommended kinds need
OWNED = {"teacher": "teacher", "strength": "shrunk"}
_WANTED_HELP = f"{_TARGETS_HELP} Default: what gandalf diagnose recommends."
WANTED = Bundle(
    Wanted,
    GRAPH.parameters | {"targets": (_option(TargetName | None, "--targets", _WANTED_HELP), None)},
    _wanted,
)
