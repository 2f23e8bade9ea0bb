"""Define a stage of training: which points meet which labels, by which loss and at which rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gandalf.train.encoder_update import EncoderOptions
from gandalf.train.glas import Glas
from gandalf.train.guidance import Guidance
from gandalf.train.kernels import KernelName
from gandalf.train.labels import LabelSelection
from gandalf.train.losses import Loss, binary_cross_entropy
from gandalf.train.mixup import MixUp
from gandalf.train.orders import PointOrder
from gandalf.train.pairs.kind import PairLoss
from gandalf.train.row_optimisers import RowOptions
from gandalf.train.schedules import ScheduleName


@dataclass(frozen=True)
class Stage:
    """Everything that stays the same during a stage."""

    order: PointOrder
    labels: LabelSelection
    loss: Loss = binary_cross_entropy
    pairs: PairLoss | None = None  # replaces `loss` if the encoder learns pairs of points and label texts
    guidance: Guidance | None = None  # of the vectors of label texts, in a stage of pairs
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    head: RowOptions = field(default_factory=RowOptions)
    kernel: KernelName = "torch"  # of a table that meets every label
    schedule: ScheduleName = "one-cycle"
    warm_up: float = 0.1
    clip: float = 1.0
    dtype: torch.dtype = torch.float32  # of matrix products
    seed: int = 0
    micro_batch: int = 0  # texts encoded at once; 0: the whole batch
    frozen: bool = False  # the encoder does not learn
    mix: MixUp | None = None  # of vectors and targets
    glas: Glas | None = None  # regulariser of free rows
    seen: Callable[[npt.NDArray[np.int64], Tensor], None] | None = None  # gets points and their vectors
