"""The siamese stage: which pairs it meets, by which loss, and what it mines hard negatives by."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset
from gandalf.recipe import Siamese as Options
from gandalf.train.batches import Order
from gandalf.train.labels import Labels
from gandalf.train.loop import Hook
from gandalf.train.losses import PairLoss


@dataclass(frozen=True, eq=False)
class Siamese:
    """A siamese stage in its parts."""

    order: Order
    labels: Labels
    loss: PairLoss
    epoch: int  # updates
    refreshing: list[Hook] = field(default_factory=list)

    seen = None

    @staticmethod
    def of(options: Options, rest: Dataset, own: npt.NDArray[np.bool_], seed: int) -> Siamese:
        """The stage for these training points; label points, which are no pairs, take no part."""
        raise NotImplementedError
