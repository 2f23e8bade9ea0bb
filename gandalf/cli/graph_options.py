"""Define the options of the targets of label points, for `graph`, `augment` and `remember`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from gandalf.cli.options import Bundle, Seed, panel
from gandalf.graph.estimates import KINDS
from gandalf.graph.label_graph import GraphOptions, SharedText, TargetName

if TYPE_CHECKING:
    from gandalf.cli.opened_set import OpenedSet

ASSUMED = "calibrated"  # until the data decides; it needs all that the other recommended kinds need
OWNERS = {"teacher": "teacher", "strength": "shrunk"}  # options of a single kind of targets
_PANEL = "Targets of the label graph"
_TARGETS_HELP = "Kind of targets. " + " ".join(f"{name}: {kind.help}." for name, kind in KINDS.items())
GRAPH = Bundle(
    GraphOptions,
    panel(
        _PANEL,
        targets=(TargetName, get_args(TargetName)[0], _TARGETS_HELP),
        delta=(float, 0.1, "Keep only targets above this."),
        top_k=(int | None, None, "Most targets of a label, itself included. Default: all."),
        scale=(float, 1.0, "Multiply a label's targets for other labels by this."),
        strength=(float | None, None, "Strength of shrunk targets. Default: fitted."),
        shared_text=(
            SharedText,
            get_args(SharedText)[0],
            "Labels with one text: own rows, or one pooled row.",
        ),
        teacher=(str | None, None, "Model folder whose encoder gives teacher targets."),
    )
    | {"seed": (Seed, 0)},
    GraphOptions,
)
Delta = GRAPH.parameters["delta"][0]


@dataclass(frozen=True)
class TargetOptions:
    """The options of targets, whose kind the data may decide."""

    options: GraphOptions
    is_named: bool  # True if the kind of targets was named, or follows from an option of a single kind

    def resolved(self, opened: OpenedSet) -> tuple[GraphOptions, str]:
        """Return the options and ""; if no kind is named, the recommended kind and the reason."""
        if self.is_named:
            return self.options, ""
        name, why = opened.recommended(self.options.delta, self.options.seed)
        return replace(self.options, targets=name), why


def _target_options(targets: str | None = None, **options: Any) -> TargetOptions:  # noqa: ANN401  of GraphOptions
    named = targets or next((kind for name, kind in OWNERS.items() if options[name] is not None), None)
    return TargetOptions(GraphOptions(named or ASSUMED, **options), named is not None)


_RECOMMENDED_HELP = f"{_TARGETS_HELP} Default: what gandalf diagnose recommends."
TARGET_OPTIONS = Bundle(
    TargetOptions,
    GRAPH.parameters | panel(_PANEL, targets=(TargetName | None, None, _RECOMMENDED_HELP)),
    _target_options,
)
