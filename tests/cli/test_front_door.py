"""From `import gandalf` to a model and back, in the README's few lines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import done, python

import gandalf
from gandalf.errors import DataError
from gandalf.runs.start import changed

LIGHT = {"steps": 4, "dim": 16, "targets": "self", "device": "cpu"}
ENGINE = ("GandalfClassifier", "Predictor", "load_model", "train")


@pytest.fixture(scope="module")
def splits():
    found = gandalf.load("man")
    return replace(found, train=found.train[:600], test=found.test[:50])


# ---- the door


def test_importing_loads_no_engine():
    done = python(
        "import sys, gandalf\n"
        "gandalf.recipe('astec'), dir(gandalf)\n"
        "print(sorted({'torch', 'safetensors', 'tokenizers', 'sklearn', 'faiss'} & set(sys.modules)))"
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", ENGINE)
def test_without_torch_the_engine_says_what_to_install(name):
    code = f"import sys; sys.modules['torch'] = None\nimport gandalf\ngandalf.{name}"
    last = python(code).stderr.splitlines()[-1]
    assert last == f"ImportError: gandalf.{name} needs torch; pip install 'gandalf-xmc[train]'"


@pytest.mark.parametrize(
    "first", ["gandalf.train.loop", "gandalf.recipe", "gandalf.runs.session", "gandalf.augment"]
)
def test_functions_are_not_hidden_by_the_rooms_of_their_name(first):
    functions = "gandalf.train, gandalf.recipe, gandalf.augment"
    code = f"import gandalf, {first}\nprint(*map(callable, ({functions})))"
    assert python(code).stdout == "True True True\n"


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="no attribute 'trane'"):
        _ = gandalf.trane
    assert dir(gandalf) == sorted([*gandalf.__all__, "__version__"])


def test_names_are_imported_when_they_are_asked_for():
    done = python("import sys, gandalf\ndir(gandalf), gandalf.__version__\nprint('numpy' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


# ---- behind it


def test_load_train_predict_evaluate_and_load_again(splits, tmp_path):
    trained = gandalf.train(splits, "astec", out=tmp_path / "model", **LIGHT)
    texts, exclude = splits.test.texts, splits.test.exclude
    kept, loaded = (
        gandalf.Predictor(model).predict(texts, 100, exclude)
        for model in (trained.model, gandalf.load_model(tmp_path / "model"))
    )
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert metrics["P@1"] == gandalf.evaluate(kept, splits)["P@1"]
    # Elsewhere in memory products may be rounded otherwise, and labels of equal scores change places.
    np.testing.assert_allclose(loaded[1], kept[1], rtol=1e-5)
    assert np.mean(loaded[0] == kept[0]) > 0.9


def test_data_may_be_splits_a_set_or_a_name(splits):
    settings = {**LIGHT, "validation.share": 0}
    found = [gandalf.train(data, **settings) for data in (splits, splits.train)]
    assert (found[0].model.head.rows == found[1].model.head.rows).all()
    assert gandalf.train("man", **LIGHT).model.num_labels == 8_808


def test_settings_are_strings_or_keywords():
    start = gandalf.recipe("inceptionxml")
    by_name = changed(start, "encoder.dim=64", targets="none", epochs=2, vectors=None, precision="float32")
    by_string = changed(
        start, "encoder.dim=64", "targets.targets=none", "epochs=2", "text.vectors=none", "precision=float32"
    )
    assert by_name == by_string != start
    odd = changed(start, epochs=np.int64(3), vectors=Path("a/b.txt"), **{"targets.share": np.float32(0.5)})
    assert odd == changed(start, "epochs=3", "text.vectors=a/b.txt", "targets.share=0.5")
    with pytest.raises(DataError, match="a setting cannot be <object"):
        changed(start, epochs=object())
    assert changed(start, "epochs=3", epochs=2).training.epochs == 3.0
    with pytest.raises(DataError, match=r"did you mean 'training\.epochs'"):
        changed(start, epoch=2)


def test_a_recipe_may_be_given_for_the_name(splits):
    recipe = changed(gandalf.recipe("astec"), **LIGHT)
    one, two = gandalf.train(splits, recipe), gandalf.train(splits, **LIGHT)
    assert (one.model.head.rows == two.model.head.rows).all()


def test_what_is_there_is_not_lost(splits, tmp_path):
    gandalf.train(splits, out=tmp_path / "model", **LIGHT)
    with pytest.raises(DataError, match="holds a model already"):
        gandalf.train(splits, out=tmp_path / "model", **LIGHT)
    for said in ("resume", "overwrite"):
        with pytest.raises(DataError, match="without a folder there is nothing to resume or overwrite"):
            gandalf.train(splits, **{said: True}, **LIGHT)
    gandalf.train(splits, out=tmp_path / "model", overwrite=True, seed=1, **LIGHT)
    assert gandalf.load_model(tmp_path / "model").config["recipe"]["seed"] == 1


def test_an_augmented_set_is_refused(tmp_path):
    augmented = tmp_path / "augmented"
    done("augment", "man", augmented, "--targets", "self")
    with pytest.raises(DataError, match="already augmented"):
        gandalf.train(augmented, **LIGHT)
