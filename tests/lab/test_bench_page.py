"""The page of the experiments: figures over seeds, what is noise, and tables of made-up results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench_lines import RUN, line_of

from bench.result_tables import trained_section
from bench.results_page import measured_on, page
from bench.studies import VARIANTS, Run
from bench.tables import WHO_GAINS, Sample, best_rows, figure, noise, pooled, setting_table


def test_noise_is_the_interval_of_a_two_sample_t_test():
    one, other = Sample((50.0, 52.0, 54.0)), Sample((40.0, 41.0, 42.0))
    assert pooled([one, other, Sample((7.0,))]) == (pytest.approx(np.sqrt(2.5)), 4)
    # 2.776 is Student's 97.5 % point with 4 degrees of freedom.
    assert noise(one, other, pooled([one, other])) == pytest.approx(2.776 * np.sqrt(2.5 * 2 / 3), abs=1e-3)
    assert np.isnan(noise(Sample((1.0,)), Sample((2.0,)), pooled([Sample((1.0,))])))
    assert one.error == pytest.approx(2 / np.sqrt(3))


def test_the_best_rows_are_those_that_none_beats_by_more_than_noise():
    low, near, high = Sample((1.0, 1.2)), Sample((4.9, 5.1)), Sample((5.0, 5.2))
    assert best_rows({"low": low, "high": high}) == {"high"}
    assert best_rows({"low": low, "near": near, "high": high}) == {"near", "high"}
    assert best_rows({"near": near, "high": high}) == set()
    assert best_rows({"high": high, "absent": Sample(())}) == set()
    assert best_rows({"one": Sample((1.0,)), "other": Sample((9.0,))}) == set()  # noise is not known


def made_up_study():
    base = Run("some", "astec", settings=("batch=64",))
    runs = {
        name: [
            replace(base, targets=one.targets, keep=one.keep, settings=(*one.settings, "batch=64"), seed=seed)
            for seed in (0, 1)
        ]
        for name, one in VARIANTS.items()
        if name in ("D", "Z1", "G")
    }
    p1 = {"D": (40.0, 40.4), "Z1": (45.0, 45.4), "G": (48.0, 48.4)}
    lines = [line_of(run, value) for name in runs for run, value in zip(runs[name], p1[name], strict=True)]
    return [run for of in runs.values() for run in of], lines


MACHINE = "- Some GPU, Some CPU with 16 cores, Python 3.12.1, torch 2.11.0: 6 runs, 6 at once, commit 1a2b3c4"


def test_the_page_names_machines_and_commits():
    wanted, lines = made_up_study()
    assert MACHINE in page(lines, [], wanted).splitlines()


def test_the_page_tells_who_is_at_a_plateau():
    _, lines = made_up_study()
    text = trained_section(lines, {("Some-1K", "astec"): "at a plateau: made up"})
    assert "\n| Some-1K, astec | – | 10 | 1,234 | at a plateau: made up |\n" in text
    assert "| 1,234 | reduced: not run |" in trained_section(lines, {})


def test_the_page_shows_runs_of_the_study_alone():
    wanted, lines = made_up_study()
    old = line_of(replace(wanted[0], settings=("batch=32",)), 99.0)
    assert page([old, *lines], [], wanted) == page(lines, [], wanted)


def test_chosen_settings_stand_against_the_best_variant_even_where_a_variant_was_chosen():
    wanted, lines = made_up_study()
    first = line_of(replace(wanted[4], settings=("scale=0.3",)), 10.0, scale=0.3)
    chosen = [first, line_of(wanted[4], 50.0), line_of(wanted[5], 51.0, scale=0.5)]
    text = page(lines, chosen, wanted)
    assert "\n| Some-1K, astec | G 48.20 | +2.30 ± 1.19 | G 43.20 | +2.30 ± 1.19 | G 38.20 |" in text
    worse = page(lines, [line_of(wanted[4], 40.0), line_of(wanted[5], 41.0)], wanted)
    assert "| G 48.20 | **-7.70** ± 1.19 |" in worse  # more than noise: said in bold


def test_a_table_of_settings_has_standard_errors_and_mixes_no_two_settings():
    base = Run("some", "astec", "shrunk", settings=("scale=0.5",), split="validation")
    lines = [line_of(replace(base, seed=seed), 40.0 + seed, scale=0.5) for seed in (0, 2)]
    lines.append(line_of(replace(base, settings=()), 38.0))
    lines.append(line_of(replace(base, settings=("epochs=20",)), 39.0))
    lines.append(line_of(replace(base, targets="none"), 30.0))
    columns = {"new": WHO_GAINS["P@1 new text"], "PSP@5": figure("PSP@5", "label_text")}
    assert setting_table(lines, ("targets", "scale", "training.epochs"), columns).splitlines() == [
        "| targets | scale | epochs | new | PSP@5 | seeds |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| shrunk | 0.5 | 10 | 31.00 ± 1.00 | 41.00 ± 1.00 | 2 |",
        "| shrunk | 1 | 10 | 28.00 | 38.00 | 1 |",
        "| shrunk | 1 | 10 | 29.00 | 39.00 | 1 |",
        "| none |  | 10 | 20.00 | 30.00 | 1 |",
    ]


def test_runs_on_a_cpu_name_no_gpu():
    line = line_of(RUN, 50.0) | {"device": "cpu"}
    line["machine"] = {name: value for name, value in line["machine"].items() if name != "gpu"}
    assert measured_on([line]).startswith("- Some CPU with 16 cores, Python 3.12.1")
