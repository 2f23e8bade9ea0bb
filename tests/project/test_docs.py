"""The pages under docs: anchors that exist, an index of every page, a site without links out of docs."""

from __future__ import annotations

import importlib.util
import posixpath
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_of_links_are_headings(page):
    for target, anchor in LINK.findall(page.read_text("utf-8")):
        other = page.parent / target if target else page
        if other.suffix == ".md":
            assert anchor in anchors(other), f"{page.name} links to {target}#{anchor}"


def test_the_index_lists_every_page():
    index = DOCS / "index.md"
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", index.read_text("utf-8"))}
    assert {page.resolve() for page in DOCS.rglob("*.md")} - {index.resolve()} == linked


def test_the_site_has_no_link_out_of_docs():
    spec = importlib.util.spec_from_file_location("outside_links", DOCS / "outside_links.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    for page in DOCS.rglob("*.md"):
        at = SimpleNamespace(file=SimpleNamespace(src_uri=page.relative_to(DOCS).as_posix()))
        shown = hook.on_page_markdown(page.read_text("utf-8"), page=at)
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", shown):
            inside = posixpath.normpath(posixpath.join(posixpath.dirname(at.file.src_uri), target))
            assert not inside.startswith("../"), f"{page.name} leads to {target}"
    at = SimpleNamespace(file=SimpleNamespace(src_uri="lab/a.md"))
    shown = hook.on_page_markdown("[raw](../../bench/x.json), [b](b.md#c)", page=at)
    assert shown == "raw (`bench/x.json`), [b](b.md#c)"


@pytest.mark.parametrize("page", ["guide/promises.md", "guide/serving.md"])
def test_every_test_that_a_promise_names_is_there(page):
    """By its file, or by its name; a name without a file is of the file that was named before."""
    files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    rows = [line for line in (DOCS / page).read_text("utf-8").splitlines() if line.startswith("|")]
    named, file = 0, ""
    for found in re.findall(r"`(?:tests/[\w/]*)?(test_\w+(?:\.py)?(?:::\w+)?)`", "\n".join(rows)):
        before, _, name = found.partition("::") if ".py" in found else (file, "", found)
        file, named = before, named + 1
        assert file in files, f"{page} names {found}"
        if name:
            assert f"def {name}(" in files[file].read_text("utf-8"), f"{page} names {found}"
    assert named > 10
