"""Guidance by the label graph: the vector of a label's text is drawn towards the mean of its neighbours'.

After the idea of MOGIC, with the label graph as what is known besides the texts. Nothing of it is needed at
prediction. The means are made from time to time, and are constants to the gradient.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor
from torch.nn import functional as F


class Guidance:
    """Where each label's vector is drawn to, and how strongly."""

    def __init__(self, graph: csr_array, weight: float) -> None:
        others = graph - diags_array(graph.diagonal(), format="csr")
        total = np.asarray(others.sum(axis=1)).ravel()
        self.graph = csr_array(others.multiply(1 / np.maximum(total, 1e-12)[:, None]), dtype=np.float32)
        self.weight = weight
        self.means = torch.zeros(0)  # shape: (L, dim), of length 1; 0 for a label without neighbours

    def refresh(self, vectors: Tensor) -> None:
        """Make the means of the neighbours from the vectors of all label texts."""  # shape: (L, dim)
        units = F.normalize(vectors, dim=1).cpu().numpy()
        means = torch.from_numpy(self.graph @ units).to(vectors.device)
        self.means = F.normalize(means, dim=1)

    def __call__(self, rows: Tensor, labels: slice | Tensor) -> Tensor:
        """Return the weighted mean of 1 - cosine over these labels, whose vectors have length 1."""
        means = self.means[labels]  # shape: (C, dim)
        return self.weight * torch.sum((means - rows) * means) / len(rows)
