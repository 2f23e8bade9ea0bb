"""Guide label texts by the label graph: draw each label's vector towards the mean of its neighbours' vectors.

The idea is MOGIC's, with the label graph as the additional knowledge. Prediction does not need it. The means
are refreshed from time to time and have no gradient.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor
from torch.nn import functional as F


class Guidance:
    """The mean of each label's neighbours, and the weight of the guidance."""

    def __init__(self, graph: csr_array, weight: float) -> None:
        others = graph - diags_array(graph.diagonal(), format="csr")
        total = np.asarray(others.sum(axis=1)).ravel()
        self.graph = csr_array(others.multiply(1 / np.maximum(total, 1e-12)[:, None]), dtype=np.float32)
        self.weight = weight
        self.means = torch.zeros(0)  # shape: (L, dim), of length 1; 0 for a label without neighbours

    def refresh(self, vectors: Tensor) -> None:
        """Compute the means from the vectors of all label texts."""  # shape: (L, dim)
        units = F.normalize(vectors, dim=1).cpu().numpy()
        means = torch.from_numpy(self.graph @ units).to(vectors.device)
        self.means = F.normalize(means, dim=1)

    def __call__(self, rows: Tensor, labels: slice | Tensor) -> Tensor:
        """Return the weighted mean of 1 - cosine over these labels, whose vectors have length 1."""
        means = self.means[labels]  # shape: (C, dim)
        return self.weight * torch.sum((means - rows) * means) / len(rows)
