"""`gandalf systems`: what it says of a system is what its recipe is, and its commands are ones that exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from command_line import done, done_json, fails, python, run

from gandalf.recipe import Recipe
from gandalf.settings import override, to_dict
from gandalf.systems import SYSTEMS, recipe

every_system = pytest.mark.parametrize("name", SYSTEMS)


def settings_told(printed: str) -> list[tuple[str, str, str]]:
    """Name, value and default of each row of the table of settings."""
    rows = [line.split() for line in printed.splitlines()]
    first = rows.index(["setting", "here", "by", "default"]) + 1
    last = next(number for number in range(first, len(rows)) if rows[number][:2] == ["all", "settings:"])
    return [tuple(row) for row in rows[first:last]]


def test_the_table_has_a_line_for_each_system():
    printed = done("systems")
    for name, system in SYSTEMS.items():
        (line,) = [line for line in printed.splitlines() if re.match(rf"\W*{name} ", line)]
        assert system.parts in line and system.paper in line
    assert len(SYSTEMS) == 13


def test_json_has_them_all():
    found = done_json("systems")["systems"]
    assert [each["name"] for each in found] == list(SYSTEMS)
    for each in found:
        system = SYSTEMS[each["name"]]
        assert each == {
            "name": each["name"],
            "parts": system.parts,
            "paper": system.paper,
            "departs": system.departs,
        }


@every_system
def test_a_story_tells_everything_that_makes_the_system(name):
    printed, system = done("systems", name), SYSTEMS[name]
    for said in (system.parts, system.paper, system.departs):
        assert said in printed
    told = settings_told(printed)
    # Laid over the defaults, the settings that are told give the recipe, and the defaults take them back.
    here = [f"{setting}={value}" for setting, value, _ in told]
    back = [f"{setting}={value}" for setting, _, value in told]
    assert override(override(Recipe(), [f"system={name}"]), here) == recipe(name)
    assert override(override(recipe(name), ["system=astec"]), back) == Recipe()
    # And none of them could be left out.
    for left_out in range(len(here)):
        rest = here[:left_out] + here[left_out + 1 :]
        assert override(override(Recipe(), [f"system={name}"]), rest) != recipe(name)


@every_system
def test_json_of_one_holds_the_same(name):
    found = done_json("systems", name)
    assert [each[0] for each in settings_told(done("systems", name))] == list(found["settings"])
    for setting, value in found["settings"].items():
        there = to_dict(recipe(name))
        for part in setting.split("."):
            there = there[part]
        assert there == value
    assert found["paper"] == SYSTEMS[name].paper and found["departs"] == SYSTEMS[name].departs
    assert all(command in done("systems", name).splitlines() for command in found["commands"])


@every_system
def test_the_commands_are_understood(name):
    train, predict = (shlex.split(command) for command in done_json("systems", name)["commands"])
    assert train[:3] == ["gandalf", "train", "man"] and predict[:3] == ["gandalf", "predict", train[3]]
    # What `train` would do with these options is what `config` prints for them.
    assert tomllib.loads(done("config", *train[4:]))["system"] == name
    assert run("train", *train[2:], "--help").exit_code == 0


@every_system
def test_what_must_be_installed_is_said_of_transformers_alone(name):
    wants = recipe(name).encoder.kind == "transformer"
    assert ("gandalf-xmc[transformers]" in done("systems", name)) == wants


def test_a_wrong_name_is_answered_with_the_nearest():
    assert fails("systems", "rene") == "there is no system 'rene'; did you mean renee?"
    assert fails("systems", "xyz", "--json").endswith(f"choose from {', '.join(SYSTEMS)}")


def test_it_needs_no_engine():
    code = "import sys; sys.modules['torch'] = None\nfrom gandalf.cli.main import app\napp(sys.argv[1:])"
    for words in ((), ("renee",)):
        process = python(code, "systems", *words)
        assert process.returncode == 0 and process.stdout == done("systems", *words), process.stderr


@every_system
def test_the_page_on_systems_speaks_of_each(name):
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "systems.md").read_text("utf-8")
    assert f"\n| `{name}` | " in page and f"\n### {name}\n" in page


@pytest.mark.parametrize("command", ["train", "config"])
def test_help_on_system_leads_here(command):
    printed = re.sub(r"[\s│]+", " ", run(command, "--help").stdout)
    assert "--system NAME" in printed and "gandalf systems lists them" in printed
