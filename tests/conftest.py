from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import small_demo
import train_command
from hypothesis import settings
from tiny_set import write_tiny_set

import gandalf
from gandalf.data.dataset import Splits

# Same examples on every run, and no deadline: a slow machine is not a bug.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("repeatable")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with the larger real data sets, which may not be committed."""
    if not SHARED.is_dir():
        pytest.skip(f"the larger data sets are not part of the repository and not found in {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def man() -> Splits:
    """The bundled set."""
    return gandalf.load("man")


@pytest.fixture
def tiny(tmp_path) -> Path:
    """Folder of four points and four labels, which a test may change."""
    return write_tiny_set(tmp_path / "tiny")


@pytest.fixture(scope="session")
def made_up(tmp_path_factory) -> Path:
    """Folder of a made-up set of 300 points and 120 labels; no test changes it."""
    folder = tmp_path_factory.mktemp("data") / "made-up"
    gandalf.export(gandalf.synthetic(300, 120, seed=1).splits, folder, "raw")
    return folder


@pytest.fixture(scope="session")
def trained(made_up, tmp_path_factory) -> Path:
    """Folder of a model that the command trained on it; no test changes it."""
    out = tmp_path_factory.mktemp("model") / "out"
    train_command.done(made_up, out, *train_command.SMALL)
    return out


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory) -> Path:
    """Folder of a model of five labels; no test changes it."""
    from small_model import small_model  # not above: it loads torch

    from gandalf.model import save_model

    out = tmp_path_factory.mktemp("model") / "small"
    save_model(small_model(), out)
    return out


@pytest.fixture(scope="session")
def small_predictor(small_folder):
    """What it predicts, without the command."""
    from gandalf.model import load_model  # not above: they load torch
    from gandalf.predict.predictor import Predictor

    return Predictor(load_model(small_folder))


@pytest.fixture(scope="module")
def predictor():
    """Of a model of five labels that was never in a folder."""
    from small_model import small_model  # not above: they load torch

    from gandalf.predict.predictor import Predictor

    return Predictor(small_model())


@pytest.fixture(scope="module")
def client(predictor):
    """Of an application that serves it beside a baseline, in this process."""
    from http_client import beside_a_baseline  # not above: it loads torch

    with beside_a_baseline(predictor) as found:
        yield found


@pytest.fixture(scope="session")
def made_demo(tmp_path_factory) -> tuple[Path, str]:
    """The demo of the bundled set with a few updates: its folder, never changed, and what was printed."""
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, small_demo.done(out, "--steps", 5)


@pytest.fixture(scope="session")
def demo_results(made_demo):
    return json.loads((made_demo[0] / "results.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def hostile_demo(tmp_path_factory):
    """A demo of texts that try to be markup."""
    from gandalf.lab.demo import demo, demo_recipe  # not above: it loads torch, which few tests need

    recipe = replace(demo_recipe("astec", steps=3), device="cpu")
    return demo(small_demo.hostile_splits(), recipe, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def fitted():
    """A classifier of five topics; no test changes it."""
    from small_classifier import LABELS, TEXTS, TOPICS, classifier  # not above: it loads torch

    return classifier().fit(TEXTS, LABELS, {name: f"{name} things" for name in TOPICS})


@pytest.fixture(scope="session")
def small_pretrained(tmp_path_factory) -> Path:
    """Folder of a transformer that knows the words of the small made-up set; no test changes it."""
    from small_runs import small_splits  # not above: they load torch
    from small_systems import write_pretrained

    return write_pretrained(tmp_path_factory.mktemp("pretrained"), small_splits())
