"""List every table and figure of the paper as rows of training runs, with our own rows beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gandalf.errors import DataError
from gandalf.lab.store import StudyRun
from gandalf.lab.variants import OWN_BASELINE, VARIANTS, Run, Variant, of_variant, recipe_of

Figure = Literal["none", "P@1 and PSP@5", "coverage", "bins", "share", "curves", "density"]
THROUGHOUT = "targets.label_epochs=1"  # as in the paper: label points to the last step

# Settings of the baselines, chosen on validation data (docs/guide/reproduce.md).
SYNONYMS = ("baselines.synonyms=1", "baselines.synonym_share=0.15")
MIXUP = ("baselines.mix=mixup", "baselines.mix_alpha=0.1")
LABEL_MIXUP = ("baselines.mix=label-mixup", "baselines.mix_alpha=1")
GLAS = ("baselines.glas=1",)

# Rows by name, beside those of VARIANTS.
ROWS: dict[str, Variant] = {
    **VARIANTS,
    "Z, N/2": Variant("ratio", "half"),
    "random walk": Variant("walk"),
    "delta 0": Variant("ratio", settings=(THROUGHOUT, "targets.delta=0")),
    "delta 0.2": Variant("ratio", settings=(THROUGHOUT, "targets.delta=0.2")),
    "GLaS targets": Variant("glas"),
    "GLaS regulariser": Variant("none", settings=(THROUGHOUT, *GLAS)),
    "synonyms": Variant("none", settings=(THROUGHOUT, *SYNONYMS)),
    "MixUp": Variant("none", settings=(THROUGHOUT, *MIXUP)),
    "Label-MixUp": Variant("self", settings=(THROUGHOUT, *LABEL_MIXUP)),
    "auto": Variant("auto", settings=("targets.label_epochs=0.7",)),
}
SHARES, ORDERS = (25, 50, 75), ("random", "tail")
LENGTHS = (0.5, 1.0, 2.0)  # times the recipe's epochs
CURVE = ("validation.share=0.05", "validation.every=0.5")
FEWER = ("points=0.5", "points=0.25", "pairs=0.5", "pairs=0.25")
DRAWN = tuple(
    f"synthetic?points={points}&labels=1000&labels_per_point={per_point:g}"
    for points, per_point in ((1000, 2), (4000, 2), (4000, 8))
)
OURS = ("shrunk", "calibrated", "auto")  # in every table, beside the paper's


@dataclass(frozen=True)
class StudyScope:
    """The data, systems, seeds and settings of a study."""

    data: str  # as runs call it
    systems: tuple[str, ...]
    seeds: tuple[int, ...]
    points: int  # of the training split
    labels: int
    settings: tuple[str, ...] = ()  # of every run, as --set takes them


@dataclass(frozen=True)
class Study:
    """A table or figure: its question, its rows and the kind of its picture."""

    title: str
    asks: str
    rows: Callable[[StudyScope], Iterator[tuple[str, Run]]]
    figure: Figure = "none"
    first_seed: bool = False  # one seed is enough


def _runs(names: Iterable[str]) -> Callable[[StudyScope], Iterator[tuple[str, Run]]]:
    """Return a function that yields the rows of these names for every system."""
    names = tuple(names)

    def rows(asked: StudyScope) -> Iterator[tuple[str, Run]]:
        for system in asked.systems:
            for name in names:
                yield name, of_variant(ROWS[name], system, asked.data, *asked.settings)

    return rows


def _main(asked: StudyScope) -> Iterator[tuple[str, Run]]:
    """Yield all variants at equal steps, and D at equal epochs, which means fewer steps."""
    yield from _runs(("D", "Z1", "G", "shrunk", "calibrated", "default", "auto"))(asked)
    for system in asked.systems:
        yield "D, equal epochs", _longer(asked, system, "D", asked.points / (asked.points + asked.labels))


def _subsample(asked: StudyScope) -> Iterator[tuple[str, Run]]:
    yield from _runs(("D", "G"))(asked)
    for system in asked.systems:
        for order in ORDERS:
            for share in SHARES:
                settings = (f"targets.share={share / 100:g}", f"targets.order={order}")
                run = of_variant(ROWS["G"], system, asked.data, *settings, *asked.settings)
                yield f"{order} {share} %", run


def _convergence(asked: StudyScope) -> Iterator[tuple[str, Run]]:
    """Yield runs of half, once and twice the steps, scored on held-out training points."""
    for system in asked.systems:
        for name in ("D", "G", "default"):
            for times in LENGTHS:
                run = _longer(asked, system, name, times, *CURVE)
                yield f"{name} x {times:g}", replace(run, split="validation")


def _density(asked: StudyScope) -> Iterator[tuple[str, Run]]:
    for system in asked.systems:
        for data in (asked.data, *(f"{asked.data}?{each}" for each in FEWER), *DRAWN):
            for name in ("D", "G", "default"):
                yield name, of_variant(ROWS[name], system, data, *asked.settings)


def _qualitative(asked: StudyScope) -> Iterator[tuple[str, Run]]:
    """Yield the baseline, G and the default of three systems."""
    for system in asked.systems[:3]:
        names = (OWN_BASELINE.get(system, "D"), "G", "default")
        yield from _runs(names)(replace(asked, systems=(system,)))


def _nothing(asked: StudyScope) -> Iterator[tuple[str, Run]]:
    return iter(())


def _longer(asked: StudyScope, system: str, name: str, times: float, *more: str) -> Run:
    """Return the run of a row with its epochs, or steps, multiplied."""
    run = of_variant(ROWS[name], system, asked.data, *asked.settings)
    training = recipe_of(run).training
    length = f"training.epochs={times * training.epochs:.6g}"
    if training.steps is not None:
        length = f"training.steps={max(1, round(times * training.steps))}"
    return replace(run, settings=(*run.settings, length, *more))


STUDIES: dict[str, Study] = {
    "main": Study("All systems", "What are label points worth to each system?", _main, "P@1 and PSP@5"),
    "data": Study(
        "What to train on",
        "Label points alone, half of them, with the training points, or as many as those?",
        _runs(("D", "Z", "Z, N/2", "U(G,N)", "Z1", "G", *OURS)),
    ),
    "graph": Study("Graphs", "Ratios of counts, or a random walk?", _runs(("D", "random walk", "G", *OURS))),
    "delta": Study("Threshold", "Which targets are kept?", _runs(("D", "delta 0", "G", "delta 0.2", *OURS))),
    "glas": Study(
        "GLaS",
        "Its targets, and its regulariser on the rows of a batch's labels.",
        _runs(("D", "GLaS regulariser", "GLaS targets", "G", *OURS)),
    ),
    "augmentations": Study(
        "Other augmentations",
        "Synonyms, MixUp and Label-MixUp in place of label points.",
        _runs(("D", "synonyms", "MixUp", "Label-MixUp", "Z1", "G", *OURS)),
    ),
    "coverage": Study(
        "Coverage",
        "How many different labels are ever predicted rightly?",
        _runs(("D", "Z1", "G", *OURS)),
        "coverage",
    ),
    "bins": Study(
        "Head to tail", "What frequent and rare labels add to P@5.", _runs(("D", "Z1", "G", *OURS)), "bins"
    ),
    "subsample": Study(
        "Fewer label points", "A share of the labels, at random or tail first.", _subsample, "share"
    ),
    "convergence": Study(
        "Convergence",
        "Figures on held-out training points against steps, and with half and twice as many.",
        _convergence,
        "curves",
    ),
    "density": Study(
        "Density",
        "Gain against points per label and labels per point: thinned and drawn sets.",
        _density,
        "density",
        first_seed=True,
    ),
    "qualitative": Study(
        "Predictions side by side", "Top 5, wrong ones greyed.", _qualitative, first_seed=True
    ),
    "neighbours": Study("Labels and their neighbours", "What label texts are taught.", _nothing),
    "cost": Study("Cost", "Time, memory and latency.", _runs(("D", "Z1", "G", "default")), first_seed=True),
}
ALL = "all"
# Not of the paper: how the settings of the baselines were chosen, on validation data.
TUNING: dict[str, tuple[str, tuple[str, ...]]] = {
    **{
        f"MixUp {a:g}": ("none", ("baselines.mix=mixup", f"baselines.mix_alpha={a:g}")) for a in (0.1, 0.4, 1)
    },
    **{
        f"Label-MixUp {a:g}": ("self", ("baselines.mix=label-mixup", f"baselines.mix_alpha={a:g}"))
        for a in (0.1, 0.4, 1)
    },
    **{
        f"synonyms {share:g}": ("none", ("baselines.synonyms=1", f"baselines.synonym_share={share:g}"))
        for share in (0.1, 0.15, 0.3)
    },
    **{f"GLaS {weight:g}": ("none", (f"baselines.glas={weight:g}",)) for weight in (1, 10, 100)},
}


def _tuning(asked: StudyScope) -> Iterator[tuple[str, Run]]:
    for system in asked.systems:
        for name, (targets, settings) in {"D": ("none", ()), **TUNING}.items():
            variant = Variant(targets, settings=(THROUGHOUT, *settings))
            yield name, replace(of_variant(variant, system, asked.data, *asked.settings), split="validation")


STUDIES["tuning"] = Study(
    "Settings of the baselines", "Chosen on held-out training points.", _tuning, first_seed=True
)
OF_PAPER = tuple(name for name in STUDIES if name != "tuning")


def named(study: str) -> tuple[str, ...]:
    """Return the studies of that name: one, or all of the paper's."""
    if study == ALL:
        return OF_PAPER
    if study not in STUDIES:
        raise DataError(f"there is no study {study!r}", remedy=f"choose from {', '.join((*STUDIES, ALL))}")
    return (study,)


def entries(studies: Iterable[str], asked: StudyScope) -> list[StudyRun]:
    """Return the runs of the studies, seed by seed: a study that is cut short has whole tables."""
    found = []
    for number, seed in enumerate(asked.seeds):
        for study in studies:
            if number and STUDIES[study].first_seed:
                continue
            rows = STUDIES[study].rows(asked)
            found += [StudyRun(study, row, replace(run, seed=seed), asked.settings) for row, run in rows]
    return found
