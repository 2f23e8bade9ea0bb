"""The short pages of results: their first sentences are counted, and what they point to is there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from bench_lines import line_of

from bench.report_page import answer as answer_of_claims
from bench.short_page import answer, reached_table
from bench.studies import DOCS, WEB, variant
from gandalf.lab.claims import Verdict
from gandalf.lab.evidence import Basis

PAGES = Path(__file__).resolve().parents[2] / "docs" / "lab"


def test_the_answer_counts_pairs_seeds_plateaus_and_losses_of_coverage():
    lines = [
        line_of(replace(variant(row, system, WEB), seed=seed), p1 + 0.1 * seed)
        for system, base, gain in (("decaf", "D", 5.0), ("renee", "Z1", -5.0))
        for row, p1 in ((base, 50.0), ("default", 50.0 + gain), ("G", 49.0))
        for seed in (0, 1)
    ]
    other = [line_of(variant(row, "astec", DOCS), p1) for row, p1 in (("D", 50.0), ("default", 51.0))]
    lines += [{**line, "name": "Other-1K"} for line in other]
    said = answer(lines, {("Some-1K", "decaf"): "at a plateau: made up"})
    assert "mean P@1 of 2 of 3 pairs" in said and "(-5.0 to +5.0 points)" in said
    assert "the paper's raise P@1 of 0." in said
    assert "in 1 of the 2 pairs that have several; the other 1 have one seed, and 2 of the 3 are" in said
    assert "Coverage falls with the default for `renee`: C@1 by 5.0 to 5.0 in 1 pairs." in said


def test_what_systems_reach_is_told_with_their_own_baselines():
    """PSP@5 of made-up lines is 5 below P@1; the best mean of a set is bold."""
    lines = [
        line_of(variant(row, system, WEB), p1)
        for system, row, p1 in (("decaf", "D", 50.0), ("decaf", "default", 61.0), ("renee", "Z1", 60.0))
    ]
    assert reached_table(lines).splitlines() == [
        "|  | Some-1K | Some-1K, + default |",
        "| --- | ---: | ---: |",
        "| `decaf` | 50.0, 45.0 | **61.0**, **56.0** |",
        "| `renee` (Z1) | 60.0, 55.0 |  |",
    ]


def test_the_answer_on_claims_counts_verdicts_and_what_they_rest_on():
    def made(says, part, kind):
        basis = Basis((3,), (10,), {kind: 1}, ("astec",), (), True)
        return Verdict("C1", "", "some", part, says, (), basis)

    found = [
        made("holds", "all", "points and seeds"),
        made("fails", "all", "seeds"),
        made("fails", "new", "seeds"),
        made("reduced", "all", "seeds"),
    ]
    said = answer_of_claims(found)
    assert '1 "holds", 0 "holds partly" and 1 "fails" on all test texts' in said
    assert '0 "holds", 0 "holds partly" and 1 "fails" on texts that are no label' in said
    assert "Of these 3 verdicts 1 rest on intervals over test points and seeds throughout, 2 at least" in said


@pytest.mark.parametrize("page", ["results.md", "report.md", "../../bench/results/results.md"])
def test_pages_point_to_files_that_are_there(page):
    path = PAGES / page
    found = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text("utf-8"))
    assert found and all((path.parent / each).resolve().exists() for each in found)
