"""What the options of the walk, of a draw of points and of the graph's display do, one at a time."""

from __future__ import annotations

import gzip
import hashlib
import json
from itertools import pairwise

import numpy as np
import pytest
from command_line import done
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.data.synthetic import synthetic
from gandalf.graph.estimates.walk import Walk, walk_counts, walk_graph
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.graph.neighbours import typical_labels

SIZE = 24  # points and labels of the small set on disk


@pytest.fixture(scope="module")
def points():
    return synthetic(1500, 120, labels_per_point=5).splits.train


def walked(points, **options):
    return label_graph(points, GraphOptions("walk", **options)).matrix.toarray()


def test_the_seed_of_the_options_draws_the_walk(points):
    one, again, other = (walked(points, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


@pytest.mark.parametrize("delta", [0.1, 0.25, 0.6])
def test_the_delta_of_the_options_thresholds_the_walk(points, delta):
    everything, above = walked(points, delta=0.0), walked(points, delta=delta)
    np.testing.assert_array_equal(above, np.where(everything > delta, everything, 0))
    assert np.count_nonzero(above) < np.count_nonzero(everything)


@pytest.mark.parametrize("top_k", [1, 3, 20])
def test_the_top_k_of_the_options_bounds_a_row_of_the_walk_with_the_label_itself_in_it(points, top_k):
    few, everything = walked(points, top_k=top_k, delta=0.0), walked(points, top_k=120, delta=0.0)
    assert np.count_nonzero(few, axis=1).max() == top_k
    assert (np.diag(few) == 1).all()
    for kept, row in zip(few, everything, strict=True):
        np.testing.assert_array_equal(kept[kept > 0], row[kept > 0])
        assert row[kept == 0].max() <= kept[kept > 0].min()
    default = np.count_nonzero(walked(points, delta=0.0), axis=1)
    assert 10 <= default.max() <= 11  # ECLARE's ten, and the label itself where it is not among them


@pytest.mark.parametrize("graded", [False, True])
def test_where_every_label_is_verbose_each_stands_alone(graded):
    matrix = csr_array(np.full((6, 4), 0.5 if graded else 1.0, dtype=np.float32))
    for rows in (
        walk_counts(matrix, Walk(most_points=5)),
        walk_graph(matrix, Walk(most_points=5)),
    ):
        np.testing.assert_array_equal(rows.toarray(), np.eye(4))
    assert np.count_nonzero(walk_graph(matrix, Walk(most_points=6)).toarray()) == 16


@pytest.fixture
def folder(tmp_path):
    """A raw set in which every point has a label to filter."""
    made = tmp_path / "set"
    made.mkdir()
    for name, prefix in (("trn", "point"), ("lbl", "label")):
        rows = [{"uid": f"{prefix}{at}", "title": f"{prefix} {at}"} for at in range(SIZE)]
        if name == "trn":
            rows = [row | {"target_ind": [at], "target_rel": [1.0]} for at, row in enumerate(rows)]
        (made / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    lines = [f"{at} {filtered(at)}\n" for at in range(SIZE)]
    (made / "filter_labels_train.txt").write_text("".join(lines), "utf-8")
    return made


def filtered(point):
    return (point * 7 + 5) % SIZE


def augment(source, out, *words):
    done("augment", source, out, *words)
    return out


def titles(out):
    with gzip.open(out / "trn.json.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["title"] for line in file]


@pytest.mark.parametrize(
    ("words", "points", "labels"),
    [
        (["--keep", "uniform"], None, None),
        (["--share", 0.5], SIZE, SIZE // 2),
        (["--keep", "labels", "--share", 0.25, "--order", "tail"], 0, SIZE // 4),
    ],
)
def test_the_seed_of_the_command_draws_the_points(folder, tmp_path, words, points, labels):
    """Targets are each label alone and stay as they are: nothing but the draw of points has a seed here."""
    seeds = {"a": 1, "b": 1, "c": 2, "d": 3}
    drawn = {
        name: titles(augment(folder, tmp_path / name, "--targets", "self", "--seed", seed, *words))
        for name, seed in seeds.items()
    }
    assert drawn["a"] == drawn["b"]
    assert len({tuple(rows) for rows in drawn.values()}) == 3
    for rows in drawn.values():
        kinds = [title.split()[0] for title in rows]
        assert len(rows) == len(set(rows)) == (SIZE if points is None else points + labels)
        assert points is None or (kinds.count("point"), kinds.count("label")) == (points, labels)


def test_the_filter_follows_the_points_that_were_drawn(folder, tmp_path):
    out = augment(folder, tmp_path / "out", "--keep", "uniform", "--seed", 4)
    rows = titles(out)
    expected = {
        (row, filtered(int(title.split()[1]))) for row, title in enumerate(rows) if title.startswith("point")
    }
    lines = (out / "filter_labels_train.txt").read_text("utf-8").splitlines()
    assert {tuple(map(int, line.split())) for line in lines} == expected
    assert 0 < len(expected) < SIZE  # both kinds of point were drawn
    assert rows[: len(expected)] != [f"point {row}" for row in range(len(expected))]  # and rows have moved


def test_calibrated_targets_are_the_same_bytes_every_time(tmp_path):
    def made(name, seed):
        out = augment("man", tmp_path / name, "--targets", "calibrated", "--seed", seed)
        assert json.loads((out / "gandalf.json").read_text("utf-8"))["targets_used"] == "calibrated"
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}

    assert made("one", 1) == made("again", 1)


def shown(frequencies, several):
    """Labels to show where the labels named have three neighbours and the others none."""
    labels = len(frequencies)
    graph, y = np.eye(labels), np.zeros((max(frequencies), labels), dtype=np.float32)
    for label in several:
        graph[label, [(label + step) % labels for step in (1, 2, 3)]] = 0.5
    for label, frequency in enumerate(frequencies):
        y[:frequency, label] = 1
    return typical_labels(Dataset(csr_array(y)), csr_array(graph))


def test_labels_to_show_are_spread_from_the_head_down_over_those_with_several_neighbours():
    frequencies = np.random.default_rng(0).permutation(np.arange(1, 61))
    several = set(range(0, 60, 2))
    found = shown(frequencies, several)
    ranked = sorted(several, key=lambda label: -frequencies[label])
    ranks = [ranked.index(label) for label in found]  # in `several` all of them, or this fails
    assert len(found) == 3
    assert ranks[0] == 0  # the head
    assert all(later - earlier >= len(ranked) // 5 for earlier, later in pairwise(ranks))


def test_where_no_label_has_several_neighbours_any_may_be_shown_but_none_twice():
    assert shown([3, 9, 5, 1, 2], set())[0] == 1
    assert len(set(shown([3, 9, 5, 1, 2], set()))) == 3
    assert shown([3, 9, 5, 1, 2, 8], {3}) == [3]
