"""Dependencies have bounds and hashes, and the files that CI and editors read name things that exist."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ABOUT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
GROUPS = {"": ABOUT["dependencies"], **ABOUT["optional-dependencies"]}
UNBOUND = {"dask", "pyarrow", "scipy-stubs"}  # count by date, or make a major release several times a year
NOT_LOCKED = {
    "torch",
    "napkinxc",
    "fasttext-numpy2",
    "mkdocs-material",
}  # the CPU's build; extras of their own
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)(.*(?:\n +--hash=.*)*)", re.MULTILINE)

pytestmark = pytest.mark.skipif(find_spec("packaging") is None, reason="packaging comes with pytest")


def asked():
    from packaging.requirements import Requirement

    found = [Requirement(line) for group in GROUPS.values() for line in group]
    return [one for one in found if one.name != "gandalf-xmc"]


def locked():
    """What the extra [dev] needs, by way of other extras, too; of PyTorch the build is everyone's choice."""
    from packaging.requirements import Requirement

    lines, groups = [], ["", "dev"]
    for group in groups:  # grows meanwhile
        for one in map(Requirement, GROUPS[group]):
            if one.name == "gandalf-xmc":
                groups += sorted(one.extras - {*groups})
            elif one.name != "torch":
                lines.append(one)
    return lines


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_new_major_version_does_not_come_by_itself():
    open_ended = {one.name for one in asked() if not any("<" in each.operator for each in one.specifier)}
    assert open_ended == UNBOUND


def test_the_lock_has_every_dependency_in_its_bounds_with_hashes():
    pins = {plain(name): (version, rest) for name, version, rest in PIN.findall(lock())}
    assert len(pins) > 100
    assert {"numpy", "fastapi", "pytest", "omikuji"} <= {one.name for one in locked()}
    for one in locked():
        version, _ = pins[plain(one.name)]
        assert one.specifier.contains(version), f"{one}: {version} is locked; run make lock"
    assert all("--hash=sha256:" in rest for _, rest in pins.values())


def test_the_lock_holds_what_constraints_hold():
    pins = {plain(name): version for name, version, _ in PIN.findall(lock())}
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    held = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert {name for name in held if name not in pins} == {"torch"}
    assert all(pins.get(name, version) == version for name, version in held.items())


def test_the_lock_leaves_graphics_processors_out():
    assert not re.search(r"^(torch|triton|nvidia-|cuda-)", lock(), re.MULTILINE)


def lock():
    return (ROOT / "requirements.lock").read_text("utf-8")


def steps(workflow):
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.fixture(scope="module")
def workflow():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))


def test_the_workflow_runs_what_a_person_runs(workflow):
    assert ".ci/run" in steps(workflow) and (ROOT / ".ci" / "run").stat().st_mode & 0o111
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    made = {name for run in steps(workflow) for name in re.findall(r"make ([a-z-]+)", run)}
    assert made and made <= targets


def test_the_oldest_python_of_the_workflow_is_the_one_that_is_promised(workflow):
    oldest = workflow["jobs"]["test"]["strategy"]["matrix"]["python"][0]
    assert ABOUT["requires-python"] == f">={oldest}"


def test_every_path_in_the_guide_for_contributors_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = set(re.findall(r"`((?:gandalf|tests)/[\w/.]+)`", text))
    assert len(named) > 10 and not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")), ids=lambda path: path.name
)
def test_forms_for_issues_are_whole(path):
    found = pytest.importorskip("yaml").safe_load(path.read_text("utf-8"))
    assert path.name == "config.yml" or {"name", "description", "body"} <= found.keys()


def test_one_version_everywhere():
    import gandalf

    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    cited = re.findall(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert [gandalf.__version__] == cited == changes[:1]
