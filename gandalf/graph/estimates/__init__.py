"""List the kinds of targets by name. To add one, write a file like `ratio.py` and a line here."""

from __future__ import annotations

from gandalf.graph.estimates import calibrated, glas, ratio, self_only, shrunk, teacher, walk
from gandalf.graph.kind import TargetKind

KINDS: dict[str, TargetKind] = {  # help texts and the diagnosis use this order
    "ratio": ratio.KIND,
    "shrunk": shrunk.KIND,
    "calibrated": calibrated.KIND,
    "glas": glas.KIND,
    "walk": walk.KIND,
    "self": self_only.KIND,
    "teacher": teacher.KIND,
}
