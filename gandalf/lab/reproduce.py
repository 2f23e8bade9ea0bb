"""Run the studies: a stored run is never repeated, and a stopped study continues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gandalf.data.claim import LOCK
from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.lab.benchmarks import BENCHMARKS, derived_settings
from gandalf.lab.costs import Pace, stand_in
from gandalf.lab.measure import measured_to
from gandalf.lab.parallel import Clock, results
from gandalf.lab.sets import SYNTHETIC, density, environment, graphs, open_set, short_name
from gandalf.lab.store import (
    FACTS,
    FIRST_STAGES,
    PREDICTIONS,
    RESULTS,
    Line,
    LineOrError,
    StudyRun,
    add_to_plan,
    append,
    of_data,
    read_json,
    stored_lines,
    write_json,
)
from gandalf.lab.studies import StudyScope, entries
from gandalf.lab.variants import Run, recipe_of
from gandalf.metrics.predictions import need_test_points
from gandalf.progress import meter, without_bars
from gandalf.runs.checks import check_points, check_recipe
from gandalf.systems import NETWORKS, first_departure

OWN = (PREDICTIONS, FIRST_STAGES, LOCK)  # in a folder of results, beside JSON


@dataclass(frozen=True)
class StudyRequest:
    """The studies, data, systems and settings that a person asked for."""

    studies: tuple[str, ...]
    data: str
    systems: tuple[str, ...]
    seeds: tuple[int, ...]
    folder: Path
    settings: tuple[str, ...] = ()
    jobs: int = 1
    benchmark: str | None = None  # whose derived recipes the systems have

    def settings_of(self, system: str) -> tuple[str, ...]:
        """Return what every run of a system sets: its recipe for the benchmark, under what was asked for."""
        own = () if self.benchmark is None else derived_settings(system, self.benchmark)
        return (*own, *self.settings)


@dataclass(frozen=True, eq=False)
class Planned:
    """The studies' rows, those of them that are left to run, and how long that will take."""

    wanted: StudyRequest
    splits: Splits
    entries: tuple[StudyRun, ...]
    left: dict[Run, float]  # seconds that each run is expected to take
    refused: dict[str, str]  # rows that a system has no meaning for, and why
    environment: dict[str, Any]

    @property
    def runs(self) -> int:
        """Return the number of different runs."""
        return len({entry.run for entry in self.entries})

    @property
    def seconds(self) -> float:
        """Return the seconds that the runs left will take."""
        return sum(self.left.values()) / self.wanted.jobs


def plan(wanted: StudyRequest, *, only_look: bool = False) -> Planned:
    """Plan the studies and find the runs that are left; write the plan unless `only_look`."""
    check_settings(wanted)
    if only_look and wanted.data in BENCHMARKS and not Path(wanted.data).exists():
        return _by_shape(wanted)
    splits = open_set(short_name(wanted.data), wanted.data)
    check_points(splits.train)
    need_test_points(splits).need_texts("reproducing the studies")
    name = short_name(wanted.data)
    sound, refused = _sound(wanted, len(splits.train), splits.train.num_labels)
    about = environment()
    sets = _facts(wanted, splits, sound)
    lines = stored_lines(wanted.folder) if wanted.folder.is_dir() else []
    done = _done(sets, lines)
    if not only_look:
        wanted.folder.mkdir(parents=True, exist_ok=True)
        write_json(wanted.folder / FACTS, {"sets": sets, "environment": about})
        add_to_plan(wanted.folder, sound)
    left = [run for run in dict.fromkeys(e.run for e in sound) if run.key not in done]
    pace = Pace(splits, about["cpu"])
    pace.learn(line for line in lines if line["run"]["data"] == name)
    with without_bars():
        seconds = {run: 0.0 if only_look else pace.seconds(run) for run in left}
    return Planned(wanted, splits, sound, seconds, refused, about)


def _by_shape(wanted: StudyRequest) -> Planned:
    """Return the plan of a benchmark that is not at hand: nothing of it is stored, and its shape is known."""
    shape = BENCHMARKS[wanted.data]
    sound, refused = _sound(wanted, shape.points, shape.labels)
    left = dict.fromkeys((entry.run for entry in sound), 0.0)
    return Planned(wanted, stand_in(wanted.data), sound, left, refused, environment())


def _sound(wanted: StudyRequest, points: int, labels: int) -> tuple[tuple[StudyRun, ...], dict[str, str]]:
    """Return all rows that can be run, and those that cannot with the reason."""
    alike: dict[tuple[str, ...], list[str]] = {}  # systems by their settings
    for system in wanted.systems:
        alike.setdefault(wanted.settings_of(system), []).append(system)
    name = short_name(wanted.data)
    every = [
        entry
        for settings, systems in alike.items()
        for entry in entries(
            wanted.studies, StudyScope(name, tuple(systems), wanted.seeds, points, labels, settings)
        )
    ]
    refused = {f"{e.run.system}: {e.row}": why for e in every if (why := refusal(e.run)) is not None}
    return tuple(e for e in every if f"{e.run.system}: {e.row}" not in refused), refused


def check_settings(wanted: StudyRequest) -> None:
    """Refuse settings that no row could have or that make another system, and systems that take no steps."""
    for system in wanted.systems:
        if system not in NETWORKS:
            what = f"{system} is trained in one go, so that no two of its rows could take equal steps"
            raise DataError(what, remedy="compare it by gandalf bench, or choose other --systems")
        found = recipe_of(Run(short_name(wanted.data), system, settings=wanted.settings_of(system)))
        check_recipe(found)
        if (part := first_departure(system, found)) is not None:
            what = f"with {part} the runs would not be of the system {system}, whose name they would bear"
            raise DataError(what, remedy="leave the setting out, or choose other --systems")


def refuse_to_write(wanted: StudyRequest) -> None:
    """Refuse a folder that lies in the data, or that holds what no study put there."""
    folder, data = wanted.folder.resolve(), Path(wanted.data)
    if data.exists() and data.resolve() in (folder, *folder.parents):
        raise DataError("is part of the data that is read", remedy="choose another --out", file=wanted.folder)
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    foreign = [name for name in names if not name.endswith((".jsonl", ".json")) and name not in OWN]
    if foreign:
        what = f"holds {min(foreign)}, which is not part of any study"
        raise DataError(what, remedy="choose another --out", file=wanted.folder)


def refusal(run: Run) -> str | None:
    """Return why a system cannot have this row, or None."""
    try:
        check_recipe(recipe_of(run))
    except DataError as error:
        return error.problem.what
    return None


def _done(sets: dict[str, Any], lines: list[Line]) -> set[str]:
    """Return the keys of stored runs on the present data."""
    found: set[str] = set()
    for data, fact in sets.items():
        here = [line for line in lines if line["run"]["data"] == data]
        found |= {line["key"] for line in of_data(here, fact["name"], fact["hash"], fact["test_points"])}
    return found


def _facts(wanted: StudyRequest, splits: Splits, every: Iterable[StudyRun]) -> dict[str, Any]:
    """Return the facts of all sets; those of the folder are kept."""
    sets: dict[str, Any] = dict(read_json(wanted.folder / FACTS).get("sets", {}))
    name = short_name(wanted.data)
    for data in dict.fromkeys([name, *(entry.run.data for entry in every)]):
        opened = splits if data == name else open_set(data, wanted.data)
        found, known = {"source": wanted.data, **density(opened)}, sets.get(data, {})
        if known.get("hash") != found["hash"] or ("neighbours" not in known and data == name):
            sets[data] = {**found, **(graphs(opened) if data == name else {})}
    return sets


def carry_out(planned: Planned, tell: Callable[[Run, LineOrError], None] = lambda run, answer: None) -> int:
    """Do the runs left, write a line as each run ends, and return the number of failures."""
    folder, failed = planned.wanted.folder, 0
    with meter("studies", max(sum(planned.left.values()), 1e-9)) as bar:
        for run, answer in _answers(planned):
            if isinstance(answer, str):
                failed += 1
            else:
                about = {"machine": planned.environment, "jobs": planned.wanted.jobs}
                append(folder / RESULTS, {**answer, **about})
            tell(run, answer)
            bar.advance(planned.left[run])
    return failed


def _answers(planned: Planned) -> Iterator[tuple[Run, LineOrError]]:
    """Yield every run left with its line or its failure."""
    wanted = planned.wanted
    work = partial(measured_to, source=wanted.data, folder=wanted.folder, first_stages=_first_stages(wanted))
    runs = sorted(planned.left, key=lambda run: (run.data.startswith(SYNTHETIC), run.data))
    runs = runs if len({run.data for run in runs}) > 1 else list(planned.left)
    if wanted.jobs > 1:
        yield from results(runs, work, wanted.jobs, Clock(float("inf")))
        return
    for run in runs:
        yield run, _answer(work, run)


def _answer(work: Callable[[Run], Line], run: Run) -> LineOrError:
    with without_bars():
        try:
            return work(run)
        except DataError as error:
            return str(error)


def _first_stages(wanted: StudyRequest) -> Path:
    """Return the folder of siamese encoders, which runs with other label points share."""
    return wanted.folder / FIRST_STAGES
