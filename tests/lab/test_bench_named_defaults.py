"""When the default of a system is ahead of its rivals, level or behind, by the noise of seeds."""

from __future__ import annotations

import json

import pytest

from bench.named_defaults import compared, count_table, loss_table, read_rows
from gandalf.lab.variants import VARIANTS, of_variant

SETTINGS = ("training.steps=5",)


def line(variant: str, seed: int, first: float, settings=SETTINGS) -> dict:
    run = of_variant(VARIANTS[variant], "astec", "man", *settings)
    figures = {"P@1": first, "PSP@5": 50.0, "C@5": 40.0 + seed}
    stored = {"data": run.data, "system": run.system, "targets": run.targets, "keep": run.keep}
    of = {**stored, "settings": list(run.settings), "seed": seed, "split": "test"}
    both = {**figures, "label_text": None, "new_text": None}
    return {
        "key": f"{variant} {seed} {settings}",
        "name": "man",
        "run": of,
        "figures": both,
        "steps": 5,
        "recipe": {},
    }


def rows_of(folder, lines):
    (folder / "main.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines), "utf-8")
    (folder / "systems.jsonl").touch()
    return read_rows(folder)


def test_a_difference_counts_if_it_is_larger_than_the_noise_of_seeds(tmp_path):
    lines = [line("default", seed, 60 + seed / 10) for seed in range(3)]
    lines += [line("D", seed, 61 + seed / 10) for seed in range(3)]
    lines += [line("G", seed, 60.05 + seed / 10) for seed in range(3)]
    rows = rows_of(tmp_path, lines)
    every = list(compared(rows))
    found = {(each.rival, each.figure): each for each in every}
    # A spread of 0.1 in each of three rows, with 6 degrees of freedom: the 97.5 % point is 2.447.
    noise = (found["D", "P@1 all"].high - found["D", "P@1 all"].low) / 2
    assert noise == pytest.approx(2.447 * 0.1 * (2 / 3) ** 0.5, abs=1e-3)
    assert found["D", "P@1 all"].verdict == "behind" and found["G", "P@1 all"].verdict == "level"
    assert found["D", "C@5 all"].verdict == "level" and ("D", "P@1 new texts") not in found
    assert "| `astec` | 0 / 5 / 1 |" in count_table(every)
    assert "| `man` | `astec` | D P@1 all -1.0 |" in loss_table(every)


def test_runs_that_differ_in_more_than_their_seed_make_no_mean(tmp_path):
    lines = [line("default", 0, 60), line("default", 0, 61, ("training.steps=9",))]
    with pytest.raises(ValueError, match="several settings"):
        rows_of(tmp_path, lines)
