"""`gandalf config`: it prints the recipe that `train` uses, and who has the last word in it."""

from __future__ import annotations

import tomllib
from functools import partial

import pytest
from command_line import done, fails, python

from gandalf.cli.recipe_options import NAMED, RecipeOptions, option_facts
from gandalf.recipe import Recipe
from gandalf.settings import as_toml, from_dict, to_dict
from gandalf.systems import SYSTEMS, recipe

config = partial(done, "config")


@pytest.mark.parametrize("system", SYSTEMS)
def test_config_prints_what_train_uses(system):
    printed = config("--system", system)
    assert from_dict(Recipe, tomllib.loads(printed)) == recipe(system)
    assert printed == as_toml(recipe(system))
    assert config() == config("--system", "auto")


def test_config_needs_no_engine():
    code = "import sys; sys.modules['torch'] = None\nfrom gandalf.cli.main import app\napp(sys.argv[1:])"
    process = python(code, "config")
    assert process.returncode == 0 and process.stdout == config(), process.stderr


def test_who_comes_first(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[training]\nbatch = 11\nepochs = 12\nwarm_up = 0.2\n[encoder]\ndim = 13\n")
    printed = config(
        *("--system", "inceptionxml", "--config", file, "--batch", 21, "--epochs", 22, "--set", "batch=31")
    )
    found = from_dict(Recipe, tomllib.loads(printed))
    assert (found.training.batch, found.training.epochs, found.training.warm_up) == (31, 22.0, 0.2)
    assert (found.encoder.dim, found.encoder.kind, found.system) == (13, "inception", "inceptionxml")


def test_epochs_take_the_place_of_steps_in_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[training]\nsteps = 10\n")
    assert "# steps =" in config("--config", file, "--epochs", 2)
    assert "steps = 10" in config("--config", file)


def test_a_file_names_its_system(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(config("--system", "inceptionxml", "--epochs", 3))
    assert config("--config", file) == file.read_text()
    said = fails("config", "--config", file, "--system", "astec")
    assert "is a recipe of the system inceptionxml, but the system astec" in said
    assert config("--set", "system=inceptionxml", "--epochs", 3) == file.read_text()


@pytest.mark.parametrize("name", NAMED)
def test_every_named_option_changes_its_setting(name):
    values = {str: None, int: 7, float: 0.5}
    words = {"targets": "walk", "keep": "labels", "order": "tail", "device": "cuda", "head_kernel": "auto"}
    path = NAMED[name]
    value = words.get(name, values[option_facts(path)[0]])
    changed = to_dict(RecipeOptions(named=((path, value),)).recipe())
    printed = tomllib.loads(config(f"--{name.replace('_', '-')}", value))
    for found in (changed, printed):
        for part in path.split("."):
            found = found[part]
        assert found == value
