"""A made-up result of an experiment, as it is stored."""

from __future__ import annotations

from dataclasses import asdict

from bench.studies import Run

RUN = Run("man", "astec", "shrunk", settings=("training.steps=20",))


def line_of(run: Run, p1: float, **targets: object) -> dict[str, object]:
    """A made-up line: other figures follow from P@1."""
    figures = {f"{name}@{k}": p1 - k for name in ("P", "PSP", "C") for k in (1, 3, 5)} | {"P@1": p1}
    kind = {"targets": run.targets, "scale": 1.0, "label_weight": 1.0, "label_epochs": 1.0}
    return {
        "key": run.key,
        "run": asdict(run),
        "name": "Some-1K",
        "device": "cuda",
        "figures": {
            **figures,
            "points": 1000,
            "label_text": {"points": 400, "P@1": p1 + 10, "PSP@5": p1},
            "new_text": {"points": 600, "P@1": p1 - 10, "PSP@5": p1},
        },
        "steps": 1234,
        "seconds": 60.0 + run.seed,
        "wall": 70.0,
        "peak_memory": 5 * 2**30,
        "recipe": {
            "siamese": {"cluster_share": 0.32},  # known since parts changed: bench/result_tables.py
            "targets": kind | targets,
            "training": {"epochs": 10.0},
        },
        "commit": "1a2b3c4",
        "machine": {"cpu": "Some CPU", "gpu": "Some GPU", "cores": 16, "python": "3.12.1", "torch": "2.11.0"},
        "jobs": 6,
    }
