"""Settings: round trips, and a sentence for every way to mistype one."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gandalf.errors import DataError
from gandalf.settings import as_toml, differing, from_dict, override, read_toml, setting, to_dict, updated


@dataclass(frozen=True)
class Rates:
    first: float = setting(1e-3, "rate of the encoder")
    peak: float = setting(0.5, "share of the steps that warm up")


@dataclass(frozen=True)
class Stage:
    epochs: int = setting(20, "passes over the data")
    clip: float | None = setting(1.0, "largest norm of a gradient")
    steps: int | None = setting(None, "stop after so many steps")
    order: Literal["mixed", "labels-first", "none"] = setting("mixed", "order of the points")
    rates: Rates = setting(Rates(), "learning rates")


@dataclass(frozen=True)
class Mix:
    alpha: float = setting(0.2, "strength")


@dataclass(frozen=True)
class Config:
    name: str = setting("astec", "what to call it")
    fast: bool = setting(False, "")
    level: Literal[1, 2] = setting(2, "two lines\nof help")
    note: str | None = setting(None, "anything")
    sizes: tuple[int, ...] = setting((4, 8), "kernel sizes")
    pair: tuple[float, str] = setting((1.0, "a"), "two things")
    stage: Stage = setting(Stage(epochs=7), "the first stage")
    second: Stage | None = setting(None, "the second stage")
    mix: Mix | None = setting(Mix(), "mixing points")


@dataclass(frozen=True)
class Needy:
    path: str
    times: int = 3


finite = st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
rates = st.builds(Rates, first=finite, peak=finite)
stages = st.builds(
    Stage,
    epochs=st.integers(),
    clip=st.none() | finite,
    steps=st.none() | st.integers(),
    order=st.sampled_from(["mixed", "labels-first", "none"]),
    rates=rates,
)
configs = st.builds(
    Config,
    name=texts,
    fast=st.booleans(),
    level=st.sampled_from([1, 2]),
    note=st.none() | texts.filter(lambda text: text != "none"),
    sizes=st.lists(st.integers(), max_size=3).map(tuple),
    pair=st.tuples(finite, texts),
    stage=stages,
    second=st.none() | stages,
    mix=st.none() | st.builds(Mix, alpha=finite),
)


@given(configs)
def test_dictionaries_and_json_read_back(config):
    assert from_dict(Config, to_dict(config)) == config
    assert from_dict(Config, json.loads(json.dumps(to_dict(config)))) == config


@given(configs)
def test_toml_reads_back(config):
    assert from_dict(Config, tomllib.loads(as_toml(config))) == config


@given(configs, configs)
def test_toml_reads_back_over_a_base(config, base):
    assert updated(base, tomllib.loads(as_toml(config, base))) == config


@given(configs, configs)
def test_differing_names_what_differs(one, other):
    changed = differing(to_dict(one), to_dict(other))
    assert (changed == []) == (one == other)
    for name in changed:
        left, right = one, other
        for part in name.split("."):
            left, right = getattr(left, part), getattr(right, part)
        assert left != right
    assert ("name" in changed) == (one.name != other.name)
    assert ("stage.rates.peak" in changed) == (one.stage.rates.peak != other.stage.rates.peak)


def test_differing_sees_an_absent_setting():
    assert differing({"a": None}, {}) == ["a"]
    assert differing({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == ["a.c"]


def test_the_toml_is_for_people():
    assert as_toml(Stage()) == (
        "# passes over the data\nepochs = 20\n"
        "# largest norm of a gradient\nclip = 1.0\n"
        "# stop after so many steps\n# steps =\n"
        '# order of the points\norder = "mixed"\n'
        "\n# learning rates\n[rates]\n"
        "# rate of the encoder\nfirst = 0.001\n"
        "# share of the steps that warm up\npeak = 0.5\n"
    )
    assert "# two lines\n# of help\nlevel = 2\n" in as_toml(Config())
    assert "[stage.rates]" in as_toml(Config())
    assert 'clip = "none"' in as_toml(Stage(clip=None))  # commented out, it would read back as the default


def test_what_is_left_out_keeps_its_default():
    assert from_dict(Config, {}) == Config()
    # The default of the place, which is not that of the class.
    assert from_dict(Config, {"stage": {"clip": 2}}).stage == Stage(epochs=7, clip=2.0)
    assert from_dict(Config, {"second": {"epochs": 1}}).second == Stage(epochs=1)
    laid_over = updated(Config(name="mine", stage=Stage(epochs=3)), {"stage": {"rates": {"peak": 1}}})
    assert laid_over == Config(name="mine", stage=Stage(epochs=3, rates=Rates(peak=1.0)))


def test_whole_numbers_serve_as_numbers_and_none_as_nothing():
    assert isinstance(from_dict(Mix, {"alpha": 1}).alpha, float)
    assert from_dict(Stage, {"clip": "none"}).clip is None
    assert from_dict(Config, {"mix": "none"}).mix is None
    assert from_dict(Stage, {"order": "none"}).order == "none"  # a choice of its own
    assert from_dict(Config, {"name": "none"}).name == "none"  # a text that is never absent


@pytest.mark.parametrize(
    ("given_settings", "sentence"),
    [
        ({"stage": {"epoch": 1}}, "there is no setting 'epoch' in [stage]; did you mean 'epochs'?"),
        ({"epoch": 1}, "there is no setting 'epoch'; did you mean 'stage.epochs'?"),
        ({"stage": {"rates": {"xyz": 1}}}, "no setting 'xyz' in [stage.rates]; there are first, peak"),
        ({"stage": {"epochs": "5"}}, "the setting 'stage.epochs' must be a whole number, not \"5\""),
        ({"stage": {"epochs": 5.0}}, "must be a whole number, not 5.0"),
        ({"stage": {"epochs": True}}, "must be a whole number, not true"),
        ({"stage": {"clip": True}}, "'stage.clip' must be a number, not true"),
        ({"mix": {"alpha": float("nan")}}, "'mix.alpha' must be a number, not nan"),
        ({"mix": {"alpha": 10**400}}, "'mix.alpha' must be a number"),
        ({"fast": 1}, "'fast' must be true or false, not 1"),
        ({"name": 5}, "'name' must be a text, not 5"),
        ({"name": None}, "'name' must be a text, not null"),
        ({"level": True}, "'level' must be one of 1, 2, not true"),
        (
            {"stage": {"order": "label-first"}},
            'must be one of mixed, labels-first, none, not "label-first"; did you mean "labels-first"?',
        ),
        ({"sizes": 4}, "'sizes' must be a list, not 4"),
        ({"sizes": "48"}, "'sizes' must be a list, not \"48\""),
        ({"sizes": [4, "x"]}, "'sizes[1]' must be a whole number, not \"x\""),
        ({"pair": [1.0]}, "'pair' must be a list of 2, not [1.0]"),
        ({"stage": 3}, "'stage' must be a table of settings, not 3"),
        ([], "the settings must be a table of settings, not []"),
    ],
)
def test_wrong_settings_get_a_sentence(given_settings, sentence):
    with pytest.raises(DataError) as error:
        from_dict(Config, given_settings)
    assert sentence in str(error.value)
    with pytest.raises(DataError, match=r"^my\.toml: "):
        from_dict(Config, given_settings, file="my.toml")


def test_a_setting_without_default_must_be_given():
    assert from_dict(Needy, {"path": "x"}) == Needy("x")
    with pytest.raises(DataError, match="the setting 'path' is missing"):
        from_dict(Needy, {"times": 4})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("name=renee", Config(name="renee")),
        ("name = 5", Config(name="5")),  # a number in TOML, but a text is wanted
        ('name="5 # not a comment"', Config(name="5 # not a comment")),
        ("name=a=b", Config(name="a=b")),
        ("name=", Config(name="")),
        ("name=1\nfast = true", Config(name="1\nfast = true")),
        ("name=1979-05-27", Config(name="1979-05-27")),
        ("fast=true", Config(fast=True)),
        ("level=1", Config(level=1)),
        ("sizes=[1, 2, 3]", Config(sizes=(1, 2, 3))),
        ("stage.epochs=1_000", Config(stage=Stage(epochs=1_000))),
        ("stage.clip=none", Config(stage=Stage(epochs=7, clip=None))),
        ("stage.rates.peak=1", Config(stage=Stage(epochs=7, rates=Rates(peak=1.0)))),
        ("second.order=none", Config(second=Stage(order="none"))),
        ("stage={steps=5}", Config(stage=Stage(epochs=7, steps=5))),
        ("alpha=3", Config(mix=Mix(3.0))),
        ("mix=none", Config(mix=None)),
    ],
)
def test_override(change, expected):
    assert override(Config(), [change]) == expected


def test_later_changes_win():
    changed = override(Stage(), ["epochs=5", "first=0.3", "epochs=6"])
    assert changed == replace(Stage(), epochs=6, rates=Rates(first=0.3))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("alpa=1", "there is no setting 'alpa'; did you mean 'mix.alpha'?"),
        ("stage.epoch=1", "there is no setting 'stage.epoch'; did you mean 'stage.epochs'?"),
        ("zzz=1", "there is no setting 'zzz'; there are name, fast, level"),
        ("epochs=1", "the setting 'epochs' could be stage.epochs or second.epochs; write its full name"),
        ("epochs", "'epochs' is not a change of a setting; write it as key=value"),
        ("=5", "'=5'"),
        ("stage.epochs=five", "'stage.epochs' must be a whole number, not \"five\""),
        ("stage.epochs=5.5", "'stage.epochs' must be a whole number, not 5.5"),
    ],
)
def test_wrong_changes_get_a_sentence(change, sentence):
    with pytest.raises(DataError) as error:
        override(Config(), [change])
    assert sentence in str(error.value)


def test_read_toml(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_bytes(b'\xef\xbb\xbfname = "x"\r\n[stage]\r\nepochs = 2\r\n')
    assert read_toml(path) == {"name": "x", "stage": {"epochs": 2}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a = 1\nb = \n", r"recipe\.toml:2: is not valid TOML: "),
        (b"a = 1\n[a\n", r"recipe\.toml:2: is not valid TOML: "),
        (b"a = 1\na = 2\n", r"recipe\.toml:2: is not valid TOML: "),
        (b"a = '''", r"recipe\.toml: is not valid TOML: .*end of document"),
        (b"a = 1\nb = '\xff'\n", r"recipe\.toml:2: is not UTF-8"),
    ],
)
def test_broken_toml_is_named_with_its_line(tmp_path, content, sentence):
    path = tmp_path / "recipe.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        read_toml(path)


def test_a_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(DataError, match=r"no\.toml: cannot be read \(No such file"):
        read_toml(tmp_path / "no.toml")
    with pytest.raises(DataError, match="cannot be read"):
        read_toml(tmp_path)
