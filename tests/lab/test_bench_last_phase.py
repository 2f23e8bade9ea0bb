"""What a weight of the last phase moves: differences to no weight, run by run."""

from __future__ import annotations

from bench.last_phase import moves


def line(name: str, weight: str, first: float) -> dict:
    figures = {"P@1": first, "PSP@5": 10.0, "C@5": first / 2}
    return {"set": name, "system": "astec", "seed": 0, "variant": weight, "figures": figures}


def test_moves_are_means_over_runs_that_have_both():
    lines = [line("a", "default, 0", 50), line("a", "default, 0.3", 53)]
    lines += [line("b", "default, 0", 50), line("b", "default, 0.3", 49), line("c", "default, 0.3", 80)]
    row = "| 0.3 | 2 | +1.0 (1 / 1) | +0.0 (0 / 0) | +0.5 (1 / 1) |"
    assert moves(lines).splitlines()[2:] == [row]
