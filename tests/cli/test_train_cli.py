"""`gandalf train`: what it prints and what it leaves."""

from __future__ import annotations

import json

import command_line
from train_command import SMALL, content, done

import gandalf
from gandalf.data.dataset import Splits
from gandalf.model import load_model


def test_what_is_on_screen(made_up, tmp_path):
    shown = done(made_up, tmp_path / "out", *SMALL, "--targets", "calibrated")
    points = "285 training points and 120 label points (shrunk targets), 120 labels"
    assert shown.startswith(f"astec on made-up: {points}, 8 updates in ")
    assert "fallback: shrunk instead of calibrated: " in shown
    assert "On held-out training points: P@1 " in shown and " on new texts" in shown
    assert "text is a label's" in shown and "new text" in shown and "PSP@5" in shown
    text = gandalf.load(made_up).train.texts[0]
    assert shown.rstrip().splitlines()[-1] == f"  gandalf predict {tmp_path / 'out'} '{text}'"


def test_the_folder(trained):
    names = {"README.md", "config.json", "labels.jsonl", "log.jsonl", "metrics.json", "model.safetensors"}
    assert set(content(trained)) == names | {"recipe.toml", "words.json"}
    assert json.loads((trained / "config.json").read_text())["files"] == sorted(content(trained))
    model = load_model(trained)
    assert model.num_labels == 120 and model.calibration is not None
    card = (trained / "README.md").read_text()
    assert "# astec, trained on made-up" in card and "| P@1 |" in card


def test_metrics_are_those_that_evaluate_gives(trained, made_up, tmp_path):
    metrics = json.loads((trained / "metrics.json").read_text())
    predictions = tmp_path / "predictions.npz"
    command_line.done("predict", trained, made_up, "-o", predictions)
    scored = command_line.done_json("evaluate", predictions, made_up)
    assert {name: metrics[name] for name in scored} == scored
    assert set(metrics) - set(scored) == {"validation", "training", "baselines"}
    assert [each["name"] for each in metrics["baselines"]] == ["popularity", "TF-IDF + linear"]
    assert [each["step"] for each in metrics["validation"]] == [0, 8]
    training = metrics["training"]
    assert (training["points"], training["label_points"], training["labels"]) == (285, 120, 120)
    assert training["steps"] == 8 and training["peak_memory_bytes"] > 10**7 and training["seconds"] > 0
    assert training["targets"] == {"targets_used": "ratio"}


def test_json_is_the_metrics(made_up, tmp_path):
    shown = done(made_up, tmp_path / "out", *SMALL, "--json")
    assert json.loads(shown) == json.loads((tmp_path / "out" / "metrics.json").read_text())


def test_without_test_split_and_label_points(made_up, tmp_path):
    splits = gandalf.load(made_up)
    gandalf.export(Splits(splits.train), tmp_path / "alone", "raw")
    shown = done(tmp_path / "alone", tmp_path / "out", *SMALL, "--targets", "none", "--validation", 0)
    assert ": 300 training points, 120 labels, 8 updates in " in shown and "P@1" not in shown
    assert set(json.loads((tmp_path / "out" / "metrics.json").read_text())) == {"validation", "training"}
    assert "Not measured on a test split." in (tmp_path / "out" / "README.md").read_text()


def test_the_recipe_left_trains_the_same_model_again(trained, made_up, tmp_path):
    done(made_up, tmp_path / "out", "--config", trained / "recipe.toml")
    assert content(tmp_path / "out")["model.safetensors"] == content(trained)["model.safetensors"]


def test_texts_are_predicted_from_the_column_that_the_model_learnt_from(tmp_path):
    table = tmp_path / "t.csv"
    rows = "".join(f"{n},word{n % 3} {n % 5},topic{n % 3}\n" for n in range(40))
    table.write_text(f"title,subject,topics\n{rows}", encoding="utf-8")
    done(table, tmp_path / "m", "--text-column", "subject", *SMALL)
    command_line.done("predict", tmp_path / "m", table, "-o", tmp_path / "p.jsonl")
    first = json.loads((tmp_path / "p.jsonl").read_text("utf-8").splitlines()[0])
    assert first["text"] == "word0 0"
    # A column that is named wins, and a table without the column is read by guessing as ever.
    named = ("--text-column", "title", "--overwrite")
    command_line.done("predict", tmp_path / "m", table, "-o", tmp_path / "p.jsonl", *named)
    assert json.loads((tmp_path / "p.jsonl").read_text("utf-8").splitlines()[1])["text"] == "1"
    (tmp_path / "q.csv").write_text("title\nword1\n", encoding="utf-8")
    command_line.done("predict", tmp_path / "m", tmp_path / "q.csv", "-o", tmp_path / "q.jsonl")
    assert json.loads((tmp_path / "q.jsonl").read_text("utf-8"))["text"] == "word1"


def test_tensorboard(made_up, tmp_path):
    done(made_up, tmp_path / "out", *SMALL, "--tensorboard")
    assert any(name.startswith("events.out.tfevents") for name in content(tmp_path / "out"))
    done(made_up, tmp_path / "out", *SMALL, "--overwrite")
    assert not any(name.startswith("events.out.tfevents") for name in content(tmp_path / "out"))


def test_missing_libraries_are_named(made_up, tmp_path):
    for command in (["train", made_up, tmp_path / "out"], ["predict", tmp_path / "out", "a text"]):
        code = "import sys; sys.modules['torch'] = None\nfrom gandalf.cli.main import app\napp(sys.argv[1:])"
        process = command_line.python(code, *command)
        assert process.returncode == 2 and process.stderr.count("\n") == 1
        assert process.stderr.endswith("needs torch; pip install 'gandalf-xmc[train]'\n")
    assert not (tmp_path / "out").exists()
