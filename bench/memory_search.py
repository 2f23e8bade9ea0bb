"""Measure what a memory adds to the mix of a search, on training points that the search never saw.

    python -m bench.memory_search web,man,library-3000,packages

A tenth of the training points, at most 3,000, is kept from the search. The chosen mix and the mix with its
memory are then asked for these points. The test split is not read.
"""

from __future__ import annotations

from pathlib import Path

from bench.command import argument_parser
from bench.default import FIGURES
from bench.default_sets import open_default_set
from bench.engine import SHARED
from gandalf import Splits
from gandalf.data.holdout import holdout
from gandalf.metrics.evaluate import evaluate
from gandalf.model import ModelWithMemory, Part
from gandalf.predict.predictor import Predictor
from gandalf.runs.search import search
from gandalf.systems import recipe

SHARE, MOST, SEED = 0.1, 3_000, 77  # of the points that are kept from the search; not a seed of any run


def figures(model: Part, splits: Splits) -> str:
    """Return P@1, PSP@5 and C@5 on the points that were kept from the search."""
    kept = splits.test
    assert kept is not None
    texts, _ = kept.need_texts("measuring a memory")
    scores = evaluate(Predictor(model).best(texts, 5, kept.exclude), splits)
    return " ; ".join(f"{scores[name]:.1f}" for name in FIGURES)


def main() -> int:
    """Print a line for each set."""
    parser = argument_parser(__doc__)
    parser.add_argument("sets")
    parser.add_argument("--data-root", type=Path, default=SHARED)
    chosen = parser.parse_args()
    for name in chosen.sets.split(","):
        whole = open_default_set(name, chosen.data_root)
        parts = holdout(whole.train, SHARE, SEED, at_most=MOST)
        splits = Splits(train=parts.rest, test=parts.held, name=whole.name)
        found = search(splits, recipe("auto"))
        model = found.trained.model
        base = model.model if isinstance(model, ModelWithMemory) else model
        print(name, len(parts.held), figures(base, splits), "|", figures(model, splits), "|", found.why)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
