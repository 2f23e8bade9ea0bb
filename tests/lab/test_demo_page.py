"""The demo's page and tables: whole, needing nothing from elsewhere, and nobody's markup."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console
from scipy.sparse import csr_array
from small_demo import HOSTILE, NAMES, small

import gandalf
from gandalf.data.dataset import Dataset, Splits
from gandalf.lab.comparison import (
    OURS,
    answers_tables,
    comparison_table,
    difference_table,
    figure_groups,
    ours_against_others,
)
from gandalf.lab.demo import demo, demo_recipe
from gandalf.lab.demo_page import demo_page
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import evaluate
from gandalf.recipe import Validation

VOID = {"meta", "line", "rect", "circle", "polyline", "br"}


class Page(HTMLParser):
    """Reads a page; every tag that opens must close, and attributes are collected."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(source):
    page = Page()
    page.feed(source)
    page.close()
    assert page.open == []
    return page


@pytest.fixture(scope="module")
def page(made_demo):
    return (made_demo[0] / "index.html").read_text("utf-8")


def test_the_page_is_whole(page, demo_results):
    found = parsed(page)
    shown = " ".join(found.text)
    assert found.tags.count("h1") == 1 and found.tags.count("svg") == 4 and found.tags.count("table") == 2
    for name in NAMES:
        assert f"{demo_results['variants'][name]['test']['P@1']:.1f}" in shown
    for asked in demo_results["queries"]["asked"]:
        assert asked["text"] in shown
    assert demo_results["command"] in shown and gandalf.__version__ in shown
    assert demo_results["diagnosis"]["verdict"] in shown


def test_held_out_points_are_told_apart_from_those_that_are_scored(page, demo_results):
    data, recipe = demo_results["data"], demo_results["recipe"]
    assert data["held_out"] == round(data["points"] * recipe["validation"]["share"])
    scored = demo_results["variants"]["D"]["held_out"]["points"]
    shown = " ".join(parsed(page).text)
    assert f"{data['held_out']:,} training points were held out by all; scored are the {scored:,} " in shown


def test_the_page_asks_for_nothing_from_elsewhere(page):
    found = parsed(page)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(found.tags)
    assert not {name for _, name, _ in found.attributes} & {"src", "href", "srcset", "action", "style"}
    assert "url(" not in page and "@import" not in page
    assert not re.search(r"https?://", page)


def test_the_page_speaks_to_those_who_do_not_see_it(page, demo_results):
    found = parsed(page)
    labels = [value for tag, name, value in found.attributes if (tag, name) == ("svg", "aria-label")]
    new = {name: demo_results["variants"][name]["test"]["new_text"]["P@1"] for name in NAMES}
    said = ", ".join(f"{name} {value:.1f}" for name, value in new.items())
    assert f"new text, 1,502 texts: {said}" in labels[0]
    assert ("html", "lang", "en") in found.attributes
    scopes = [value for tag, name, value in found.attributes if (tag, name) == ("th", "scope")]
    assert {"col", "row", "rowgroup"} == set(scopes)


def test_hostile_texts_are_shown_and_not_obeyed(hostile_demo):
    source = demo_page(hostile_demo, ["gandalf demo '<i>'", "$title"], "gandalf <0>")
    found = parsed(source)
    assert "script" not in found.tags and "b" not in found.tags
    shown = " ".join(found.text)
    assert HOSTILE in shown and "<b>set</b>" in shown and "gandalf demo '<i>'" in shown


def test_hostile_texts_in_a_terminal(hostile_demo):
    screen = Console(width=400, file=io.StringIO())
    for each in (
        comparison_table(hostile_demo),
        difference_table(hostile_demo),
        answers_tables(hostile_demo),
    ):
        screen.print(each)
    shown = screen.file.getvalue()
    assert HOSTILE in shown and "[red]label[/]" in shown


def test_one_table_for_screen_and_page(hostile_demo):
    shown = {section.title.split(" (")[0]: section for section in figure_groups(hostile_demo)}
    assert list(shown)[:1] == ["all test texts"] and list(shown)[-1] == "training"
    bins = shown["part of P@5, labels from head to tail"]
    for column, entry in enumerate(hostile_demo.entries):
        total = sum(float(row.cells[column]) for row in bins.rows)
        assert total == pytest.approx(entry.scores["P@5"], abs=0.3)
    for row in shown["all test texts"].rows:
        highest = max(map(float, row.cells))
        assert [float(cell) == highest for cell in row.cells] == list(row.best)


def test_verdicts_name_only_texts_that_there_are(hostile_demo):
    splits = small()
    test = replace(splits.test, texts=[f"text {row}" for row in range(len(splits.test))])
    ids = np.zeros((len(test), 1), dtype=np.int64)
    scores = evaluate((ids, np.ones((len(test), 1))), replace(splits, test=test))
    assert scores.label_text.points == 0
    compared = {name: compare(scores, scores, resamples=20) for name in ("D", "G")}
    entries = tuple(replace(entry, scores=scores) for entry in hostile_demo.entries)
    alone = replace(hostile_demo, entries=entries, differences=compared)
    assert [(each.other, each.texts) for each in ours_against_others(alone)] == [
        ("D", "new texts"),
        ("G", "new texts"),
    ]
    assert "known items" not in " ".join(section.title for section in figure_groups(alone))
    parsed(demo_page(alone, [], "gandalf"))


def test_too_few_points_to_hold_any_out(tmp_path):
    texts = ["gzip a file", "zip a folder", "show disks"]
    targets = csr_array(np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32))
    train = Dataset(targets, texts, ["archive", "disk"])
    test = Dataset(targets[:2], ["zip it", "disk"], ["archive", "disk"])
    recipe = replace(demo_recipe("astec", steps=2), device="cpu")
    recipe = replace(recipe, validation=Validation(share=0.05))
    train = replace(train, texts=["the same"] * 3)
    found = demo(Splits(train=train, test=test, name="tiny"), recipe, tmp_path)
    assert found.saved == OURS and found.entries[0].held is None and found.entries[0].history == []
    page = parsed(demo_page(found, ["gandalf demo"], "gandalf"))
    assert page.tags.count("svg") == 2
    assert len(found.questions.texts) == 1  # the other is a label's
