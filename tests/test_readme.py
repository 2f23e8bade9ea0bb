"""What the README and the pages under docs tell a reader to type works as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[object]:
    found = []
    for page in PAGES:
        for at, match in enumerate(BLOCK.finditer(page.read_text("utf-8"))):
            if match[1] == language:
                found.append(pytest.param(match[2], id=f"{page.stem}-{at}"))
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the files that the pages speak of: a table, its labels, and predictions for `man`."""
    import numpy as np
    from scipy.sparse import csr_array, save_npz

    import gandalf

    folder = tmp_path_factory.mktemp("reader")
    (folder / "tickets.csv").write_text(
        "subject,tags\nprinter on fire,hardware;urgent\nreset my password,accounts\nprinter jam,hardware\n",
        encoding="utf-8",
    )
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
