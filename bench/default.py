"""Measure the default of `gandalf train` beside linear baselines, on every development set.

    python -m bench.default omikuji,pecos man,cooking-300 --venvs .peers
    python -m bench.default linear samples --venvs .peers
    python -m bench.default default all --seeds 0 1 2
    python -m bench.default_table                    # the tables of docs/lab/default.md

ROW is a name in `bench/default_rows.py`, `linear` or `all`; SET is a name in `bench/default_sets.py`,
`samples`, `whole` or `all`. `python -m bench.peers_install .peers` installs the other trainers.

Every run of (row, set, seed) has a process of its own. Its line is appended to OUT, and a run whose line is
there is not repeated unless `--again` is given; the last line counts. Rows that give the same model for every
seed are run once, with seed 0.

Beside OUT, a folder of the same name holds a file of a few kilobytes for each line: the place of each true
label of the test points among the first five predictions. P@1, PSP@5 and C@5 follow from these places, on any
subset of the points, so a paired bootstrap needs no predictions. The predicted labels are not kept: the
command makes them again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.command import argument_parser, read_json_lines
from bench.default_rows import LINEAR, ROWS, Setup
from bench.default_sets import SETS, WHOLE, open_default_set
from bench.machine import DATA_ROOT, RESULTS, machine
from bench.tables import figures, three
from gandalf import DataError, Splits
from gandalf.lab.sets import data_hash
from gandalf.lab.store import append
from gandalf.metrics.evaluate import Scores, evaluate
from gandalf.metrics.predictions import Source, as_predictions, need_test_points
from gandalf.metrics.propensity import inverse_propensities, propensity_constants
from gandalf.metrics.ranking import Ranking, contributions, rank, weigh_hits
from gandalf.metrics.topk import find_pairs

OUT = RESULTS / "default.jsonl"
PLACES = 5
NOWHERE = PLACES  # place of a true label that is not among the first five
Line = dict[str, Any]
Key = tuple[str, str, int]  # row, set, seed
Places = npt.NDArray[np.uint8]  # shape: (targets of the test split,)

ROW_GROUPS = {"all": tuple(ROWS), "linear": LINEAR}
SET_GROUPS = {
    "all": tuple(SETS),
    "whole": tuple(WHOLE),
    "samples": tuple(name for name in SETS if name[-1].isdigit()),
}


# ---- one run


def measure(key: Key, setup: Setup, root: Path) -> tuple[Line, Places]:
    """Train the row on the set, score the test points, and return the line and the places of true labels."""
    row, name, seed = key
    splits = open_default_set(name, root)
    before = _cpu_seconds()
    answer = ROWS[row].answer(splits, seed, setup)
    spent = _cpu_seconds() - before
    scores = evaluate(answer.predictions, splits)
    line = {
        **dict(zip(("row", "set", "seed"), key, strict=True)),
        "figures": figures(scores),
        "seconds": round(answer.seconds, 2),
        "predict_seconds": round(answer.predict_seconds, 2),
        "cpu_seconds": round(spent, 2),  # of training and prediction: other work does not slow these down
        "peak_mb": round(answer.peak_mb),
        "details": answer.details,
        "points": len(splits.train),
        "labels": splits.train.num_labels,
        "data_hash": data_hash(splits),
    }
    return line, places_of(answer.predictions, splits)


def _cpu_seconds() -> float:
    return sum(os.times()[:4])  # of this process and of the processes that it started


# ---- places of true labels


def places_of(predictions: Source, splits: Splits) -> Places:
    """Return the place of each true label of the test points, `NOWHERE` behind the fifth."""
    test = need_test_points(splits)
    ranking = rank(as_predictions(predictions, splits), test.targets, PLACES, test.exclude)
    rows, columns = np.nonzero(ranking.hits)
    places = np.full(test.targets.nnz, NOWHERE, dtype=np.uint8)
    places[find_pairs(test.targets, rows, ranking.ids[rows, columns])] = columns
    return places


def scores_of(places: Places, splits: Splits) -> Scores:
    """Return the scores of predictions that are known by the places of the true labels alone."""
    test = need_test_points(splits)
    truth = test.targets
    rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    found = places < NOWHERE
    ids = np.full((truth.shape[0], PLACES), -1, dtype=np.int64)
    ids[rows[found], places[found]] = truth.indices[found]
    ranking = Ranking(ids, ids >= 0, np.zeros(len(ids)))
    used = propensity_constants(splits.name)
    weights = inverse_propensities(splits.original_frequencies, splits.original_points, used.A, used.B)
    gained = contributions(weigh_hits(ranking, truth, weights, PLACES), (1, PLACES))
    nothing = evaluate(_no_predictions(splits), splits)  # knows which texts are labels' texts
    return replace(nothing, contributions=gained)


def _no_predictions(splits: Splits) -> Source:
    shape = (len(need_test_points(splits)), PLACES)
    return np.full(shape, -1), np.zeros(shape)


# ---- what is on disk


def read_results(path: Path) -> dict[Key, Line]:
    """Return the last line of each run."""
    return {_key(line): line for line in read_json_lines(path)}


def read_places(path: Path, line: Line) -> Places:
    """Return the places of true labels that belong to a line of the file `path`."""
    with np.load(_places_path(path, _key(line))) as file:
        return np.asarray(file["places"])


def _keep(path: Path, line: Line, places: Places) -> None:
    """Store a run; the line comes last, so that a stored line has its places."""
    beside = _places_path(path, _key(line))
    beside.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(beside, places=places)
    append(path, line)


def _key(line: Line) -> Key:
    return line["row"], line["set"], line["seed"]


def _places_path(path: Path, key: Key) -> Path:
    row, name, seed = key
    return path.with_suffix("") / f"{name}_{row}_{seed}.npz"


# ---- the command


def wanted(chosen: argparse.Namespace) -> Iterator[Key]:
    """Yield the runs that are asked for and not done, set by set."""
    done = {} if chosen.again else read_results(chosen.out)
    for name in _names(chosen.sets, SET_GROUPS, SETS):
        for row in _names(chosen.rows, ROW_GROUPS, ROWS):
            for seed in [0] if ROWS[row].repeats else chosen.seeds:
                if (row, name, seed) not in done:
                    yield row, name, seed


def _names(words: str, groups: dict[str, tuple[str, ...]], known: dict[str, Any]) -> list[str]:
    names = [name for word in words.split(",") for name in groups.get(word, (word,))]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise DataError(f"unknown name {unknown[0]!r}", remedy=f"choose from {', '.join([*groups, *known])}")
    return list(dict.fromkeys(names))


def main() -> int:
    """Run what is asked for and keep each line as soon as it is there."""
    chosen = options()
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(chosen.threads)  # read by the libraries of the processes below
    setup = Setup(chosen.venvs, chosen.threads)
    about = machine()
    commit = about.pop("commit")
    failed = False
    for key in wanted(chosen):
        try:
            # One process a run: its peak memory is its own, and one that dies leaves the others alone.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                line, places = pool.submit(measure, key, setup, chosen.data_root).result()
        except (DataError, OSError, BrokenProcessPool) as error:
            failed = True
            print(*key, f"left out: {error}", flush=True)
            continue
        _keep(chosen.out, {**line, "threads": chosen.threads, "commit": commit, "machine": about}, places)
        print(
            *key,
            three(line["figures"]),
            f"{line['seconds']:.1f} s, CPU {line['cpu_seconds']:.1f} s",
            flush=True,
        )
    return 1 if failed else 0


def options() -> argparse.Namespace:
    """Return the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("rows", metavar="ROW[,ROW]", help=", ".join([*ROW_GROUPS, *ROWS]))
    parser.add_argument("sets", metavar="SET[,SET]", help=", ".join([*SET_GROUPS, *SETS]))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=OUT, help="file of lines; new ones are appended")
    parser.add_argument("--again", action="store_true", help="repeat runs whose lines are there")
    parser.add_argument("--venvs", type=Path, help="folder of environments, each named as its trainer")
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT, help="folder that holds the data sets")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
