"""The page in a real browser: typing, comparing, explaining, adding a label, and what goes wrong."""

from __future__ import annotations

import pytest
from browser import open_browser
from http_server import TOKEN, process, token_file

import gandalf
from gandalf.model import Model, load_model, save_model

PHONE = {"width": 360, "height": 700}
DESK = {"width": 1200, "height": 800}


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def models(trained, made_up, tmp_path_factory) -> tuple[Model, Model]:
    """A model and another whose best labels are partly different ones."""
    ours = load_model(trained)
    other = load_model(trained)
    other.head.rows.data[::2] *= 0.2
    return ours, other


@pytest.fixture(scope="module")
def served(trained, made_up, models, tmp_path_factory):
    """The server with everything: a baseline, data, and a token."""
    place = tmp_path_factory.mktemp("served")
    save_model(models[1], place / "other")
    words = ("--baseline", place / "other", "--data", made_up, "--token-file", token_file(place))
    with process(trained, *words, "--added", place / "added.jsonl") as (_, address):
        yield address


@pytest.fixture(scope="module")
def alone(small_folder):
    """The server with a model and nothing else."""
    with process(small_folder) as (started, address):
        yield started, address


@pytest.fixture
def page(browser, served):
    """The page; a fault in its scripts, or a request to anywhere else, fails the test."""
    with browser.new_context(viewport=DESK) as context:
        found, wrong = context.new_page(), []
        found.on("pageerror", lambda error: wrong.append(str(error)))
        found.on("request", lambda one: one.url.startswith(served) or wrong.append(one.url))
        found.goto(served)
        found.get_by_text("labels", exact=False).first.wait_for()
        yield found
        assert wrong == []


@pytest.fixture(scope="module")
def text(made_up):
    return gandalf.load(made_up).test.texts[0]


def names(page, column):
    return page.locator(f".{column} .label .name").evaluate_all("all => all.map(one => one.textContent)")


def best(model, text, k=10):
    return [name for name, _ in gandalf.Predictor(model).named(text, k)]


def test_results_come_as_one_types(page, models, text):
    page.keyboard.type(text)  # the field has the focus from the start
    from playwright.sync_api import expect  # not above: the page needs it too, and skips without

    # The first words are answered first, on a slow machine long before the last word is typed.
    expect(page.locator(".model .label .name")).to_have_text(best(models[0], text))
    shares = page.locator(".model .bar i").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().width)"
    )
    assert shares == sorted(shares, reverse=True) and shares[0] > shares[-1] > 0
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.locator(".label").first.wait_for(state="detached")


def test_two_models_side_by_side(page, models, text):
    page.fill("#text", text)
    page.locator(".baseline .label").nth(9).wait_for()
    ours, theirs = best(models[0], text), best(models[1], text)
    assert names(page, "baseline") == theirs
    for column, here, there in (("model", ours, theirs), ("baseline", theirs, ours)):
        only = page.locator(f".{column} .label.only .name").evaluate_all(
            "all => all.map(one => one.textContent)"
        )
        assert only == [name for name in here if name not in there] and 0 < len(only) < 10
    shared = len(set(ours) & set(theirs))
    assert page.inner_text("#status") == f"{shared} of 10 labels are in both lists"


def test_a_label_is_explained_by_keyboard_alone(page, models, text, made_up):
    page.keyboard.type(text)
    page.locator(".baseline .label").nth(9).wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator("#detail").wait_for()
    assert best(models[0], text)[1] in page.inner_text("#detail-title")
    assert page.locator("#detail mark").count() == len(text.split())
    assert "Nearest training points that have it" in page.inner_text("#detail")
    page.keyboard.press("Escape")
    page.locator("#detail").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.getAttribute('data-label')") is not None
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"


def test_neighbours_are_drawn_and_lead_on(page, made_up):
    points = gandalf.load(made_up).train
    graph = gandalf.label_graph(points, gandalf.GraphOptions("ratio")).matrix.toarray()
    label = int((graph > 0).sum(axis=1).argmax())
    page.fill("#text", points.label_texts[label])
    page.select_option("#k", "50")
    page.locator(".model .label").nth(49).wait_for()
    page.evaluate("([text, label]) => showDetail(text, label, false)", [points.label_texts[label], label])
    page.locator("svg.graph").wait_for()
    row = {other: value for other, value in enumerate(graph[label]) if value > 0 and other != label}
    expected = sorted(row, key=lambda other: (-row[other], other))[:12]
    drawn = page.locator("svg.graph .node").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label'))"
    )
    assert drawn == [points.label_texts[other] for other in expected]
    page.locator("svg.graph .node").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=points.label_texts[expected[0]]).wait_for()


def test_a_label_is_added_and_answers(page):
    page.click("summary")
    page.fill("#new-text", "entirely new <b>thing</b>")
    page.fill("#token", "wrong")
    page.click("#add button")
    page.locator("#added.bad").wait_for()
    assert "token" in page.inner_text("#added")
    page.fill("#token", TOKEN)
    page.click("#add button")
    page.locator("#added:not(.bad)").filter(has_text="Added as label 120").wait_for()
    page.fill("#text", "entirely new <b>thing</b>")
    page.select_option("#k", "50")
    page.locator(".model .label", has_text="entirely new <b>thing</b>").wait_for()


def test_a_phone_in_the_dark(browser, served, text):
    with browser.new_context(viewport=PHONE, color_scheme="dark") as context:
        page = context.new_page()
        page.goto(f"{served}#{text}")
        page.locator(".label").first.click()
        page.locator("svg.graph, #detail .soft").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 27)"


def test_without_data_baseline_and_token(browser, alone):
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{alone[1]}#bzip2 files")
        page.locator(".label").first.click()
        page.locator("#detail").wait_for()
        assert "without --data" in page.inner_text("#detail") and page.locator(".baseline").count() == 0
        page.click("summary")
        assert "--token-file" in page.inner_text("#adding")


def test_errors_are_said(browser, alone):
    started, address = alone
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        page.evaluate("document.getElementById('text').removeAttribute('maxlength')")
        page.fill("#text", "x" * 2001)
        page.locator("#status.bad").wait_for()
        assert "2000 characters" in page.inner_text("#status")
        page.fill("#text", "gzip")
        page.locator(".label").first.wait_for()
        assert page.locator("#status.bad").count() == 0
        started.kill()
        started.wait()
        page.fill("#text", "gzip again")
        page.locator("#status.bad").wait_for()
        assert "does not answer" in page.inner_text("#status")


def test_the_document_is_readable(browser, served):
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{served}docs")
        page.get_by_role("heading", name="POST /predict").wait_for()
        assert "threshold" in page.inner_text("main")
