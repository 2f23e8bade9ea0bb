"""The built wheel or sdist alone: installed elsewhere, it has the bundled data, page and examples."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOOKS = (
    "import gandalf, importlib.resources as r\n"
    "from gandalf.cli.main import app\n"
    "files = r.files('gandalf')\n"
    "assert str(files).startswith(__import__('sys').prefix), files\n"
    "splits = gandalf.load('man')\n"
    "print(len(splits.train), splits.train.num_labels, len(splits.test))\n"
    "for name in ('serve/static/index.html', 'lab/page.css', 'py.typed', 'examples',\n"
    "             'lab/paper.json'):\n"
    "    assert files.joinpath(name).is_file() or files.joinpath(name).is_dir(), name\n"
)


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("build") is None or find_spec("hatchling") is None,
    reason="building a wheel needs build and hatchling: extra [dev]",
)
@pytest.mark.parametrize(("kind", "name"), [("wheel", "*.whl"), ("sdist", "*.tar.gz")])
def test_what_is_built_has_all_that_it_needs(kind, name, tmp_path):
    build = [
        sys.executable,
        "-m",
        "build",
        f"--{kind}",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (built,) = tmp_path.glob(f"gandalf_xmc-{name}")
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    pip = [sys.executable, "-m", "pip", "install"]
    install = [*pip, "--no-deps", "--no-index", "--no-build-isolation", "--target", site, str(built)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    # Libraries come from here, so that nothing is downloaded; gandalf itself from what was built.
    libraries = next(each for each in sys.path if each.endswith("site-packages"))
    (Path(site) / "libraries.pth").write_text(libraries)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    look = [python, "-c", LOOKS]
    done = subprocess.run(
        look, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("9599 8808 ")
