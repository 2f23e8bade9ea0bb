"""Verdicts on the paper's claims from made-up results whose answers are known."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from gandalf.lab.claims import CLAIMS, verdicts
from gandalf.lab.convergence import Lengths, plateau
from gandalf.lab.results import ResultPlace, Results
from gandalf.lab.store import StudyRun
from gandalf.lab.studies import StudyScope, entries
from gandalf.lab.study_tables import length_table
from gandalf.lab.variants import Run
from gandalf.metrics.bootstrap import Comparison, Difference

SEEDS = (0, 1, 2)
SETTLED = {"D x 1": 50.0, "D x 2": 50.2, "G x 1": 55.0, "G x 2": 55.3}


def line_of(run, value, new=None, **more):
    """Figures that are all the same value, with a spread of 0.2 between seeds."""
    value += 0.1 * (run.seed - 1)
    figures = {f"{name}@{k}": value for name in ("P", "PSP", "C") for k in (1, 3, 5)}
    other = figures if new is None else {name: new + 0.1 * (run.seed - 1) for name in figures}
    return {
        "key": run.key,
        "run": asdict(run),
        "name": "Some-1K",
        "figures": {**figures, "points": 10, "new_text": {"points": 5, **other}, "label_text": None},
        "steps": 10,
        "seconds": 1.0,
        "peak_memory": 1000,
        "latency_ms": 1.0,
        "device": "cpu",
        **more,
    }


def results_of(values, new=None, system="astec", facts=None, **more):
    """Results in which each row has this value; rows that are not named were not run."""
    asked = StudyScope("some", (system,), SEEDS, 100, 50)
    studies = ("main", "data", "graph", "delta", "subsample", "convergence", "density")
    plan = entries(studies, asked)
    lines = {}
    for entry in plan:
        if entry.row in values and entry.run.data == "some":
            here = None if new is None else new.get(entry.row)
            lines[entry.run.key] = line_of(entry.run, values[entry.row], here, **more.get(entry.row, {}))
    return Results(Path("none"), lines, tuple(plan), facts or {})


def said(results, part="all"):
    return {each.claim: each.says for each in verdicts(results) if each.part == part}


def test_every_claim_has_a_verdict_on_both_kinds_of_text():
    found = verdicts(results_of({"D": 50, "G": 55}))
    assert [each.claim for each in found if each.part == "all"] == list(CLAIMS)
    assert len(CLAIMS) == 15 and {each.part for each in found} == {"all", "new"}


def test_without_evidence_of_a_plateau_nothing_is_supported():
    values = {"D": 50, "G": 55, "Z1": 53, "Z": 51}
    found = said(results_of(values))
    assert found["C1"] == found["C2"] == found["C4"] == found["C10"] == "reduced"
    assert found["C5"] == "not tested"
    found = said(results_of({**values, **SETTLED, "G x 2": 57.0}))
    assert found["C2"] == "reduced"  # twice the steps still add two points to G
    found = said(results_of({**values, **SETTLED}))
    assert found["C2"] == found["C4"] == "holds" and found["C10"] == "holds"


def test_plateau_by_hand():
    place = ResultPlace("some", "astec", ())
    found = plateau(results_of({**SETTLED, "default x 1": 1.0}), place)
    assert found.gains == pytest.approx({"D": 0.2, "G": 0.3}) and found.reached
    assert "at a plateau" in str(found)
    assert not plateau(results_of({"D x 1": 50, "D x 2": 50}), place).reached
    assert str(plateau(results_of({"D": 1}), place)).startswith("reduced: no evidence")


def test_a_difference_within_noise_supports_nothing():
    found = said(results_of({"D": 50, "G": 50.05, "Z1": 50.0, **SETTLED}))
    assert found["C2"] == "fails" and found["C4"] == "fails"


def test_new_texts_have_a_verdict_of_their_own():
    values = {"D": 50, "G": 55, "Z1": 52, **SETTLED}
    results = results_of(values, {"D": 50, "G": 47, "Z1": 52})
    assert said(results)["C2"] == "holds" and said(results, "new")["C2"] == "fails"
    assert said(results)["C4"] == "holds" and said(results, "new")["C4"] == "fails"


def test_partly_is_some_but_not_all():
    shares = {
        f"{order} {share} %": 50.0 + share / 25 for order in ("random", "tail") for share in (25, 50, 75)
    }
    values = {"D": 50, "G": 54, **shares, **SETTLED}
    assert said(results_of(values))["C5"] == "fails"
    assert said(results_of({**values, "tail 25 %": 53.0}))["C5"] == "holds partly"
    better = {row: value + 2 * row.startswith("tail") for row, value in values.items()}
    assert said(results_of(better))["C5"] == "holds"


def test_at_least_as_good_and_linear():
    shares = {f"random {share} %": 50.0 + share / 20 for share in (25, 50, 75)}
    values = {"D": 50, "G": 55, "delta 0": 55, "delta 0.2": 54, "random walk": 57, **shares, **SETTLED}
    found = said(results_of(values))
    assert found["C7"] == "fails" and found["C12"] == "holds"
    bent = {**values, "random 25 %": 55.0, "random 50 %": 55.0, "random 75 %": 55.0}
    assert said(results_of(bent))["C12"] == "fails"


@pytest.mark.parametrize(
    ("zero", "fifth", "says"),
    [(54, 54, "holds"), (55, 54, "holds partly"), (55, 55, "fails"), (56, 56, "fails")],
)
def test_a_threshold_is_best_only_where_it_is_better_than_each_other(zero, fifth, says):
    """Level with another is not the best, and the worst of all least of all."""
    values = {"D": 50, "G": 55, "delta 0": zero, "delta 0.2": fifth, **SETTLED}
    assert said(results_of(values))["C6"] == says


def test_as_good_rules_out_a_loss_of_a_point():
    from gandalf.lab.evidence import as_good
    from gandalf.lab.results import Contrast

    assert as_good(Contrast(-0.2, -0.9, 0.5, "seeds"), "").yes is True
    unsure = as_good(Contrast(-0.2, -1.1, 0.7, "seeds"), "")
    assert (unsure.yes, unsure.no) == (False, False)  # too few points to say that nothing is lost
    assert as_good(Contrast(-0.2, -0.3, -0.1, "seeds"), "").no
    assert as_good(Contrast(0.5, float("nan"), float("nan"), ""), "").yes is None


def test_a_row_that_falls_is_at_no_plateau():
    place = ResultPlace("some", "astec", ())
    falling = results_of({**SETTLED, "D x 2": 48.1})
    assert not plateau(falling, place).reached and str(plateau(falling, place)).startswith("reduced")
    assert said(results_of({"D": 50, "G": 55, **SETTLED, "D x 2": 48.1}))["C2"] == "reduced"


def test_one_seed_without_predictions_tells_nothing():
    """Simply more is not more than chance: a claim with such a figure does not hold."""
    whole = results_of({"D": 50, "G": 55, **SETTLED})
    once = {key: line for key, line in whole.lines.items() if not (line["run"]["seed"] and _on_test(line))}
    (found,) = (
        each for each in verdicts(replace(whole, lines=once)) if (each.claim, each.part) == ("C2", "all")
    )
    assert found.says == "not tested"
    assert found.count == "0 of 6 figures say so, 6 cannot be told from chance by one seed"
    assert found.basis.mark == "no interval"


def _on_test(line):
    return line["run"]["split"] == "test"


def test_a_verdict_says_what_it_rests_on():
    other = results_of({"D": 54, "G": 57}, system="decaf")
    one = results_of({"D": 50, "G": 55, **SETTLED})
    both = Results(Path("none"), one.lines | other.lines, one.plan + other.plan, {})
    (found,) = (each for each in verdicts(both) if (each.claim, each.part) == ("C2", "all"))
    assert found.basis.mark == "seeds alone"
    assert str(found.basis) == (
        "3 seeds; 10 test points; interval over seeds alone; at a plateau: astec; not at a plateau: decaf"
    )


def test_an_interval_over_points_and_seeds_holds_both():
    """Predictions of one seed tell what points do; the seeds' spread is added to that."""
    results = results_of({"D": 50, "G": 55})
    rows = results.rows(ResultPlace("some", "astec", ()))
    by_seeds = results.contrast(rows["G"], rows["D"], "P@1")
    assert by_seeds.by == "seeds" and by_seeds.seeds == 3
    drawn = Comparison({"P@1": Difference(5.2, 4.2, 6.7, 0.01)}, None, None)
    key = tuple((next(line["key"] for line in rows[row] if line["run"]["seed"] == 0),) for row in ("G", "D"))
    results._comparisons[key] = drawn
    for (one,) in key:
        results._scores[one,] = object()  # kept for this seed alone
    found = results.contrast(rows["G"], rows["D"], "P@1")
    half = by_seeds.high - by_seeds.difference
    assert found.by == "points and seeds" and found.difference == pytest.approx(5.0)
    assert found.low == pytest.approx(5.0 - np.hypot(1.0, half))
    assert found.high == pytest.approx(5.0 + np.hypot(1.5, half))


def test_each_row_at_its_own_best_length():
    values = {"D x 0.5": 51.0, "D x 1": 50.0, "D x 2": 48.0, "G x 0.5": 50.0, "G x 1": 55.0, "G x 2": 57.0}
    place = ResultPlace("some", "astec", ())
    found = Lengths.of(results_of(values), place)
    assert (found.best("D", "G"), found.best("G", "D")) == (0.5, 2.0)
    assert found.equal("G", "D").difference == pytest.approx(5.0)
    assert found.own("G", "D").difference == pytest.approx(6.0)
    few = Lengths.of(results_of({**values, "D x 0.5": 60.0} | {"G x 0.5": 40.0}), place)
    assert few.own("G", "D").difference == pytest.approx(-3.0)
    alone = {row: value for row, value in values.items() if row != "G x 0.5"}
    assert Lengths.of(results_of(alone), place).best("D", "G") == 1.0  # only lengths that both have
    assert found.own("default", "D") is None  # not run
    table = length_table(results_of(values), [place])
    assert [cell.text for cell in table.rows[0][1:3]] == ["G − D", "2, 0.5"]
    assert {cell.text for cell in table.rows[1][2:]} == {"not measured"}


def test_cost_and_graph_need_no_plateau():
    same = {"peak_memory": 1000, "latency_ms": 1.0}
    assert said(results_of({"D": 50, "G": 55}, D=same, G=same))["C9"] == "holds"
    more = {"peak_memory": 1200, "latency_ms": 1.0}
    assert said(results_of({"D": 50, "G": 55}, D=same, G=more))["C9"] == "holds partly"
    unknown = {"latency_ms": None}
    assert said(results_of({"D": 50, "G": 55}, D=unknown, G=unknown))["C9"] == "holds partly"
    elsewhere = {**more, "device": "cuda"}  # of which nothing can be said beside a CPU
    assert said(results_of({"D": 50, "G": 55}, D=same, G=elsewhere))["C9"] == "not tested"
    facts = {"some": {"graph_seconds": {"ratio": 100.0}, "labels": 1_305_265}}
    assert said(results_of({"D": 50}, facts=facts))["C15"] == "holds"
    facts["some"]["graph_seconds"]["ratio"] = 121.0
    assert said(results_of({"D": 50}, facts=facts))["C15"] == "fails"
    facts["some"]["labels"] = 1000
    assert said(results_of({"D": 50}, facts=facts))["C15"] == "not tested"


def test_saturation():
    assert said(results_of({**SETTLED, "G x 2": 57.0}))["C13"] == "holds"
    assert said(results_of(SETTLED))["C13"] == "holds"
    assert said(results_of({**SETTLED, "G x 2": 55.0}))["C13"] == "fails"
    assert said(results_of({**SETTLED, "D x 2": 53.0}))["C13"] == "reduced"


def test_systems_against_each_other():
    first = results_of({"D": 50, "G": 55, **SETTLED})
    second = results_of({"D": 54, **SETTLED}, system="siamesexml")
    both = Results(Path("none"), first.lines | second.lines, first.plan + second.plan, {})
    assert said(both)["C11"] == "holds"
    third = results_of({"D": 56, **SETTLED}, system="eclare")
    every = Results(Path("none"), both.lines | third.lines, both.plan + third.plan, {})
    assert said(every)["C8"] == "fails"


def test_gains_against_density():
    facts, lines = {}, {}
    plan = entries(("density", "convergence"), StudyScope("some", ("astec",), (0,), 100, 50))
    gains = {"some": 2.0, "some?points=0.5": 4.0, "some?points=0.25": 8.0}
    for density, data in zip((8.0, 4.0, 2.0), gains, strict=True):
        facts[data] = {"points_per_label": density}
    for entry in plan:
        if entry.study == "convergence" and entry.row in SETTLED:
            lines[entry.run.key] = line_of(entry.run, SETTLED[entry.row])
        if entry.study == "density" and entry.run.data in gains:
            lines[entry.run.key] = line_of(entry.run, 50 + gains[entry.run.data] * (entry.row == "G"))
    assert said(Results(Path("none"), lines, tuple(plan), facts))["C14"] == "holds"
    facts["some?points=0.25"]["points_per_label"], facts["some"]["points_per_label"] = 8.0, 2.0
    assert said(Results(Path("none"), lines, tuple(plan), facts))["C14"] == "fails"


def test_lines_without_a_plan_are_rows_of_the_main_study():
    """What the benches stored can be reported as it is; settings that make another row are not mistaken."""
    from gandalf.lab.results import _guessed

    run = Run("man", "astec", "ratio", settings=("targets.label_epochs=1", "text.max_length=16"))
    others = [replace(run, settings=(*run.settings, "targets.scale=0.3")), replace(run, split="validation")]
    found = list(_guessed(line_of(each, 1.0) for each in [run, *others]))
    assert found == [StudyRun("main", "G", run, ("text.max_length=16",))]
