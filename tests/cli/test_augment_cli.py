"""The command augment as a user meets it: what it writes, and that it writes over nothing of anyone's."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest
from command_line import done, done_json, run
from tiny_set import LABELS, ROWS

import gandalf
from gandalf.cli.augment import FormatName, Hardening
from gandalf.data.export import FORMATS
from gandalf.data.harden import COPIES, POINT_HARDENINGS


def raw_rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_augment_writes_the_papers_g_in_the_raw_layout(tiny, tmp_path):
    made = done_json("augment", tiny, tmp_path / "out", "--targets", "ratio")
    rows = raw_rows(tmp_path / "out" / "trn.json.gz")
    assert [row["title"] for row in rows] == [text for text, _ in ROWS] + LABELS
    # By hand: counts 3, 3, 1, 0; label 0 meets 1 twice and 2 once, label 1 meets 2 once.
    expected = [{0: 1, 1: 2 / 3, 2: 1 / 3}, {0: 2 / 3, 1: 1, 2: 1 / 3}, {0: 1, 1: 1, 2: 1}, {3: 1}]
    for row, targets in zip(rows[4:], expected, strict=True):
        assert dict(zip(row["target_ind"], row["target_rel"], strict=True)) == pytest.approx(
            targets, rel=1e-6
        )
    assert made["points_written"] == 8
    assert (tmp_path / "out" / "label_frequencies.txt").read_text() == "3\n3\n1\n0\n"
    # The filter follows its points, and the test split is as it was.
    assert (tmp_path / "out" / "filter_labels_train.txt").read_text().split() == ["0", "3"]
    again, before = gandalf.load(tmp_path / "out"), gandalf.load(tiny)
    assert again.test == before.test
    assert again.train[:4] == before.train


def test_delta_scale_and_top_k(tiny, tmp_path):
    done_json("augment", tiny, tmp_path / "a", "--targets", "ratio", "--delta", 0.4, "--scale", 0.5)
    rows = raw_rows(tmp_path / "a" / "trn.json.gz")[4:]
    first = dict(zip(rows[0]["target_ind"], rows[0]["target_rel"], strict=True))
    assert first == pytest.approx({0: 1, 1: 1 / 3}, rel=1e-6)
    done_json("augment", tiny, tmp_path / "b", "--targets", "ratio", "--top-k", 2)
    assert [row["target_ind"] for row in raw_rows(tmp_path / "b" / "trn.json.gz")[4:]] == [
        [0, 1],
        [0, 1],
        [0, 2],
        [3],
    ]


@pytest.mark.parametrize(("keep", "points"), [("both", 8), ("labels", 4), ("uniform", 4)])
def test_keep(tiny, tmp_path, keep, points):
    done_json("augment", tiny, tmp_path / "out", "--keep", keep)
    assert len(raw_rows(tmp_path / "out" / "trn.json.gz")) == points


def test_share_and_order(tiny, tmp_path):
    done_json("augment", tiny, tmp_path / "out", "--keep", "labels", "--share", 0.5, "--order", "tail")
    assert [row["title"] for row in raw_rows(tmp_path / "out" / "trn.json.gz")] == LABELS[2:]


@pytest.mark.parametrize("targets", ["ratio", "shrunk", "calibrated", "glas", "walk", "self"])
def test_every_estimate_can_be_asked_for(tiny, tmp_path, targets):
    made = done_json("augment", tiny, tmp_path / "out", "--targets", targets)
    assert made["targets_used"] == ("shrunk" if targets == "calibrated" else targets)
    if targets == "calibrated":
        assert "no label text is also a training text" in made["details"]["fallback"]
    record = json.loads((tmp_path / "out" / "gandalf.json").read_text("utf-8"))
    assert record["graph"]["targets"] == targets
    assert record.pop("files") == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert record == made


def folder_hash(folder):
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_same_seed_same_bytes(tmp_path, format):
    def made(name, seed):
        options = ("--format", format, "--keep", "uniform", "--harden", "sample", "--seed", seed)
        done("augment", "man", tmp_path / name, *options)
        return folder_hash(tmp_path / name)

    one, again, other = made("one", 1), made("again", 1), made("other", 2)
    assert one == again
    assert one != other


def test_copies_are_all_points_three_times_with_targets_drawn_anew(tiny, tmp_path):
    options = ("--format", "libmultilabel", "--targets", "ratio")
    any_record = done_json("augment", tiny, tmp_path / "any", *options, "--harden", "any")
    record = done_json("augment", tiny, tmp_path / "out", *options, "--harden", "copies")
    assert record["points_written"] == COPIES * any_record["points_written"]
    assert json.loads((tmp_path / "out" / "gandalf.json").read_text("utf-8"))["harden"] == "copies"
    at_most, drawn = (
        [line.split("\t") for line in (tmp_path / name / "train.txt").read_text("utf-8").splitlines()]
        for name in ("any", "out")
    )
    assert [text for _, text in drawn] == COPIES * [text for _, text in at_most]
    possible = [set(labels.split()) for labels, _ in at_most]
    assert all(
        set(labels.split()) <= those for (labels, _), those in zip(drawn, COPIES * possible, strict=True)
    )
    assert (tmp_path / "out" / "test.txt").read_bytes() == (tmp_path / "any" / "test.txt").read_bytes()


def test_a_hard_format_asks_how_to_harden(tiny, tmp_path):
    result = run("augment", tiny, tmp_path / "out", "--format", "fasttext")
    assert result.exit_code == 2
    assert all(f"--harden {name}" in result.stderr for name in POINT_HARDENINGS)
    assert not (tmp_path / "out").exists()
    # Hard targets need no choice.
    assert run("augment", tiny, tmp_path / "out", "--format", "fasttext", "--targets", "self").exit_code == 0


def test_nothing_is_written_over_unless_asked(tiny, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious.txt").write_text("mine", "utf-8")
    result = run("augment", tiny, out)
    assert result.exit_code == 2 and "not empty" in result.stderr
    assert (out / "precious.txt").read_text() == "mine"
    result = run("augment", tiny, out, "--overwrite")
    assert (
        result.exit_code == 2 and "holds precious.txt, which gandalf augment did not write" in result.stderr
    )
    for record in ('{"name": "gandalf"}', "[]", "{"):  # a file of that name alone proves nothing
        (out / "gandalf.json").write_text(record, "utf-8")
        assert run("augment", tiny, out, "--overwrite").exit_code == 2
    assert (out / "precious.txt").read_text() == "mine"
    (out / "precious.txt").unlink()
    (out / "gandalf.json").unlink()
    assert run("augment", tiny, out).exit_code == 0
    assert run("augment", tiny, out).exit_code == 2
    (out / "notes.txt").write_text("mine too", "utf-8")
    assert run("augment", tiny, out, "--overwrite").exit_code == 2
    (out / "notes.txt").unlink()
    assert run("augment", tiny, out, "--overwrite", "--keep", "labels").exit_code == 0
    assert len(raw_rows(out / "trn.json.gz")) == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "tiny"]  # no temporary left behind


def test_the_data_that_is_read_is_never_replaced(tiny, tmp_path):
    before = sorted(path.name for path in tiny.iterdir())
    table = tmp_path / "project" / "tickets.csv"
    table.parent.mkdir()
    table.write_text("text,labels\na,x\n", encoding="utf-8")
    for words in (
        [tiny, tiny],
        [tiny / "trn.json", tiny],
        [table, table.parent],
        [tiny, tiny / ".." / "tiny"],
    ):
        result = run("augment", *words, "--overwrite")
        assert result.exit_code == 2
        assert "the data to read is in the folder to write" in result.stderr
    for words in (["graph", tiny, "--save", tiny / "trn.json"], ["graph", table, "--save", table]):
        result = run(*words)
        assert result.exit_code == 2
        assert "is part of the data that is read; choose another name" in result.stderr
    for command in ("graph", "stats", "diagnose"):
        assert run(command, tiny, "--plot", tiny / "new.png").exit_code == 2
    assert sorted(path.name for path in tiny.iterdir()) == before
    assert table.read_text("utf-8").startswith("text,labels")


def test_without_a_name_targets_are_those_that_diagnose_recommends(tiny, tmp_path):
    table = tmp_path / "single.csv"
    table.write_text("text,labels\na cat,pets\na saw,tools\na dog,pets\n", encoding="utf-8")
    for source, expected in ((tiny, "shrunk"), (table, "self"), ("man", "calibrated")):
        made = done_json("augment", source, tmp_path / expected)
        assert done_json("diagnose", source, "--minutes", 0)["recommended"] == expected
        assert (made["targets_used"], made["graph"]["targets"]) == (expected, expected)
        assert made["targets_recommended"]
    named = done_json("augment", tiny, tmp_path / "named", "--targets", "glas")
    assert "targets_recommended" not in named
    # A strength is of shrunk targets alone, so it names them.
    assert done_json("augment", table, tmp_path / "strength", "--strength", 2)["targets_used"] == "shrunk"


def test_label_points_are_never_counted_twice(tiny, tmp_path):
    assert run("augment", tiny, tmp_path / "out").exit_code == 0
    for words in (
        ["augment", tmp_path / "out", tmp_path / "again"],
        ["graph", tmp_path / "out"],
        ["diagnose", tmp_path / "out"],
    ):
        result = run(*words)
        assert result.exit_code == 2
        assert "already augmented, from tiny; give the original set" in result.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--delta", "1.5"], "delta is 1.5"),
        (["--delta", "-0.1"], "delta is -0.1"),
        (["--delta", "nan"], "delta is nan"),
        (["--scale", "2"], "scale is 2.0"),
        (["--share", "1.2"], "share is 1.2"),
        (["--top-k", "0"], "top-k is 0"),
        (["--targets", "shrunk", "--strength", "-1"], "strength of shrinkage is -1"),
        (
            ["--targets", "shrunk", "--strength", "inf"],
            "strength of shrinkage is inf, but it must be at least 0 and finite",
        ),
        (["--targets", "ratio", "--strength", "2"], "has no effect on ratio targets"),
        (["--seed", "-1"], "--seed"),
        (["--targets", "shrunken"], "shrunken"),
        (["--format", "arff"], "arff"),
        (["--keep", "some"], "some"),
    ],
)
def test_bad_options_exit_2_with_a_sentence_and_write_nothing(tiny, tmp_path, words, sentence):
    result = run("augment", tiny, tmp_path / "out", *words)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_the_command_offers_exactly_what_the_library_has():
    assert set(FormatName.__args__) == set(FORMATS)
    help = run("augment", "--help").stdout
    assert all(name in help for name in POINT_HARDENINGS)
    assert set(Hardening.__args__) == set(POINT_HARDENINGS)
    assert "gandalf augment man out" in help  # --help teaches by example
