"""Train and score one run, and measure its time and memory."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Splits
from gandalf.lab.sets import data_hash, open_set, parts
from gandalf.lab.store import Line, write_predictions
from gandalf.lab.variants import Run, recipe_of
from gandalf.metrics.evaluate import evaluate
from gandalf.metrics.predictions import need_test_points
from gandalf.metrics.topk import drop_excluded_ids, keep_first_k
from gandalf.model import Part
from gandalf.predict.predictor import Predictor
from gandalf.runs.choose import choose
from gandalf.runs.folder import RunPlace
from gandalf.runs.session import run_training
from gandalf.runs.validation import TOP, Trained, test_predictions
from gandalf.train.machine_memory import peak_bytes, reset_peak

KEPT = tuple(f"{name}@{k}" for name in ("P", "PSP", "C") for k in (1, 3, 5))
QUERIES, WARM_UP = 50, 5  # single queries that are timed, and those before them that are not


def measure(
    run: Run, given: Splits, scored: Splits, first_stages: Path | None = None
) -> tuple[Line, npt.NDArray[np.int64]]:
    """Train and score; return the line of results and the best labels of every scored point."""
    started = time.perf_counter()
    reset_peak()
    asked, choice = recipe_of(run), None
    if asked.targets.targets == "auto":
        made = choose(given, asked)
        asked, choice = made.recipe, made.table
    trained = run_training(given, asked, RunPlace(first_stages=first_stages))
    ids, scores = test_predictions(trained.model, scored)
    exclude = need_test_points(scored).exclude
    figures = evaluate((keep_first_k(ids, exclude, TOP), scores), scored).as_dict()
    earlier = trained.taken_over or {}  # what another run has done for this one
    device = str(trained.model.config["recipe"]["device"])
    line = {
        "key": run.key,
        "run": asdict(run),
        "name": scored.name,
        "device": device,
        "figures": kept(figures),
        "history": history(trained),
        "steps": trained.steps,
        "seconds": round(trained.seconds, 2),  # of the training itself
        "latency_ms": latency(trained.model, scored),
        "wall": round(time.perf_counter() - started, 2),  # with label points and scoring
        "peak_memory": max(peak_bytes(device) or 0, earlier.get("peak_memory") or 0),  # bytes
        "recipe": trained.model.config["recipe"],  # every `auto` replaced by what it meant
        "targets": _plain(trained.details),
        **({} if choice is None else {"choice": _plain(choice)}),
    }
    return line, drop_excluded_ids(ids, exclude)


def measured_to(run: Run, source: str, folder: Path | None, first_stages: Path | None = None) -> Line:
    """Return the line of a run on the data at `source`; write its best labels into the folder, if any."""
    seed = run.seed if run.split == "validation" else 0
    given, scored, digest = open_parts(run.data, source, run.split, seed)
    line, ids = measure(run, given, scored, first_stages)
    line["data_hash"] = digest
    if folder is not None:
        write_predictions(folder, line, ids)
    return line


@lru_cache(maxsize=1)
def _opened(name: str, source: str) -> tuple[Splits, str]:
    splits = open_set(name, source)
    return splits, data_hash(splits)


@lru_cache(maxsize=1)
def open_parts(name: str, source: str, split: str, seed: int) -> tuple[Splits, Splits, str]:
    """Return the data that a run trains on, the data that it is scored on, and the hash of the whole."""
    splits, digest = _opened(name, source)
    return (*parts(splits, split, seed), digest)


def latency(model: Part, scored: Splits) -> float:
    """Return the median milliseconds of a single query."""
    texts, _ = need_test_points(scored).need_texts("timing")
    predictor, spent = Predictor(model), []
    for text in list(texts[: WARM_UP + QUERIES]):
        started = time.perf_counter()
        predictor.predict([text], min(5, model.num_labels))
        spent.append(time.perf_counter() - started)
    return round(1000 * float(np.median(spent[WARM_UP:] or spent)), 3)


def kept(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures that a line keeps: of all points, of known and of new texts."""

    def of(part: dict[str, Any] | None) -> dict[str, Any] | None:
        return part and {name: part[name] for name in ("points", *KEPT) if name in part}

    return {
        **(of(figures) or {}),
        "label_text": of(figures["label_text"]),
        "new_text": of(figures["new_text"]),
        "bins": figures["bins"],
    }


def history(trained: Trained) -> list[dict[str, Any]]:
    """Return the validations during the run."""
    names = ("step", "P@1", "PSP@5", "new_text", "label_text")
    return [{name: each.get(name) for name in names} for each in trained.history]


def _plain(details: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(json.dumps(details, default=str)))
