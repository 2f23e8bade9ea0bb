"""Training runs of a study, several at once, one line of results each.

    python -m bench.engine main --jobs 2
    python -m bench.engine main --jobs 6 --limit-seconds 540 --data-root SETS --out OUT --commit 1a2b3c4

STUDY is a name in bench/studies.py or a JSON file with a list of runs. Lines are appended to
bench/results/engine/STUDY.jsonl as runs end, and a run whose line is in any file there is not repeated: start
the command again to go on. Lines that `--out` put elsewhere are added with `cat OUT/STUDY.jsonl >>`.
With `--predictions` the ten best labels of every test point are kept too, in OUT/predictions, and only a run
whose labels are there counts as made: what a paired bootstrap needs (`python -m bench.verdict`).

`validation` runs see nothing of the test split: a tenth of the training points is cut off, the rest is
trained on, and the tenth is scored. `test` runs train on all training points. Neither holds anything back
inside the run, since nothing is chosen by it, unless its settings say so (validation.share).
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.command import argument_parser
from bench.machine import DATA_ROOT, RESULTS, machine
from bench.studies import RUN_LISTS, Run
from gandalf.data.load import bundled
from gandalf.lab.measure import measured_to
from gandalf.lab.parallel import Clock, results
from gandalf.lab.store import Line, append, read_lines, read_predictions

ENGINE = RESULTS / "engine"


def source_of(data: str, root: Path) -> str:
    """Return where a data set lies: in the root of all sets, or bundled."""
    return data if data in bundled() or not (root / data).exists() else str(root / data)


def measured(run: Run, root: Path, first_stages: Path | None = None, keep: Path | None = None) -> Line:
    """Train and score; keep the best labels in a folder if there is one."""
    return measured_to(run, source_of(run.data, root), keep, first_stages)


# ---- the command


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("study", help=f"{', '.join(RUN_LISTS)}, or a JSON file with a list of runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; they share cores and GPU")
    parser.add_argument(
        "--limit-seconds", type=float, default=float("inf"), help="the command ends by then, come what may"
    )
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT, help="folder that holds the data sets")
    parser.add_argument("--out", type=Path, default=ENGINE, help="folder that new lines are written to")
    parser.add_argument(
        "--first-stages", type=Path, help="folder of encoders that runs share where their first stage is one"
    )
    parser.add_argument("--predictions", action="store_true", help="keep the best labels, in OUT/predictions")
    parser.add_argument("--commit", help="of the code, where git cannot tell")
    parser.add_argument("--data", nargs="+", help="only runs on these data sets")
    parser.add_argument("--system", nargs="+", help="only runs of these systems")
    parser.add_argument("--seed", nargs="+", type=int, help="only runs with these seeds")
    parser.add_argument("--set", nargs="+", default=[], help="settings added to every run, as key=value")
    parser.add_argument("--list", action="store_true", help="name the runs that are left, and run none")
    return parser.parse_args()


def asked_for(chosen: argparse.Namespace) -> tuple[str, list[Run]]:
    """Return the name of the study and those of its runs that were asked for."""
    if chosen.study in RUN_LISTS:
        name, runs = chosen.study, RUN_LISTS[chosen.study]()
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
    lines = read_lines(*sorted(ENGINE.glob("*.jsonl")), out)
    keep = chosen.out if chosen.predictions else None
    done = {line["key"] for line in lines if keep is None or read_predictions(keep, line) is not None}
    left = [run for run in dict.fromkeys(runs) if run.key not in done]
    print(f"{name}: {len(left)} of {len(runs)} runs left", flush=True)
    if chosen.list:
        print(*left, sep="\n")
        return 0
    about = environment(chosen.commit)
    ended = failed = 0
    clock = Clock(chosen.limit_seconds)
    with suppress(KeyboardInterrupt):
        work = partial(measured, root=chosen.data_root, first_stages=chosen.first_stages, keep=keep)
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
    """Return the commit and the machine of the runs."""
    about = {**machine(commit), "torch": torch.__version__}
    if torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name()
    return {"commit": about.pop("commit"), "machine": about}


if __name__ == "__main__":
    sys.exit(main())
