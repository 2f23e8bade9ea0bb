"""How much a hit on a rare label counts: the inverse propensities of Jain et al. (KDD 2016)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError

Whence = Literal["name", "default", "given"]

DEFAULT = (0.55, 1.5)
HEAVIEST = 1e200  # inverse propensities are summed over all points, and the sums must stay finite
_WIKIPEDIA = (0.5, 0.4)
_AMAZON = (0.6, 2.6)

# Sets of the Extreme Classification Repository that depart from the default, as `_key` writes their names.
# Whole names, never parts of them: "Wiki" also begins WikiSeeAlso and Wiki10, "Amazon" also AmazonCat,
# and those have the default.
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


# What folders of the repository's sets end in: the file layout, which does not change the labels. Only behind
# a dot, a dash, an underscore or a space; a sample or a part of a set is another set.
_ENDINGS = re.compile(r"([-_. ]+(raw|bow|texts?|txt|data|dataset))+$")


@dataclass(frozen=True)
class Constants:
    """A and B of the propensity model, and where they come from: `given` if one of them was."""

    A: float
    B: float
    whence: Whence


def constants(name: str, A: float | None = None, B: float | None = None) -> Constants:
    """A and B as given, else those of the repository's data set of that name, else 0.55 and 1.5."""
    by_name = _CONSTANTS.get(_key(name))
    default_A, default_B = by_name or DEFAULT
    whence: Whence = "name" if by_name else "default"
    if A is not None or B is not None:
        whence = "given"
    return Constants(default_A if A is None else A, default_B if B is None else B, whence)


def inverse_propensities(
    frequencies: npt.NDArray[np.integer], points: int, A: float = DEFAULT[0], B: float = DEFAULT[1]
) -> npt.NDArray[np.float64]:
    """q_l = 1 + C (N_l + B)^-A with C = (ln N - 1)(B + 1)^A, from the original training points.

    `frequencies` (N_l) and `points` (N) must be those of the training split before any augmentation. With
    fewer than three training points C would be negative; every label then weighs 1.
    """  # shape: (L,)
    if not (0 <= A < math.inf and 0 < B < math.inf):
        raise DataError(
            f"A = {A:g}, B = {B:g} give no propensities", remedy="choose A from 0 up and B above 0"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # inf and NaN are told below
        scale = max(np.log(max(points, 1)) - 1.0, 0.0) * np.float64(B + 1.0) ** A
        weights = np.asarray(1.0 + scale * (frequencies + B) ** -A, dtype=np.float64)
    if not (scale <= HEAVIEST and np.max(weights, initial=1.0) <= HEAVIEST):
        raise DataError(
            f"A = {A:g}, B = {B:g} give propensities too small to compute with",
            remedy=f"choose values near the default, {DEFAULT[0]:g} and {DEFAULT[1]:g}",
        )
    return weights


def _key(name: str) -> str:
    letters = re.sub(r"[^a-z0-9]", "", _ENDINGS.sub("", name.lower()))
    return re.sub(r"^(lf|mm)", "", letters)  # label features, images: same labels, same constants
