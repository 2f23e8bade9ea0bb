"""Recipes of the paper's four data sets for the eight systems, derived from published constants.

*Derived*, not published: none of the sets was at hand, and nothing here was tuned or trained. What stands in
`CONSTANTS` is from papers and released configurations; what a recipe holds follows from it by these rules.

1.  **Adam, and a mean loss.** Adam divides a gradient by its own size. So a loss that is averaged over batch
    and labels, as most are, and ours, which is summed over labels and divided by the batch, move weights
    alike: rates of Adam stay.
2.  **SGD, and a summed loss** (Renee). A loss that is summed over the batch has gradients that are larger by
    the points of the batch. Rates of SGD are given here for RATED_FOR points and grow with the batch
    (`train/rates.py`), so a published rate is multiplied by RATED_FOR. Weight decay is divided by what the
    rate at the batch is multiplied by: a row shrinks as much in an update as it did.
3.  **Unscaled vectors.** Ours have length 1, published ones have not, and nobody states their length. The one
    rate that was tuned here for a published one, of Renee's rows, implies LENGTH. A score moves by rate x
    length under Adam and by rate x length^2 under SGD, so rates of rows are multiplied by LENGTH or by its
    square. Rows of `siamesexml` and `ngame` meet vectors of length 1 in their papers too: theirs stay.
4.  **Stages.** Several classifiers on top of each other (surrogate, trees, re-ranker) are one stage here: its
    epochs are the sum of theirs, of one tree and without the re-ranker. Words and layers learn at the rate of
    the stage in which they are learnt first, rows at that of the stage in which rows are.
5.  **Schedules.** A rate that is halved in steps falls linearly here. Warm-up in updates is a share of ours.
6.  **An epoch** is N + L points, as theirs is with label points.
7.  **What was never published for a set** is taken from the set that is nearest in labels (in their ratio)
    and has it; what was never published for `inceptionxml-lf`, from `inceptionxml`.
8.  **Shortlists, clusters and indexes** are ours (docs/reference/systems.md): every label, or a shortlist on
    a CPU.
9.  **Vectors learnt elsewhere**, on which published figures rest, are not part of a recipe: `PROVIDE` says
    which, and how to give them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gandalf.errors import DataError
from gandalf.recipe import Recipe
from gandalf.settings import override
from gandalf.systems import recipe
from gandalf.train.rates import RATED_FOR, at_batch


@dataclass(frozen=True)
class Benchmark:
    """The shape of a data set."""

    points: int
    labels: int
    test_points: int
    labels_per_point: float
    words: int  # of the vocabulary that is published with it


BENCHMARKS = {
    "LF-AmazonTitles-131K": Benchmark(294_805, 131_073, 134_835, 2.29, 40_000),
    "LF-WikiSeeAlsoTitles-320K": Benchmark(693_082, 312_330, 177_515, 2.11, 40_000),
    "LF-WikiTitles-500K": Benchmark(1_813_391, 501_070, 783_743, 4.74, 80_000),
    "LF-AmazonTitles-1.3M": Benchmark(2_248_619, 1_305_265, 970_237, 22.20, 128_000),
}
Number = float | None
PerSet = tuple[Number, Number, Number, Number]  # in the order of BENCHMARKS; None: not published
Constant = float | PerSet

LENGTH = math.sqrt(recipe("renee").head.rate / (0.05 * RATED_FOR))  # 2.8: see rule 3
TARGETS = ("targets.targets=ratio", "targets.delta=0.1", "targets.label_epochs=1")  # Gandalf's label points

_INCEPTION: dict[str, Constant] = {
    "dim": 300,
    "dropout": 0.25,
    "last_dropout": (0.5, 0.5, 0.4, 0.4),
    "layers": 5e-3,
    "words": 5e-3,
    "rows": 5e-3,
    "batch": 128,
    "epochs": 45,
    "warm_up": 0.3,
}
_NGAME_PAIRS: dict[str, Constant] = {
    "pair_epochs": 300,
    "pair_batch": 1_600,
    "pair_rate": (2e-4, None, None, None),
    "pair_warm_up_steps": 100,
}
CONSTANTS: dict[str, dict[str, Constant]] = {
    "astec": {
        "dim": 300,
        "dropout": 0.5,
        "layers": (1e-3, 2e-3, 5e-4, 5e-4),
        "words": (0.03, 5e-3, 5e-3, 3e-3),
        "rows": (1e-3, 2e-3, 5e-4, 5e-4),
        "batch": 255,
        "epochs": 20 + 15,
    },
    "decaf": {
        "dim": (300, 300, 512, 512),
        "dropout": 0.5,
        "layers": (0.01, 0.01, 5e-3, 0.01),
        "words": (0.01, 0.01, 5e-3, 0.01),
        "rows": (8e-3, 8e-3, 4e-3, 8e-3),
        "batch": 255,
        "epochs": 20 + 10 + 10,
    },
    "eclare": {
        "dim": (300, 300, 512, 512),
        "dropout": (0.2, 0.2, 0.5, 0.2),
        "layers": (5e-3, 0.01, 0.01, 5e-3),
        "words": (5e-3, 0.01, 0.01, 5e-3),
        "rows": (4e-3, 8e-3, 5e-3, 4e-3),
        "batch": 255,
        "epochs": 20 + 10 + 10,
    },
    "inceptionxml": _INCEPTION,
    "inceptionxml-lf": _INCEPTION,
    "siamesexml": {
        "dim": (300, 300, None, 512),
        "dropout": 0.5,
        "layers": (2e-4, 2e-4, None, 5e-4),
        "words": (2e-4, 2e-4, None, 5e-4),
        "rows": (2e-4, 2e-4, None, 5e-4),
        "batch": 255,
        "epochs": 20,
        "pair_epochs": 50,
        "pair_batch": 4_095,
        "pair_rate": 0.01,
        "pair_words_rate": 0.01,
    },
    "ngame": {**_NGAME_PAIRS, "rows": (1e-3, None, None, None), "batch": 2_048, "epochs": 100},
    "renee": {
        **_NGAME_PAIRS,
        "dropout": (0.85, None, None, 0.7),
        "layers": (1e-5, None, None, 1e-6),
        "rows": (0.05, None, None, 0.01),
        "row_decay": 1e-4,
        "batch": (512, None, None, 1_024),
        "epochs": 100,
        "warm_up_steps": (5_000, None, None, 15_000),
    },
}
COSINES = ("siamesexml", "ngame")  # whose published vectors have length 1 (rule 3)
SCHEDULES = {"inceptionxml": "one-cycle", "inceptionxml-lf": "one-cycle", "renee": "cosine"}  # others: linear
_DISTILBERT = (
    "msmarco-distilbert-base-v4, in place of the smaller MiniLM-L6: --set encoder.model=FOLDER, which costs "
    "six times as much"
)
_GLOVE = "GloVe 6B, 300 numbers: --set text.vectors=glove.6B.300d.txt"
_FASTTEXT = "fastText vectors of the set's own texts, which nobody offers: --set text.vectors=FILE"
PROVIDE = {
    "astec": _FASTTEXT,
    "siamesexml": _FASTTEXT,
    "inceptionxml": _GLOVE,
    "inceptionxml-lf": _GLOVE,
    "ngame": _DISTILBERT,
    "renee": _DISTILBERT,
}
# A published constant and the settings that hold it as it is.
_AS_THEY_ARE = {
    "dim": "encoder.dim",
    "dropout": "encoder.dropout",
    "last_dropout": "encoder.last_dropout",
    "layers": "encoder.rate",
    "words": "encoder.words_rate",
    "batch": "training.batch",
    "epochs": "training.epochs",
    "pair_epochs": "siamese.pair_epochs",
    "pair_batch": "siamese.pair_batch",
    "pair_rate": "siamese.pair_rate",
    "pair_words_rate": "siamese.pair_words_rate",
}


def derived(system: str, name: str) -> Recipe:
    """Return the recipe of a system for one of the four sets, with Gandalf's label points."""
    return override(recipe(system), (*derived_settings(system, name), *TARGETS))


def derived_settings(system: str, name: str) -> tuple[str, ...]:
    """Return the settings of such a recipe as `--set` takes them, without those of label points."""
    if system not in CONSTANTS:
        what = f"there is no recipe of {system} for {name}"
        raise DataError(what, remedy=f"choose from {', '.join(CONSTANTS)}")
    found = {key: _value(constant, name) for key, constant in CONSTANTS[system].items()}
    settings = {"text.max_length": 32.0}
    settings |= {setting: found[key] for key, setting in _AS_THEY_ARE.items() if key in found}
    settings |= dict(_rows(system, found))
    settings |= dict(_warm_up(found, BENCHMARKS[name]))
    schedule = f"training.schedule={SCHEDULES.get(system, 'linear')}"
    return (*(f"{key}={value:.6g}" for key, value in settings.items()), schedule)


def _value(constant: Constant, name: str) -> float:
    """Return the constant for a set, or for the nearest set in labels that has one."""
    if not isinstance(constant, tuple):
        return float(constant)
    labels = BENCHMARKS[name].labels
    known = {
        abs(math.log(each.labels / labels)): value
        for each, value in zip(BENCHMARKS.values(), constant, strict=True)
        if value is not None
    }
    return float(known[min(known)])


def _rows(system: str, found: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Yield rate and decay of the rows: rules 1 to 3."""
    if recipe(system).head.optimiser == "sgd":
        rate = found["rows"] * RATED_FOR * LENGTH**2
        yield "head.rate", rate
        more = at_batch(rate, "sgd", round(found["batch"])) / found["rows"]
        yield "head.weight_decay", found["row_decay"] / more
    else:
        yield "head.rate", found["rows"] * (1.0 if system in COSINES else LENGTH)


def _warm_up(found: dict[str, float], size: Benchmark) -> Iterator[tuple[str, float]]:
    """Yield the shares of updates in which rates rise: rule 5."""
    updates = found["epochs"] * math.ceil((size.points + size.labels) / found["batch"])
    yield "training.warm_up", found.get("warm_up", found.get("warm_up_steps", 0.0) / updates)
    if "pair_warm_up_steps" in found:
        pairs = found["pair_epochs"] * math.ceil(size.points / found["pair_batch"])
        yield "siamese.pair_warm_up", found["pair_warm_up_steps"] / pairs
