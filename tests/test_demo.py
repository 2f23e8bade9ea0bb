"""`gandalf demo`: equal steps, figures that can be checked, a page that needs nothing else, nothing lost."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console
from scipy.sparse import csr_array
from typer.testing import CliRunner

import gandalf
from gandalf.cli.main import app
from gandalf.data.dataset import Dataset, Splits
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import evaluate
from gandalf.recipe import Validation
from gandalf.report import svg
from gandalf.report.comparison import answers_tables, comparison_table, sections, verdict_table, verdicts
from gandalf.report.demo_page import demo_page
from gandalf.runs.demo import best, demo, demo_recipe, variants
from gandalf.runs.side_by_side import OURS

NAMES = ["D", "Z1", "G", "default"]
HOSTILE = '<script src="https://evil.example/x.js">alert(1)</script> & "quoted" [bold]'
VOID = {"meta", "line", "rect", "circle", "polyline", "br"}


def run(*arguments):
    return CliRunner().invoke(app, ["demo", *map(str, arguments)])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(*arguments):
    """The sentence that the command ends with."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("error: "), result.stderr
    return result.stderr.removeprefix("error: ").rstrip()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The demo of the bundled set with a few updates: its folder and what was printed."""
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, done(out, "--steps", 5)


@pytest.fixture(scope="module")
def results(made):
    return json.loads((made[0] / "results.json").read_text("utf-8"))


def small(points=240, labels=60, name="made-up"):
    splits = gandalf.synthetic(points, labels, seed=3).splits
    return replace(splits, name=name)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A demo of texts that try to be markup."""
    splits = small(name="<b>set</b>")
    parts = {}
    for name in ("train", "test"):
        part = getattr(splits, name)
        parts[name] = replace(
            part,
            texts=[f"{text} {HOSTILE}" for text in part.texts],
            label_texts=[f"[red]label[/] {text} {HOSTILE}" for text in part.label_texts],
        )
    folder = tmp_path_factory.mktemp("hostile")
    recipe = replace(demo_recipe("astec", steps=3), device="cpu")
    return demo(replace(splits, **parts), recipe, folder)


# ---- what is trained


def test_all_variants_take_equal_steps(results):
    trained = {name: each["training"] for name, each in results["variants"].items()}
    assert list(trained) == NAMES
    assert {each["steps"] for each in trained.values()} == {5}
    assert len({each["points"] for each in trained.values()}) == 1
    assert [each["label_points"] for each in trained.values()] == [0, 8808, 8808, 8808]


def test_steps_are_equal_where_epochs_are_given(tmp_path):
    recipe = demo_recipe("astec")
    short = replace(recipe, training=replace(recipe.training, epochs=2.0, batch=64), device="cpu")
    found = demo(small(), short, tmp_path)
    per_epoch = -(-(found.entries[0].training["points"] + found.labels) // 64)
    assert [entry.steps for entry in found.entries] == [2 * per_epoch] * 4
    assert [each["step"] for each in found.entries[0].history] == [per_epoch, 2 * per_epoch]


def test_ours_is_the_recipe_as_it_is():
    recipe = demo_recipe("inceptionxml", seed=3)
    of = {each.name: each for each in variants(recipe)}
    assert list(of) == NAMES and of[OURS].settings == ()
    assert "targets.targets=ratio" in of["G"].settings and "targets.label_epochs=1" in of["G"].settings
    assert recipe.system == "inceptionxml" and recipe.seed == 3
    assert recipe.targets == gandalf.recipe("inceptionxml").targets


# ---- its figures


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_those_of_the_predictions_left(made, results, name):
    splits = gandalf.load("man")
    scores = evaluate(made[0] / "predictions" / f"{name}.npz", splits)
    assert results["variants"][name]["test"] == json.loads(json.dumps(scores.as_dict()))


def test_differences_are_those_of_the_predictions_left(made, results):
    splits = gandalf.load("man")
    ours, paper = (evaluate(made[0] / "predictions" / f"{name}.npz", splits) for name in (OURS, "G"))
    found = results["differences"]["default - G"]
    for part, one, other in (
        (found["new_text"], ours.new_text, paper.new_text),
        (found["label_text"], ours.label_text, paper.label_text),
    ):
        assert part["P@1"]["difference"] == pytest.approx(one.values["P@1"] - other.values["P@1"])
    assert set(results["differences"]) == {"default - G", "default - D"}


def test_the_saved_model_is_one_of_those_compared(made, results):
    saved = results["saved"]["variant"]
    model = gandalf.load_model(made[0] / "model")
    assert model.calibration is not None
    metrics = json.loads((made[0] / "model" / "metrics.json").read_text("utf-8"))
    assert metrics["P@1"] == results["variants"][saved]["test"]["P@1"]
    asked = results["queries"]["asked"][0]
    (_, probability), *_ = gandalf.Predictor(model).named(asked["text"], 3)
    assert asked["answers"][saved][0]["probability"] == pytest.approx(probability, rel=1e-4)


def scores_with(new, known, seed=0):
    """Figures over 400 points, half of them with a label's text, of which so many are answered rightly."""
    rng = np.random.default_rng(seed)
    truth = csr_array(np.eye(2, dtype=np.float32)[np.zeros(400, dtype=int)])
    texts = [f"text {row}" if row % 2 else "a label" for row in range(400)]
    test = Dataset(truth, texts, ["a label", "another"])
    right = np.where(np.arange(400) % 2, rng.random(400) < new, rng.random(400) < known)
    ids = np.where(right, 0, 1)[:, None]
    return evaluate((ids, np.ones_like(ids, dtype=np.float32)), Splits(train=test, test=test))


def test_the_best_is_ours_unless_another_is_better_by_more_than_noise():
    ours = scores_with(0.5, 0.5)
    better, luck = scores_with(0.9, 0.1), scores_with(0.51, 0.9)
    assert best({"D": luck, OURS: ours}, Validation())[0] == OURS
    saved, why = best({"D": luck, "G": better, OURS: ours}, Validation())
    assert saved == "G" and "P@1 on the 200 new texts" in why
    assert best({"D": luck, "G": better, OURS: ours}, Validation(texts="label"))[0] == "D"
    assert best({"D": None, OURS: None}, Validation())[0] == OURS


def test_the_test_split_has_no_say_in_what_is_saved(tmp_path):
    """Other test targets, the same choice: the reason is about held-out training points alone."""
    splits, recipe = small(), replace(demo_recipe("astec", steps=5), device="cpu")
    flipped = csr_array(splits.test.targets[:, ::-1])
    other = replace(splits, test=replace(splits.test, targets=flipped, exclude=None))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = demo(splits, recipe, tmp_path / "one"), demo(other, recipe, tmp_path / "two")
    assert (one.saved, one.why) == (two.saved, two.why)
    assert one.entries[0].held.as_dict() == two.entries[0].held.as_dict()
    assert one.entries[3].scores["P@5"] != two.entries[3].scores["P@5"]


# ---- queries


def test_bundled_queries_are_asked(results):
    texts = [each["text"] for each in results["queries"]["asked"]]
    assert texts[:2] == ["compress a file", "show disk usage"] and len(texts) == 5
    first = results["queries"]["asked"][0]["answers"]
    assert list(first) == NAMES and all(len(each) == 3 for each in first.values())
    assert {answer["right"] for each in first.values() for answer in each} == {None}


def test_elsewhere_new_test_texts_are_asked_and_hits_marked(hostile):
    asked = hostile.questions
    assert len(asked.texts) == 5 and asked.rule.startswith("new texts of the test split")
    assert all(
        answer.right in (True, False)
        for entry in hostile.entries
        for each in entry.answers
        for answer in each
    )


def test_right_answers_are_those_of_the_test_split(tmp_path):
    splits = small()
    found = demo(splits, replace(demo_recipe("astec", steps=60), device="cpu"), tmp_path)
    row_of = {text: row for row, text in enumerate(splits.test.texts)}
    marks = []
    for number, text in enumerate(found.questions.texts):
        row = splits.test.targets[[row_of[text]]].toarray()[0]
        right = {splits.test.label_texts[label] for label in np.flatnonzero(row)}
        for answer in found.entries[3].answers[number]:
            marks.append(answer.right)
            assert answer.right == (answer.label in right)
    assert True in marks and False in marks


# ---- the page


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
def page(made):
    return (made[0] / "index.html").read_text("utf-8")


def test_the_page_is_whole(page, results):
    found = parsed(page)
    shown = " ".join(found.text)
    assert found.tags.count("h1") == 1 and found.tags.count("svg") == 4 and found.tags.count("table") == 2
    for name in NAMES:
        assert f"{results['variants'][name]['test']['P@1']:.1f}" in shown
    for asked in results["queries"]["asked"]:
        assert asked["text"] in shown
    assert results["command"] in shown and gandalf.__version__ in shown
    assert results["diagnosis"]["verdict"] in shown


def test_the_page_asks_for_nothing_from_elsewhere(page):
    found = parsed(page)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(found.tags)
    assert not {name for _, name, _ in found.attributes} & {"src", "href", "srcset", "action", "style"}
    assert "url(" not in page and "@import" not in page
    assert not re.search(r"https?://", page)


def test_the_page_speaks_to_those_who_do_not_see_it(page, results):
    found = parsed(page)
    labels = [value for tag, name, value in found.attributes if (tag, name) == ("svg", "aria-label")]
    new = {name: results["variants"][name]["test"]["new_text"]["P@1"] for name in NAMES}
    said = ", ".join(f"{name} {value:.1f}" for name, value in new.items())
    assert f"new text, 1,502 texts: {said}" in labels[0]
    assert ("html", "lang", "en") in found.attributes
    scopes = [value for tag, name, value in found.attributes if (tag, name) == ("th", "scope")]
    assert {"col", "row", "rowgroup"} == set(scopes)


def test_hostile_texts_are_shown_and_not_obeyed(hostile):
    source = demo_page(hostile, ["gandalf demo '<i>'", "$title"], "gandalf <0>")
    found = parsed(source)
    assert "script" not in found.tags and "b" not in found.tags
    shown = " ".join(found.text)
    assert HOSTILE in shown and "<b>set</b>" in shown and "gandalf demo '<i>'" in shown


def test_hostile_texts_in_a_terminal(hostile):
    screen = Console(width=400, file=io.StringIO())
    for each in (comparison_table(hostile), verdict_table(hostile), answers_tables(hostile)):
        screen.print(each)
    shown = screen.file.getvalue()
    assert HOSTILE in shown and "[red]label[/]" in shown


def test_one_table_for_screen_and_page(hostile):
    shown = {section.title.split(" (")[0]: section for section in sections(hostile)}
    assert list(shown)[:1] == ["all test texts"] and list(shown)[-1] == "training"
    bins = shown["part of P@5, labels from head to tail"]
    for column, entry in enumerate(hostile.entries):
        total = sum(float(row.cells[column]) for row in bins.rows)
        assert total == pytest.approx(entry.scores["P@5"], abs=0.3)
    for row in shown["all test texts"].rows:
        highest = max(map(float, row.cells))
        assert [float(cell) == highest for cell in row.cells] == list(row.best)


def test_verdicts_name_only_texts_that_there_are(hostile):
    splits = small()
    test = replace(splits.test, texts=[f"text {row}" for row in range(len(splits.test))])
    ids = np.zeros((len(test), 1), dtype=np.int64)
    scores = evaluate((ids, np.ones((len(test), 1))), replace(splits, test=test))
    assert scores.label_text.points == 0
    compared = {name: compare(scores, scores, resamples=20) for name in ("D", "G")}
    entries = tuple(replace(entry, scores=scores) for entry in hostile.entries)
    alone = replace(hostile, entries=entries, differences=compared)
    assert [(each.other, each.texts) for each in verdicts(alone)] == [("D", "new texts"), ("G", "new texts")]
    assert "known items" not in " ".join(section.title for section in sections(alone))
    parsed(demo_page(alone, [], "gandalf"))


# ---- pictures


@pytest.mark.parametrize(
    ("highest", "end"), [(0, 1), (0.31, 0.4), (1, 1), (1.01, 1.5), (62.6, 80), (99.9, 100)]
)
def test_round_ends_of_an_axis(highest, end):
    assert svg.nice_end(highest) == pytest.approx(end)


def test_bars_are_as_high_as_their_values():
    drawn = svg.bar_chart(
        [("a",), ("b",)], [svg.Series("one", 0, [10, 0]), svg.Series("two", 1, [5, 10])], "x"
    )
    heights = [float(each) for each in re.findall(r'<rect[^>]* height="([\d.]+)"', drawn)]
    assert heights == pytest.approx([heights[0], heights[0] / 2, 0, heights[0]], abs=0.1)
    assert heights[0] == pytest.approx(svg.HEIGHT - svg.TOP - svg.BOTTOM, abs=0.1)


def test_lines_stay_in_their_picture():
    axis = svg.Axis("x", 1.0)
    drawn = svg.line_chart([svg.Series("one", 0, [0, 1, 0.25], [0, 0.5, 1])], axis, axis, diagonal=True)
    places = [tuple(map(float, each.split(","))) for each in re.search(r'points="([^"]+)"', drawn)[1].split()]
    assert all(0 <= x <= svg.WIDTH and 0 <= y <= svg.HEIGHT for x, y in places)
    assert places[1][1] < places[2][1] < places[0][1]
    assert 'class="even"' in drawn


# ---- the folder


def test_what_is_printed(made, results):
    out, shown = made
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("training ")] == [
        f"{name}:" for name in NAMES
    ]
    for text in (
        "PSP@5",
        "C@5",
        "new texts (1,502)",
        "known items",
        "compress a file",
        "default - G, new texts",
    ):
        assert text in shown
    assert f"gandalf predict {out / 'model'} 'compress a file'" in shown and str(out / "index.html") in shown
    assert sorted(path.name for path in out.iterdir()) == [
        "index.html",
        "model",
        "predictions",
        "results.json",
    ]
    assert not list(out.parent.glob(".*"))


def test_json_is_the_results(tmp_path):
    gandalf.export(small(), tmp_path / "data", "raw")
    shown = done(tmp_path / "out", "--data", tmp_path / "data", "--steps", 2, "--json")
    assert json.loads(shown) == json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))


def test_a_demo_is_replaced_only_when_told_to(made, tmp_path):
    before = (made[0] / "results.json").read_bytes()
    assert "holds a demo already; choose another OUT" in fails(made[0])
    assert (made[0] / "results.json").read_bytes() == before
    gandalf.export(small(), tmp_path / "data", "raw")
    out, arguments = tmp_path / "out", ("--data", tmp_path / "data", "--steps", 2)
    done(out, *arguments)
    done(out, *arguments, "--seed", 1, "--overwrite")
    assert json.loads((out / "results.json").read_text("utf-8"))["recipe"]["seed"] == 1


@pytest.mark.parametrize("inside", ["mine.txt", "model/mine.txt", "predictions/mine.txt"])
def test_what_is_someone_elses_is_never_removed(tmp_path, inside):
    gandalf.export(small(), tmp_path / "data", "raw")
    out, arguments = tmp_path / "out", ("--data", tmp_path / "data", "--steps", 2)
    done(out, *arguments)
    (out / inside).write_text("mine", "utf-8")
    assert "mine.txt" in fails(out, *arguments, "--overwrite")
    assert (out / inside).read_text("utf-8") == "mine" and (out / "index.html").is_file()


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "index.html").write_text("mine", "utf-8")
    assert "index.html, which is not part of a demo" in fails(tmp_path, "--overwrite")
    assert "is a file where a folder" in fails(tmp_path / "index.html")


def test_bad_input_costs_no_earlier_demo(tmp_path):
    gandalf.export(small(), tmp_path / "data", "raw")
    done(tmp_path / "out", "--data", tmp_path / "data", "--steps", 2)
    assert "no bundled data set" in fails(tmp_path / "out", "--data", tmp_path / "nothing", "--overwrite")
    gandalf.export(Splits(small().train), tmp_path / "alone", "raw")
    assert "no test split" in fails(tmp_path / "out", "--data", tmp_path / "alone", "--overwrite")
    assert (tmp_path / "out" / "model" / "config.json").is_file()


def test_bad_input_leaves_nothing(tmp_path):
    splits = small()
    gandalf.export(Splits(splits.train), tmp_path / "alone", "raw")
    assert "has no test split" in fails(tmp_path / "out", "--data", tmp_path / "alone")
    assert "no bundled data set" in fails(tmp_path / "out", "--data", tmp_path / "nothing")
    assert "did you mean astec?" in fails(tmp_path / "out", "--system", "aztec")
    gandalf.export(splits, tmp_path / "data", "raw")
    assert "is part of the data" in fails(tmp_path / "data" / "out", "--data", tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "data"]


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


def test_the_command_line_starts_without_the_engine():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from typer.testing import CliRunner\nfrom gandalf.cli.main import app\n"
        "found = CliRunner().invoke(app, ['demo', 'nowhere'])\nprint(found.exit_code, found.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("2 error: the demo needs torch; pip install"), done.stderr
