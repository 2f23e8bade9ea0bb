"""Measure what a memory adds to the mix of a search, on training points that the search never saw.

    python -m bench.memory_search web,man,library-3000,packages

A tenth of the training points, at most 3,000, is kept from the search. The chosen mix and the mix with its
memory are then asked for these points. The test split is not read.
"""

from __future__ import annotations

from pathlib import Path

from bench.command import argument_parser
from bench.machine import DATA_ROOT
from bench.tables import figures, three
from bench.training import open_without_test, score
from gandalf.metrics.predictions import need_test_points
from gandalf.model import ModelWithMemory
from gandalf.runs.search import search
from gandalf.systems import recipe


def main() -> None:
    """Print a line for each set."""
    parser = argument_parser(__doc__)
    parser.add_argument("sets")
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    chosen = parser.parse_args()
    for name in chosen.sets.split(","):
        splits = open_without_test(name, chosen.data_root)
        found = search(splits, recipe("auto"))
        model = found.trained.model
        base = model.model if isinstance(model, ModelWithMemory) else model
        cells = (three(figures(score(each, splits))) for each in (base, model))
        print(name, len(need_test_points(splits)), *(f"{cell} |" for cell in cells), found.why)


if __name__ == "__main__":
    main()
