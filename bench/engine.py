"""Training runs of a study, several at once, one line of results each.

    python -m bench.engine main --jobs 2
    python -m bench.engine main --jobs 6 --limit-seconds 540 --data-root SETS --out OUT --commit 1a2b3c4

STUDY is a name in bench/studies.py or a JSON file with a list of runs. Lines are appended to
bench/results/engine/STUDY.jsonl as runs end, and a run whose line is in any file there is not repeated: start
the command again to go on. Lines that `--out` put elsewhere are added with `cat OUT/STUDY.jsonl >>`.

`validation` runs see nothing of the test split: a tenth of the training points is cut off, the rest is
trained on, and the tenth is scored. `test` runs train on all training points. Neither holds anything back
inside the run, since nothing is chosen by it, unless its settings say so (validation.share).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import torch

from bench.graph import peak_mb
from bench.machine import RESULTS, machine
from bench.parallel import Clock, results
from bench.studies import STUDIES, Run
from gandalf import Splits, load
from gandalf.data.holdout import holdout
from gandalf.data.load import bundled
from gandalf.recipe import Recipe
from gandalf.runs.auto import choose
from gandalf.runs.run import Place, Trained, test_figures, train
from gandalf.settings import override
from gandalf.systems import recipe

ENGINE = RESULTS / "engine"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
HELD_SHARE = 0.1  # of `validation` runs; which points depends on the run's seed alone
KEPT = tuple(f"{name}@{k}" for name in ("P", "PSP", "C") for k in (1, 3, 5))
Line = dict[str, Any]


# ---- one run


def measured(run: Run, root: Path, first_stages: Path | None = None) -> Line:
    """Train, score, and what it took."""
    started = time.perf_counter()
    given, scored = parts(run.data, run.split, run.seed if run.split == "validation" else 0, root)
    _forget_peak()
    asked, choice = recipe_of(run), None
    if asked.targets.targets == "auto":
        made = choose(given, asked)
        asked, choice = made.recipe, made.table
    trained = train(given, asked, Place(first_stages=first_stages))
    figures = test_figures(trained.model, scored)
    assert figures is not None
    earlier = trained.taken_over or {}  # what another run has done for this one
    device = next(trained.model.encoder.parameters()).device.type
    return {
        "key": run.key,
        "run": asdict(run),
        "name": scored.name,
        "device": device,
        "figures": kept(figures),
        "history": history(trained),
        "steps": trained.steps,
        "seconds": round(trained.seconds, 2),  # of the training itself
        "wall": round(time.perf_counter() - started, 2),  # with reading, label points and scoring
        "peak_memory": max(_peak(device), earlier.get("peak_memory") or 0),  # bytes
        "recipe": trained.model.config["recipe"],  # every `auto` replaced by what it meant
        "targets": _plain(trained.details),
        **({} if choice is None else {"choice": _plain(choice)}),
    }


@lru_cache(maxsize=1)
def parts(data: str, split: str, seed: int, root: Path) -> tuple[Splits, Splits]:
    """What a run may train on, and what it is scored on."""
    found = load(data if data in bundled() or not (root / data).exists() else root / data)
    if split == "validation":
        cut = holdout(found.train, HELD_SHARE, seed, at_most=None)
        found = replace(found, train=cut.rest, test=cut.held)
    return replace(found, test=None), found


def recipe_of(run: Run) -> Recipe:
    """The recipe of the run's system, changed as the run says."""
    changes = (f"seed={run.seed}", f"targets.targets={run.targets}", f"targets.keep={run.keep}")
    return override(recipe(run.system), (*changes, "validation.share=0", *run.settings))


def kept(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures that are kept, of all points and of those whose text is and is not a label's."""

    def of(part: dict[str, Any] | None) -> dict[str, Any] | None:
        return part and {name: part[name] for name in ("points", *KEPT) if name in part}

    return {
        **(of(figures) or {}),
        "label_text": of(figures["label_text"]),
        "new_text": of(figures["new_text"]),
        "bins": figures["bins"],
    }


def history(trained: Trained) -> list[dict[str, Any]]:
    """The course of the validations inside the run, where its settings ask for any."""
    names = ("step", "P@1", "new_text", "label_text")
    return [{name: each.get(name) for name in names} for each in trained.history]


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(json.dumps(details, default=str)))


def _forget_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):  # where it cannot be forgotten, an earlier run of the process may have set it
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def _peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else int(peak_mb() * 2**20)


# ---- lines on disk


def read_lines(*paths: Path) -> list[Line]:
    """The lines of these files, one for each run, the last one written; what is cut short is left out."""
    found: dict[str, Line] = {}
    for path in paths:
        for text in path.read_text("utf-8").splitlines() if path.exists() else ():
            with suppress(json.JSONDecodeError):
                line = json.loads(text)
                found[line["key"]] = line
    return list(found.values())


def append(path: Path, line: Line) -> None:
    """Add a line, which is on disk when this returns; a line that was cut short before stays by itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        start = "" if file.read(1) in (b"", b"\n") else "\n"
        file.write(f"{start}{json.dumps(line)}\n".encode())
        file.flush()
        os.fsync(file.fileno())


# ---- the command


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", help=f"{', '.join(STUDIES)}, or a JSON file with a list of runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; they share cores and GPU")
    parser.add_argument(
        "--limit-seconds", type=float, default=float("inf"), help="the command ends by then, come what may"
    )
    parser.add_argument("--data-root", type=Path, default=SHARED, help="folder that holds the data sets")
    parser.add_argument("--out", type=Path, default=ENGINE, help="folder that new lines are written to")
    parser.add_argument(
        "--first-stages", type=Path, help="folder of encoders that runs share where their first stage is one"
    )
    parser.add_argument("--commit", help="of the code, where git cannot tell")
    parser.add_argument("--data", nargs="+", help="only runs on these data sets")
    parser.add_argument("--system", nargs="+", help="only runs of these systems")
    parser.add_argument("--seed", nargs="+", type=int, help="only runs with these seeds")
    parser.add_argument("--set", nargs="+", default=[], help="settings added to every run, as key=value")
    parser.add_argument("--list", action="store_true", help="name the runs that are left, and run none")
    return parser.parse_args()


def asked_for(chosen: argparse.Namespace) -> tuple[str, list[Run]]:
    """The name of the study and those of its runs that were asked for."""
    if chosen.study in STUDIES:
        name, runs = chosen.study, STUDIES[chosen.study]()
    else:
        path = Path(chosen.study)
        name, runs = path.stem, [Run.of(each) for each in json.loads(path.read_text("utf-8"))]
    wanted = {"data": chosen.data, "system": chosen.system, "seed": chosen.seed}
    return name, [
        replace(run, settings=(*run.settings, *chosen.set))
        for run in runs
        if all(values is None or getattr(run, which) in values for which, values in wanted.items())
    ]


def main() -> int:
    """Run what is left of the study."""
    chosen = arguments()
    name, runs = asked_for(chosen)
    out: Path = chosen.out / f"{name}.jsonl"
    # A run that another study has made is not made again; its line is found there.
    done = {line["key"] for line in read_lines(*sorted(ENGINE.glob("*.jsonl")), out)}
    left = [run for run in dict.fromkeys(runs) if run.key not in done]
    print(f"{name}: {len(left)} of {len(runs)} runs left", flush=True)
    if chosen.list:
        print(*left, sep="\n")
        return 0
    about = environment(chosen.commit)
    ended = failed = 0
    clock = Clock(chosen.limit_seconds)
    with suppress(KeyboardInterrupt):
        work = partial(measured, root=chosen.data_root, first_stages=chosen.first_stages)
        for run, answer in results(left, work, chosen.jobs, clock):
            if isinstance(answer, str):
                failed += 1
                print(f"FAILED {run}\n{answer}", flush=True)
                continue
            ended += 1
            append(out, {**answer, **about, "jobs": chosen.jobs})
            p1, seconds = answer["figures"]["P@1"], answer["wall"]
            print(f"{ended}/{len(left)}  P@1 {p1:5.2f}  {seconds:6.1f} s  {run}", flush=True)
    print(f"{ended} ended, {failed} failed, {len(left) - ended - failed} not run; {out}")
    return 1 if failed else 0


def environment(commit: str | None) -> dict[str, Any]:
    """What the runs are measured on."""
    about = {**machine(), "torch": torch.__version__}
    if torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name()
    by_git = about.pop("commit")
    return {"commit": commit or by_git, "machine": about}


if __name__ == "__main__":
    sys.exit(main())
