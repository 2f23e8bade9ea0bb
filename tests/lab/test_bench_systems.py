"""The table of all systems: which runs it wants, and which of them stand in which row."""

from __future__ import annotations

from dataclasses import replace

from bench_lines import line_of

from bench.result_tables import gains_table, is_former, systems_lines, systems_section, systems_table
from bench.studies import DOCS, RUN_LISTS, SEEDS, WEB, systems_study, variant, variant_name
from gandalf.systems import NETWORKS


def test_every_system_stands_there_thrice():
    runs = systems_study()
    assert {run.system for run in runs} == set(NETWORKS) and {run.split for run in runs} == {"test"}
    assert len({run.key for run in runs}) == len(runs) == 3 * len(NETWORKS) * (2 * len(SEEDS) + 1)
    assert {run.seed for run in runs if run.data == DOCS} == {0}
    of_renee = {variant_name(run) for run in runs if run.system == "renee"}
    assert of_renee == {"Z1", "G", "default"}  # its own rows have label points
    assert {variant_name(run) for run in runs if run.system == "decaf"} == {"D", "G", "default"}


def test_runs_of_the_main_study_are_not_wanted_again():
    main = {run.key for run in RUN_LISTS["main"]()}
    shared = [run for run in systems_study() if run.key in main]
    assert len(shared) == 2 * 3 * (2 * len(SEEDS) + 1)  # all of astec and inceptionxml


def test_rows_of_a_table():
    lines = [
        line_of(variant("D", "decaf", WEB), 50.0),
        line_of(variant("default", "decaf", WEB), 60.0),
        line_of(variant("Z1", "renee", WEB), 70.0),
        line_of(variant("Z1", "decaf", WEB), 99.0),  # no row of this table
    ]
    rows = [row.split(" | ")[:2] for row in systems_table(lines).splitlines()[2:]]
    assert rows == [["| decaf", "50.00"], ["| + default", "60.00"], ["| renee", "70.00"]]


def test_what_is_missing_is_said():
    run = systems_study()[0]
    found = "\n".join(systems_section([line_of(run, 50.0)]))
    assert f"**{len(systems_study()) - 1} of {len(systems_study())} runs are still to be made.**" in found
    assert "### Some-1K, all systems" in found
    assert list(systems_section([])) == []


def test_gains_are_told_against_a_systems_own_baseline_and_losses_in_bold():
    rows = {"Z1": (60.0, 60.2), "G": (58.0, 58.2), "D": (10.0, 10.2)}  # D is not Renee's own
    lines = [
        line_of(replace(variant(name, "renee", WEB), seed=seed), p1)
        for name, of_seeds in rows.items()
        for seed, p1 in enumerate(of_seeds)
    ]
    assert gains_table(lines).splitlines()[2:] == [
        "| Some-1K, renee |" + " **-2.00** ± 0.61 |" * 4 + "  |" * 4
    ]


def test_a_line_of_renee_on_docs_from_when_no_rate_followed_the_batch_stands_until_there_is_another():
    now = variant("Z1", "renee", DOCS)
    assert "head.rate=400" not in now.settings  # 100 at a batch of 256 is 400 at the 1,024 of a GPU
    former = line_of(replace(now, settings=(*now.settings, "head.rate=400")), 70.0)
    assert systems_lines([former]) == [former]
    new = line_of(now, 71.0)
    assert systems_lines([former, new]) == [new]
    elsewhere = variant("Z1", "renee", WEB)
    assert (
        systems_lines([line_of(replace(elsewhere, settings=(*elsewhere.settings, "head.rate=400")), 1.0)])
        == []
    )


def test_rows_of_former_parts_are_marked():
    """Recipes have named the share of a cluster since the parts of five systems changed."""
    old = {name: line_of(variant("D", name, WEB), 50.0) for name in ("decaf", "siamesexml")}
    for line in old.values():
        del line["recipe"]["siamese"]
    new = line_of(variant("default", "siamesexml", WEB), 60.0)
    assert [is_former(each) for each in (*old.values(), new)] == [False, True, False]
    rows = [row.split(" | ")[0] for row in systems_table([*old.values(), new]).splitlines()[2:]]
    assert rows == ["| decaf", "| siamesexml †", "| + default"]
    assert gains_table([old["siamesexml"], new]).splitlines()[2].startswith("| Some-1K, siamesexml † |")
