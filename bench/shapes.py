"""How like real sets the synthetic ones are, in what decides the cost of a label graph.

    python -m bench.shapes

Products for each distinct pair, the share of pairs (itself left out) whose ratio passes 0.1, the share seen
together once, labels with at most five points, and the spread of labels per point: of the real sets, and of
synthetic ones of the paper's smallest shape with compact and with broad topics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bench.command import argument_parser
from bench.estimates import SETS
from bench.machine import DATA_ROOT, keep
from gandalf import load, synthetic
from gandalf.data.synthetic import PAPER_SHAPES
from gandalf.graph.cooccurrence import counts_together, frequencies


def shape(targets: csr_array) -> dict[str, float]:
    """Return the figures of one set."""
    joint, frequency = counts_together(targets), frequencies(targets)
    row = np.repeat(np.arange(targets.shape[1]), np.diff(joint.indptr))
    off = joint.indices != row
    together, sizes = joint.data[off], np.diff(targets.indptr).astype(np.float64)
    return {
        "products_per_pair": float((sizes**2).sum() / joint.nnz),
        "kept": float(np.mean(together / frequency[row[off]] > 0.1)),
        "seen_once": float(np.mean(together == 1)),
        "labels_up_to_5_points": float(np.mean(frequency <= 5)),
        "spread_of_labels_per_point": float(sizes.std() / sizes.mean()),
    }


def main() -> None:
    """Print a row for each set and keep the figures."""
    argument_parser(__doc__).parse_args()
    results: dict[str, Any] = {}
    for name in SETS:
        if (DATA_ROOT / name).is_dir():
            results[name] = shape(load(DATA_ROOT / name).train.targets)
        else:
            print(f"{name}: not in {DATA_ROOT}, left out")
    points, labels, per_point, _ = PAPER_SHAPES["131K"]
    for breadth in (8.0, 50.0):
        made = synthetic(points, labels, labels_per_point=per_point, texts=False, breadth=breadth)
        results[f"synthetic 131K, breadth {breadth:g}"] = shape(made.splits.train.targets)
    for name, row in results.items():
        print(f"{name:28}", "  ".join(f"{key} {value:.2f}" for key, value in row.items()))
    print(keep("shapes", results))


if __name__ == "__main__":
    main()
