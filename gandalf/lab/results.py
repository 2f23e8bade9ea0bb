"""Read a folder of results, average figures over seeds, and tell if two rows differ by more than noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from scipy.special import stdtrit

from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.lab.sets import data_hash, open_set, parts
from gandalf.lab.store import FACTS, Line, StudyRun, read_json, read_plan, read_predictions, stored_lines
from gandalf.lab.studies import ROWS
from gandalf.lab.variants import Run, variant_name
from gandalf.metrics.bootstrap import Comparison, Difference, compare
from gandalf.metrics.evaluate import Scores, evaluate

Column = Callable[[Line], float | None]
Name = TypeVar("Name")  # of a row


def figure(name: str, part: str | None = None) -> Column:
    """Return a function that reads a figure of a line, of all points or of one part."""

    def of(line: Line) -> float | None:
        found = line["figures"] if part is None else line["figures"][part]
        value = None if found is None else found.get(name)
        return None if value is None else float(value)

    return of


@dataclass(frozen=True)
class Sample:
    """One figure over seeds."""

    values: tuple[float, ...]

    @staticmethod
    def of(lines: Iterable[Line], column: Column) -> Sample:
        """Collect a figure from every line that has it."""
        return Sample(tuple(value for value in map(column, lines) if value is not None))

    @property
    def mean(self) -> float:
        """Return the mean, NaN of no values."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """Return the standard deviation, NaN of fewer than two values."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    @property
    def error(self) -> float:
        """Return the standard error of the mean."""
        return self.deviation / math.sqrt(len(self.values)) if self.values else math.nan


def pooled(samples: Iterable[Sample]) -> tuple[float, int]:
    """Return the pooled standard deviation between seeds, and its degrees of freedom."""
    repeated = [sample for sample in samples if len(sample.values) > 1]
    freedom = sum(len(sample.values) - 1 for sample in repeated)
    squares = sum((len(sample.values) - 1) * sample.deviation**2 for sample in repeated)
    return (math.sqrt(squares / freedom), freedom) if freedom else (math.nan, 0)


def noise(one: Sample, other: Sample, spread: tuple[float, int]) -> float:
    """Return half the 95 % interval of a difference of two means; NaN if no sample has two seeds."""
    deviation, freedom = spread
    if not freedom or not one.values or not other.values:
        return math.nan
    of_means = math.sqrt(1 / len(one.values) + 1 / len(other.values))
    return float(stdtrit(freedom, 0.975)) * deviation * of_means


def best_rows(samples: Mapping[Name, Sample]) -> set[Name]:
    """Return the rows that no row beats by more than noise; no rows if these are all."""
    known = {name: sample for name, sample in samples.items() if sample.values}
    spread = pooled(known.values())
    if not spread[1]:
        return set()
    top = max(known.values(), key=lambda sample: sample.mean)
    best = {name for name, sample in known.items() if top.mean - sample.mean <= noise(top, sample, spread)}
    return best if len(best) < len(known) else set()


RunLines = dict[str, list[Line]]
PARTS = {"all": None, "new": "new_text"}  # texts that a figure is of, by their name in a line


class ResultPlace(NamedTuple):
    """What a table is about."""

    data: str
    system: str
    base: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return the place in words."""
        told = ", ".join(self.base) if len(self.base) < 4 else f"{len(self.base)} settings"
        return f"{self.data}, {self.system}" + (f" ({told})" if self.base else "")


BOTH, OF_POINTS, OF_SEEDS, UNKNOWN = "points and seeds", "test points", "seeds", ""


@dataclass(frozen=True)
class Contrast:
    """A row's figure minus another's, with its 95 % interval; NaN ends where nothing tells how wide it is.

    Two things vary: which points were tested (paired bootstrap) and the seed of the training. Where both are
    known, the interval holds both: widths are added as those of independent errors are.
    """

    difference: float
    low: float
    high: float
    by: str  # BOTH, OF_POINTS, OF_SEEDS or UNKNOWN
    seeds: int = 0  # of the row that has fewer
    points: int = 0  # that the figure is a mean of
    systems: tuple[str, ...] = ()  # of the two rows, where it matters

    @property
    def real(self) -> bool:
        """Return True if the interval excludes 0; False if nothing tells how wide it is."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, eq=False)
class Results:
    """Everything in a folder of results."""

    folder: Path
    lines: dict[str, Line]
    plan: tuple[StudyRun, ...]
    facts: dict[str, Any]
    _scores: dict[tuple[str, ...], Scores | None] = field(default_factory=dict)
    _comparisons: dict[tuple[tuple[str, ...], ...], Comparison | None] = field(default_factory=dict)
    _sets: dict[str, Splits | None] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path) -> Results:
        """Read all lines of the folder, under the studies that want them."""
        lines = {line["key"]: line for line in stored_lines(folder)}
        plan = read_plan(folder)
        known = {entry.run.key for entry in plan}
        guessed = _guessed(line for line in lines.values() if line["key"] not in known)
        plan += sorted(guessed, key=lambda entry: list(ROWS).index(entry.row))
        if not any(entry.run.key in lines for entry in plan):
            raise DataError("holds no results", remedy="make some: gandalf reproduce", file=folder)
        return Results(folder, lines, tuple(plan), read_json(folder / FACTS).get("sets", {}))

    @cached_property
    def _grouped(self) -> dict[str, dict[ResultPlace, RunLines]]:
        found: dict[str, dict[ResultPlace, RunLines]] = {}
        for entry in self.plan:
            line = self.lines.get(entry.run.key)
            if line is not None:
                place = ResultPlace(entry.run.data, entry.run.system, entry.base)
                rows = found.setdefault(entry.study, {}).setdefault(place, {})
                rows.setdefault(entry.row, []).append(line)
        return found

    def study(self, name: str) -> dict[ResultPlace, RunLines]:
        """Return the rows of a study by place."""
        return self._grouped.get(name, {})

    def rows(self, place: ResultPlace) -> RunLines:
        """Return the rows of all studies at a place; rows on validation data have other names."""
        found: RunLines = {}
        for study in self._grouped:
            for row, lines in () if study == "tuning" else self.study(study).get(place, {}).items():
                found[row] = max(found.get(row, []), lines, key=len)  # some studies take one seed of it
        return found

    def places(self, study: str | None = None) -> list[ResultPlace]:
        """Return the places of one study, or of all."""
        studies = self._grouped if study is None else [study]
        return list(dict.fromkeys(place for name in studies for place in self.study(name)))

    def planned(self, study: str) -> int:
        """Return the number of runs that the study wants."""
        return len({entry.run.key for entry in self.plan if entry.study == study})

    def splits(self, data: str) -> Splits | None:
        """Return the data set, or None if it was moved or changed."""
        if data not in self._sets:
            self._sets[data] = None
            fact = self.facts.get(data)
            with suppress(DataError):
                if fact is not None:
                    found = open_set(data, fact["source"])
                    self._sets[data] = found if data_hash(found) == fact["hash"] else None
        return self._sets[data]

    def scores(self, lines: list[Line]) -> Scores | None:
        """Return the mean scores over seeds, point by point; None if predictions are missing."""
        key = tuple(line["key"] for line in lines)
        if key not in self._scores:
            found = [self._of_line(line) for line in lines]
            every = [each for each in found if each is not None]
            self._scores[key] = mean_scores(every) if every and len(every) == len(found) else None
        return self._scores[key]

    def _of_line(self, line: Line) -> Scores | None:
        ids, run = read_predictions(self.folder, line), Run.of(line["run"])
        whole = None if ids is None else self.splits(run.data)
        if ids is None or whole is None:
            return None
        scored = parts(whole, run.split, run.seed)[1]
        if scored.test is None or len(scored.test) != len(ids):
            return None
        places = np.broadcast_to(-np.arange(ids.shape[1], dtype=np.float32), ids.shape)
        return evaluate((ids, places), scored)

    def contrast(self, one: list[Line], other: list[Line], name: str, part: str = "all") -> Contrast:
        """Return one row minus another, with an interval over test points, seeds, or both where both tell."""
        column = figure(name, PARTS[part])
        first, second = Sample.of(one, column), Sample.of(other, column)
        difference = first.mean - second.mean
        about = (min(len(first.values), len(second.values)), _points(one[0], part))
        half = noise(first, second, pooled([first, second]))
        over = self._over_points(one, other, name, part)
        return joined(difference, half, over, about)

    def _over_points(self, one: list[Line], other: list[Line], name: str, part: str) -> Difference | None:
        """Compare by resampled test points, over the seeds of which both rows have kept predictions."""
        first, second = self._kept(one), self._kept(other)
        seeds = first.keys() & second.keys()
        pair = [[of_row[seed] for seed in sorted(seeds)] for of_row in (first, second)]
        found = self._compared(*pair) if seeds and _same_points(*pair) else None
        if found is None:
            return None
        of_part = found.every if part == "all" else found.new_text
        return None if of_part is None else of_part.get(name)

    def _kept(self, lines: list[Line]) -> dict[int, Line]:
        """Return the lines whose predictions were kept and can be scored, by seed."""
        return {line["run"]["seed"]: line for line in lines if self.scores([line]) is not None}

    def _compared(self, one: list[Line], other: list[Line]) -> Comparison | None:
        keys = tuple(tuple(line["key"] for line in lines) for lines in (one, other))
        if keys not in self._comparisons:
            first, second = self.scores(one), self.scores(other)
            missing = first is None or second is None or _shape(first) != _shape(second)
            self._comparisons[keys] = None if missing else compare(cast(Scores, first), cast(Scores, second))
        return self._comparisons[keys]


def joined(difference: float, half: float, over: Difference | None, about: tuple[int, int]) -> Contrast:
    """Return a contrast: `half` its interval over seeds (NaN: one seed), and that over points, if any."""
    if over is None:
        by = UNKNOWN if np.isnan(half) else OF_SEEDS
        return Contrast(difference, difference - half, difference + half, by, *about)
    if np.isnan(half):
        return Contrast(over.difference, over.low, over.high, OF_POINTS, *about)
    below, above = (
        float(np.hypot(width, half)) for width in (over.difference - over.low, over.high - over.difference)
    )
    return Contrast(difference, difference - below, difference + above, BOTH, *about)


def _points(line: Line, part: str) -> int:
    """Return how many points a line's figures of the part are of."""
    figures, name = line["figures"], PARTS[part]
    of_part = figures if name is None else figures.get(name) or {}
    return int(of_part.get("points", 0))


def mean(lines: list[Line], column: Column) -> float:
    """Return the mean of a figure over seeds."""
    return Sample.of(lines, column).mean


def _same_points(one: list[Line], other: list[Line]) -> bool:
    """Return True if all were scored on the same points: held-out points depend on the seed."""
    splits = {line["run"]["split"] for line in (*one, *other)}
    seeds = {line["run"]["seed"] for line in (*one, *other)}
    return splits == {"test"} or (len(splits) == 1 and len(seeds) == 1)


def _shape(scores: Scores) -> tuple[int, ...]:
    return tuple(scores.contributions.gains.shape)


def mean_scores(scores: list[Scores]) -> Scores:
    """Return the mean of several runs' scores, point by point."""
    gains = np.mean([each.contributions.gains for each in scores], axis=0)
    return replace(scores[0], contributions=replace(scores[0].contributions, gains=gains))


def _guessed(lines: Iterable[Line]) -> Iterable[StudyRun]:
    """Yield rows of lines that no plan names: variants of the main study without further settings."""
    for line in lines:
        run = Run.of(line["run"])
        row = "auto" if run.targets == "auto" else variant_name(run)
        told = sum(each.startswith(("targets.", "baselines.")) for each in run.settings)
        if row is not None and told == 1 and run.split == "test":
            base = tuple(each for each in run.settings if not each.startswith("targets."))
            yield StudyRun("main" if run.keep == "both" else "data", row, run, base)
