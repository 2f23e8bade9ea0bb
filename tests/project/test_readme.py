"""What the README and the pages under docs tell a reader to type works as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = re.compile(r"^```text files\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[object]:
    found = []
    for page in PAGES:
        for at, match in enumerate(BLOCK.finditer(page.read_text("utf-8"))):
            if match[1] == language:
                found.append(pytest.param(match[2], id=f"{page.stem}-{at}"))
    return found


def example_files() -> dict[str, str]:
    """The files that the pages show: a name, then the content with four spaces before each line."""
    files, name = dict[str, str](), ""
    for block in (block for page in PAGES for block in EXAMPLES.findall(page.read_text("utf-8"))):
        for line in block.splitlines():
            if line.startswith("    "):
                files[name] += line[4:] + "\n"
            else:
                name = line
                files[name] = ""
    return files


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the files that the pages speak of: the examples, and predictions for `man`."""
    import numpy as np
    from scipy.sparse import csr_array, save_npz

    import gandalf

    folder = tmp_path_factory.mktemp("reader")
    for name, content in example_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    test = gandalf.load("man").test
    rng = np.random.default_rng(0)
    ids = np.stack([rng.choice(test.num_labels, size=20, replace=False) for _ in range(len(test))])
    rows = np.repeat(np.arange(len(test)), 20)
    scores = rng.random(len(rows), dtype=np.float32)
    save_npz(folder / "predictions.npz", csr_array((scores, (rows, ids.ravel())), shape=test.targets.shape))
    perfect = csr_array(test.targets)
    save_npz(folder / "with.npz", perfect)
    save_npz(folder / "without.npz", csr_array((scores, (rows, ids.ravel())), shape=test.targets.shape))
    return folder


def commands(block: str) -> list[str]:
    lines = (line.split("  #")[0].strip() for line in block.replace("\\\n", " ").splitlines())
    return [line for line in lines if line.startswith("gandalf ")]


@pytest.mark.parametrize("block", blocks("bash"))
def test_commands(block, place):
    for line in commands(block):
        done = subprocess.run(
            [sys.executable, "-m", "gandalf", *shlex.split(line)[1:]],
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("block", blocks("python"))
def test_python(block, place):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_there_is_something_to_run():
    assert sum(len(commands(p.values[0])) for p in blocks("bash")) >= 8
    assert len(blocks("python")) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_hold(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_examples_are_of_the_layout_they_show(place):
    import gandalf

    shown = {"raw": "raw", "sparse": "sparse", "old": "sparse", "renee": "renee", "text2text": "pecos"}
    for folder, layout in (shown | {"weighted": "table", "helpdesk": "table"}).items():
        assert gandalf.load(place / folder).layout == layout
    helpdesk = gandalf.load(place / "helpdesk").train
    assert helpdesk.label_texts == ["broken hardware", "user accounts", "urgent"]
    assert helpdesk.targets.toarray().tolist() == [[1, 0, 1], [0, 1, 0]]


def test_every_kind_of_problem_is_described():
    code = "".join(path.read_text("utf-8") for path in sorted((ROOT / "gandalf" / "data").rglob("*.py")))
    kinds = {kind for kind in re.findall(r'"([a-z]+(?:-[a-z0-9]+)+)"', code) if kind != "utf-8"}
    described = set(
        re.findall(
            r"^\| `([a-z0-9-]+)` \|", (ROOT / "docs" / "reference" / "checks.md").read_text("utf-8"), re.M
        )
    )
    written_otherwise = {"nan", "duplicate-label", "duplicate-feature", "bad-input"}
    assert "bad-line" in kinds
    assert kinds | written_otherwise <= described | {"no-features"}


def test_every_extra_has_its_line():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    text = (ROOT / "docs" / "reference" / "extras.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == sorted(extras)
