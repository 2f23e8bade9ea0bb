"""The tables of docs/lab/memory.md: means over seeds, shares of a gain, and what may be chance."""

from __future__ import annotations

import json

from bench.memory_table import gains, mean, read_runs, share_table, worth_table


def line(targets: str, memory: str, first: float, seed: int = 0, **more) -> dict:
    figures = {"P@1": first, "PSP@5": first - 10, "C@5": first / 2}
    new = {**figures, "P@1": first - 1, "points": 5}
    about = {"set": "man", "system": "astec", "targets": targets, "memory": memory, "seed": seed}
    return {**about, **figures, "new_text": new, **more}


def stored(path, lines):
    path.write_text("".join(json.dumps(each) + "\n" for each in lines), "utf-8")
    return read_runs(path)


def test_a_run_that_is_there_twice_counts_once_and_seeds_are_averaged(tmp_path):
    lines = [line("D", "none", first, seed) for first, seed in ((10, 0), (50, 0), (60, 1))]
    runs = stored(tmp_path / "lines.jsonl", lines)
    assert mean(runs["man", "astec", "D", "none"]) == {"P@1": 55, "PSP@5": 45, "C@5": 27.5}
    assert mean(runs["man", "astec", "D", "none"], "new_text")["P@1"] == 54
    assert "| 55.0 ; 45.0 ; 27.5 |" in worth_table(runs)
    assert "| 54.0 ; 45.0 ; 27.5 |" in worth_table(runs, "new_text")


def test_the_share_is_that_of_what_training_gains(tmp_path):
    lines = [line("D", "none", 50), line("D", "memory", 59), line("G", "none", 62)]
    found = share_table(stored(tmp_path / "lines.jsonl", lines))
    assert "| +12.0 ; +12.0 ; +6.0 | +9.0 ; +9.0 ; +4.5 | 75 % ; 75 % ; 75 % |" in found
    small = [line("D", "none", 50), line("D", "memory", 59), line("G", "none", 50.5)]
    assert "| – ; – ; – |" in share_table(stored(tmp_path / "small.jsonl", small))


def test_a_gain_stands_without_brackets_only_if_every_seed_shows_it():
    real, chance = {"P@1": [1.0, 0.5, 1.5]}, {"P@1": [0.4, -0.5, 1.3]}
    lines = [
        {"gain": {**real, "PSP@5": [-2.0, -3.0, -1.0]}},
        {"gain": {**chance, "PSP@5": [-1.0, -2.0, -0.1]}},
    ]
    assert gains(lines) == "(+0.7) ; -1.5"
    assert gains(None) == ""
