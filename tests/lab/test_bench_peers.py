"""The benchmark of other people's trainers: means of runs, and the tables made of what was kept."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from bench import peers_table
from bench.machine import replaced
from bench.peers_cpu import means, seeded
from bench.peers_table import (
    apart,
    best,
    by_points,
    by_soft,
    costs,
    held_out,
    lines_of,
    of_systems,
    rows_of,
    section,
)
from bench.studies import MAN, variant
from gandalf.lab.peers import OURS

FIGURES = {"P@1": 60.0, "PSP@5": 50.0, "C@5": 40.0, "P@1, new text": None}


def row(trainer, points, soft="-", **others):
    return {"trainer": trainer, "points": points, "soft": soft, **FIGURES, **others}


def line(name, system, p1, device="cuda", seed=0):
    figures = {"P@1": p1, "PSP@5": 2.0, "C@5": 3.0, "new_text": {"P@1": 4.0}}
    run = asdict(variant(name, system, MAN)) | {"seed": seed}
    return {"run": run, "key": "", "name": "LF-ManSeeAlso-9K", "device": device, "figures": figures}


def test_means_and_how_far_runs_lie_apart_where_there_are_figures():
    found = [{"P@1": 1.0, "new": None}, {"P@1": 4.0, "new": None}, {"P@1": 2.5, "new": None}]
    assert means(found) == ({"P@1": 2.5, "new": None}, {"P@1": 3.0, "new": None})


def test_a_seed_goes_to_ours_as_a_setting():
    assert seeded(OURS["astec"], 2).arguments == ("astec", "seed=2")


def test_a_trainers_line_has_its_usual_way_for_soft_targets_in_the_column_of_its_points():
    rows = [
        row("omikuji", "D"),
        row("omikuji", "D + calibrated", "any", **{"P@1": 70.0}),
        row("omikuji", "D + calibrated", "sample", **{"P@1": 99.0}),
        row("astec", "its own", runs=3, apart=FIGURES),
    ]
    cells = "50.0 / 40.0 / -"
    assert by_points(rows)[2:] == [
        f"| omikuji | 60.0 / {cells} | | | 70.0 / {cells} |",
        f"| **`astec`** (CPU, 3 seeds) | | | | 60.0 / {cells} |",
    ]


def test_lines_of_studies_stand_in_the_columns_of_their_label_points_as_means_of_seeds():
    lines = [
        line("D", "astec", 10.0, "cpu"),
        line("default", "astec", 20.0, "cpu"),
        line("default", "astec", 22.0, "cpu", seed=1),
        line("calibrated", "astec", 99.0, "cpu"),
        line("Z1", "renee", 30.0),
        line("default", "ngame", 99.0),
    ]
    others = "2.0 / 3.0 / 4.0"
    assert of_systems(lines) == [
        f"| **`astec`**, all points (CPU, 2 seeds) | 10.0 / {others} | | | 21.0 / {others} |",
        f"| **`renee`**, all points (GPU, 1 seed) | | 30.0 / {others} | | |",
    ]


def test_held_out_lines_are_those_of_three_cuts_and_of_nothing_but_the_recipe():
    rows = [line.strip("| ").split(" | ") for line in held_out("LF-ManSeeAlso-9K")[2:]]
    own = {name: cells for name, cells in rows if name.startswith("`")}
    assert [name.rpartition("(")[2] for name in own] == ["3 seeds)"] * 3
    # By hand, from who_gains.jsonl: the seeds have 66.7, 66.9 and 66.7.
    assert own["`astec` (3 seeds)"].startswith("66.7 / ")


def test_the_stored_studies_have_lines_for_every_set():
    for name in peers_table.SETS:
        assert {each["run"]["system"] for each in lines_of(name)} >= set(peers_table.STORED)


def test_the_best_of_the_others_is_taken_figure_by_figure():
    rows = [
        row("omikuji", "D", **{"P@1": 70.0, "C@5": 1.0}),
        row("pecos", "D + calibrated", "weights"),
        row("pecos", "D + calibrated", "any", **{"P@1": 99.0}),  # not as it is usually given to it
        row("astec", "its own", **{"P@1": 99.0}),
    ]
    assert best(rows) == "70.0 / 50.0 / 40.0 / -"


def test_ways_for_soft_targets_are_columns_and_only_those_that_were_run():
    rows = [row("pecos", "D + calibrated", "weights"), row("omikuji", "D + calibrated", "any")]
    rows.append(row("astec", "its own"))
    assert by_soft(rows) == [
        "| | any | weights |",
        "|---|---|---|",
        "| omikuji | 60.0 / 50.0 / 40.0 / - | |",
        "| pecos | | 60.0 / 50.0 / 40.0 / - |",
        "| **`astec`** | | 60.0 / 50.0 / 40.0 / - |",
    ]


def test_costs_are_those_of_runs_that_shared_the_machine_with_nobody():
    cost = {"train_seconds": 2.6, "predict_ms": 0.5, "peak_mb": 1234, "model_mb": 9.9}
    rows = [
        row("pecos", "D", machine_shared=False, **cost),
        row("pecos", "D + calibrated", "weights", machine_shared=False, **cost),
        row("omikuji", "D + calibrated", "any", machine_shared=True, **cost),
        row("astec", "its own", machine_shared=False, **cost),
    ]
    numbers = "2.6 | 0.50 | 1,234 | 10"
    assert costs(rows)[2:] == [f"| pecos | {numbers} |", f"| **`astec`** | {numbers} |"]


def test_the_widest_gap_between_runs_is_told_for_each_trainer():
    gaps = [{**FIGURES, "P@1": 0.25}, {**FIGURES, "P@1": 1.25}]
    rows = [row("omikuji", "D", runs=3, apart=gap) for gap in gaps]
    (told,) = apart([*rows, row("pecos", "D")])[1:]
    assert told == "Means of 3 runs of `omikuji`, which lie apart by at most 1.2 / 50.0 / 40.0 / 0.0."
    assert apart([row("pecos", "D")]) == []


def test_only_what_stands_between_the_marks_is_made_anew():
    text = "a\n<!-- T -->\nold\n<!-- end T -->\nb"
    assert replaced(text, "T", "new") == "a\n<!-- T -->\n\nnew\n\n<!-- end T -->\nb"
    with pytest.raises(ValueError, match="T"):
        replaced("no marks", "T", "new")


def test_a_set_without_results_has_no_table(tmp_path, monkeypatch):
    monkeypatch.setattr(peers_table, "RESULTS", tmp_path)
    kept = {"results": {"rows": [row("omikuji", "D")]}}
    (tmp_path / "peers_LF-WebSeeAlsoTitles-6K.json").write_text(json.dumps(kept), "utf-8")
    assert rows_of("peers_LF-ManSeeAlso-9K") == []
    made = section(peers_table.point_tables)
    assert made.startswith("LF-WebSeeAlsoTitles-6K:\n\n| | D |") and "Man" not in made
