"""Compute inverse propensities, the weights of hits on labels, by Jain et al. (KDD 2016)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError

ConstantsSource = Literal["name", "default", "given"]

DEFAULT = (0.55, 1.5)
HEAVIEST = 1e200  # highest inverse propensity, so that sums over all points stay finite
_WIKIPEDIA = (0.5, 0.4)
_AMAZON = (0.6, 2.6)

# Constants of sets of the Extreme Classification Repository that differ from the default, by `_name_key`.
# Names are compared as a whole: "Wiki" is also the start of WikiSeeAlso and Wiki10, and "Amazon" of
# AmazonCat, which have the default.
_CONSTANTS = {
    "wikilshtc325k": _WIKIPEDIA,
    "wikipedia500k": _WIKIPEDIA,
    "wikipedialarge500k": _WIKIPEDIA,
    "wikititles500k": _WIKIPEDIA,
    "amazon131k": _AMAZON,
    "amazon670k": _AMAZON,
    "amazon13m": _AMAZON,
    "amazon3m": _AMAZON,
    "amazontitles131k": _AMAZON,
    "amazontitles300k": _AMAZON,
    "amazontitles670k": _AMAZON,
    "amazontitles13m": _AMAZON,
    "amazontitles3m": _AMAZON,
}

# Endings of the repository's folder names that tell the file layout, which does not change the labels. They
# must follow a dot, a dash, an underscore or a space. A sample of a set does not match, because it is another
# set.
_ENDINGS = re.compile(r"([-_. ]+(raw|bow|texts?|txt|data|dataset))+$")


@dataclass(frozen=True)
class Constants:
    """A and B of the propensity model, and their source: `given` if the caller gave at least one."""

    A: float
    B: float
    source: ConstantsSource


def propensity_constants(name: str, A: float | None = None, B: float | None = None) -> Constants:
    """Return A and B as given, else of the repository's data set of that name, else 0.55 and 1.5."""
    by_name = _CONSTANTS.get(_name_key(name))
    default_A, default_B = by_name or DEFAULT
    source: ConstantsSource = "name" if by_name else "default"
    if A is not None or B is not None:
        source = "given"
    return Constants(default_A if A is None else A, default_B if B is None else B, source)


def inverse_propensities(
    frequencies: npt.NDArray[np.integer], points: int, A: float = DEFAULT[0], B: float = DEFAULT[1]
) -> npt.NDArray[np.float64]:
    """Return 1 + C (N_l + B)^-A for each label l, with C = (ln N - 1)(B + 1)^A.

    `frequencies` (N_l) and `points` (N) must be those of the training split before augmentation. With fewer
    than three training points C would be negative, and every label gets weight 1.
    """  # shape: (L,)
    if not (0 <= A < math.inf and 0 < B < math.inf):
        raise DataError(
            f"A = {A:g}, B = {B:g} give no propensities", remedy="choose A from 0 up and B above 0"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # inf and NaN raise an error below
        scale = max(np.log(max(points, 1)) - 1.0, 0.0) * np.float64(B + 1.0) ** A
        weights = np.asarray(1.0 + scale * (frequencies + B) ** -A, dtype=np.float64)
    if not (scale <= HEAVIEST and np.max(weights, initial=1.0) <= HEAVIEST):
        what = f"A = {A:g}, B = {B:g} give propensities too small to compute with"
        raise DataError(what, remedy=f"choose values near the default, {DEFAULT[0]:g} and {DEFAULT[1]:g}")
    return weights


def _name_key(name: str) -> str:
    letters = re.sub(r"[^a-z0-9]", "", _ENDINGS.sub("", name.lower()))
    return re.sub(r"^(lf|mm)", "", letters)  # sets with label features or images have the same labels
