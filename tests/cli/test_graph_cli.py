"""The commands graph and diagnose as a user meets them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import done_json, run
from scipy.sparse import load_npz


def test_graph_shows_a_labels_neighbours_with_counts(tiny):
    result = run("graph", tiny, "--label", "first")
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if "second label" in line)
    assert "0.67" in line and " 2 " in line and " 3 " in line
    found = done_json("graph", tiny, "--label", "first label")
    (near,) = found["neighbourhoods"]
    assert (near["label"], near["frequency"]) == (0, 3)
    assert [(n["label"], n["together"]) for n in near["neighbours"]] == [(1, 2), (2, 1)]
    assert found["labels_alone"] == 1


@pytest.mark.parametrize("query", ["l2", "third label", "THIRD  label", "third", "hird lab", "2"])
def test_a_label_is_found_by_what_a_person_would_type(tiny, query):
    found = done_json("graph", tiny, "--label", query)
    assert found["neighbourhoods"][0]["text"] == "third label"


def test_an_unknown_label_is_one_sentence(tiny):
    result = run("graph", tiny, "--label", "fourth")
    assert result.exit_code == 2
    assert "no label has the id, text or number 'fourth'" in result.stderr


def test_graph_saves_and_draws(tiny, tmp_path):
    result = run("graph", tiny, "--save", tmp_path / "g.npz", "--plot", tmp_path / "g.png")
    assert result.exit_code == 0, result.output
    graph = load_npz(tmp_path / "g.npz")
    assert graph.shape == (4, 4)
    assert (graph.diagonal() == 1).all()
    np.testing.assert_allclose(graph.toarray()[0], [1, 2 / 3, 1 / 3, 0], rtol=1e-6)
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_odd_texts_is_drawn_all_the_same(tiny, tmp_path):
    lines = (tiny / "lbl.json").read_text("utf-8").replace("second label", "$x^{ $ 日本語 & <b>")
    (tiny / "lbl.json").write_text(lines, "utf-8")
    assert run("graph", tiny, "--plot", tmp_path / "g.png").exit_code == 0


def test_diagnose_man(tmp_path):
    found = done_json("diagnose", "man", "--plot", tmp_path / "r.png")
    assert found["recommended"] == "calibrated"
    assert found["matched_labels"] == 5_477
    losses = {one["name"]: one["log_loss"] for one in found["estimates"]}
    assert losses["calibrated"] < losses["shrunk"] < losses["ratio"]
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    words = run("diagnose", "man").stdout
    assert found["verdict"] in words


def test_diagnose_says_when_nothing_can_be_matched(tiny):
    found = done_json("diagnose", tiny)
    assert found["recommended"] == "shrunk" and found["estimates"] == []
    assert "cannot be observed" in found["verdict"]


@pytest.mark.slow
def test_diagnose_says_what_label_points_gain_where_nothing_can_be_observed(tmp_path):
    table = tmp_path / "t.csv"
    rows = "".join(f"word{n % 4} and more {n},topic{n % 4};other{n % 2}\n" for n in range(360))
    table.write_text(f"text,labels\n{rows}", encoding="utf-8")
    result = run("diagnose", table, "--minutes", 2)
    assert result.exit_code == 0, result.output
    for part in ("none", "self", "ratio", "shrunk", "P@1 gained", "PSP@5 gained", "On held-out points"):
        assert part in result.stdout, part
    assert "trying" not in result.stdout and "self: P@1" in result.stderr
    gains = done_json("diagnose", table, "--minutes", 2)["gains"]
    assert [each["targets"] for each in gains["tried"]] == ["none", "self", "ratio", "shrunk"]
    assert gains["held"] >= 60 and gains["verdict"] in " ".join(result.stdout.split())


def test_diagnose_trains_nothing_if_it_is_told_so_or_targets_can_be_observed(tiny):
    assert "gains" not in done_json("diagnose", tiny, "--minutes", 0)
    assert "gains" not in done_json("diagnose", "man")
    few = done_json("diagnose", tiny)["gains"]
    assert few["tried"] == [] and "could be held out" in few["verdict"]


def test_there_is_nothing_to_draw_where_nothing_can_be_observed(tiny, tmp_path):
    result = run("diagnose", tiny, "--plot", tmp_path / "r.png")
    assert result.exit_code == 2 and "nothing to draw" in result.stderr
    assert not (tmp_path / "r.png").exists()


def test_control_characters_never_reach_a_terminal(tiny):
    lines = (tiny / "lbl.json").read_text("utf-8").replace("second label", "sec\\u001b[31mond\\u009b label")
    (tiny / "lbl.json").write_text(lines, "utf-8")
    shown = run("graph", tiny, "--label", "first").output
    assert "sec [31mond" in shown
    bad = run("stats", tiny, "--test", "x\x1b]0;title\x07.csv").output
    assert "\x1b" not in shown + bad and "\x07" not in bad


def test_diagnose_says_when_a_strength_is_a_default_or_a_guess(tiny, tmp_path):
    assert "So few pairs say little" in done_json("diagnose", tiny)["verdict"]
    table = tmp_path / "t.csv"
    table.write_text("text,labels\na,x;y\nb,z\n", encoding="utf-8")
    found = done_json("diagnose", table)
    assert "is a default" in found["verdict"] and found["strength_fitted_on"] == 0
    assert found["recommended"] == "shrunk"


def test_what_was_guessed_or_changed_is_told_by_every_command(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("text,labels\nred hat,hats;red\nzip,tools\n", encoding="utf-8")
    result = run("stats", table, "--json")
    assert "separated by ';'" in result.stderr
    assert json.loads(result.stdout)["labels"] == 3
