"""How much a hit on a rare label counts: the inverse propensities of Jain et al. (KDD 2016)."""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError

DEFAULT = (0.55, 1.5)
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


def constants(name: str) -> tuple[float, float]:
    """A and B of the repository's data set of that name; 0.55 and 1.5 for every other name."""
    return _CONSTANTS.get(_key(name), DEFAULT)


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
    scale = max(np.log(max(points, 1)) - 1.0, 0.0) * (B + 1.0) ** A
    return np.asarray(1.0 + scale * (frequencies + B) ** -A, dtype=np.float64)


def _key(name: str) -> str:
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(r"^(lf|mm)", "", letters)  # label features, images: same labels, same constants
