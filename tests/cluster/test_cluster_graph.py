"""The label graph and the augmented set on a cluster are those of one machine."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from command_line import done, done_json, fails
from dask_cluster import client, same_files, same_graph, scheduler, write_shards
from scipy.sparse import csr_array, load_npz

import gandalf
from gandalf import GraphOptions, label_graph
from gandalf.cluster import points as cluster_points
from gandalf.cluster.client import results_in_order, submit
from gandalf.cluster.points import points_in_memory
from gandalf.cluster.sharded import sharded_set
from gandalf.cluster.shards import find_shards
from gandalf.cluster.sums import BlockSums, block_sums, finished_rows, piece_of
from gandalf.data.dataset import Dataset
from gandalf.data.formats.table_options import TableOptions
from gandalf.errors import DataError, Findings
from gandalf.graph.cooccurrence import PairRule
from gandalf.graph.estimates.ratio import Ratio
from gandalf.graph.joint_sums import cut_blocks
from gandalf.graph.label_graph import counted_graph

pytestmark = pytest.mark.slow

assert client and scheduler  # fixtures

OPTIONS = {
    "ratio": GraphOptions("ratio"),
    "shrunk": GraphOptions("shrunk"),
    "calibrated": GraphOptions("calibrated"),
    "glas": GraphOptions("glas", delta=0.05),
    "self": GraphOptions("self"),
    "few": GraphOptions("calibrated", top_k=3, scale=0.5, shared_text="pool"),
    "given strength": GraphOptions("shrunk", strength=2.5, seed=3),
}


@pytest.fixture(scope="module")
def points() -> Dataset:
    """Points whose texts are often labels', some without labels, some labels of one text."""
    train = gandalf.synthetic(900, 150, seed=1, labels_per_point=4).splits.train
    keep = np.ones(len(train), dtype=bool)
    keep[[0, 5, 6, 899]] = False
    targets = csr_array(train.targets.multiply(keep[:, np.newaxis]))
    texts = [*train.label_texts[:-2], train.label_texts[0], ""]
    return replace(train, targets=targets, label_texts=texts)


@pytest.mark.parametrize("pieces", [1, 2, 13])
@pytest.mark.parametrize("name", OPTIONS)
def test_graph_is_that_of_one_machine(client, points, name, pieces):
    options = OPTIONS[name]
    expected = label_graph(points, options)
    counted = points_in_memory(client, points, with_texts=True, pieces=pieces, block=3_000)
    found = counted_graph(counted, options, points.label_texts)
    assert same_graph(found.matrix, expected.matrix)
    assert found.details == expected.details and found.estimate == expected.estimate
    assert "fallback" not in found.details


def test_pieces_are_blocks_apart(client, points):
    counted = points_in_memory(client, points, with_texts=False, block=3_000)
    assert len(cut_blocks(counted.label_sums.costs, 3_000)) > 3 and len(counted.pieces) == 4


def test_without_texts_calibrated_falls_back_as_on_one_machine(client, points):
    bare = replace(points, texts=None)
    options = GraphOptions("calibrated")
    found = counted_graph(points_in_memory(client, bare, with_texts=True), options, bare.label_texts)
    expected = label_graph(bare, options)
    assert found.details == expected.details and "fallback" in found.details
    assert same_graph(found.matrix, expected.matrix)


@pytest.mark.parametrize("name", ["ratio", "shrunk", "calibrated"])
def test_graded_targets(client, points, name):
    """Grades that float64 adds without rounding give the same bits; any others the same to rounding."""
    rng = np.random.default_rng(0)
    for grades, exact in ((np.array([0.25, 0.5, 1.0]), True), (rng.uniform(0.1, 1, 50), False)):
        targets = points.targets.copy()
        targets.data = rng.choice(grades, targets.nnz).astype(np.float32)
        graded = replace(points, targets=targets)
        expected = label_graph(graded, OPTIONS[name]).matrix
        counted = points_in_memory(client, graded, with_texts=True, pieces=5, block=3_000)
        found = counted_graph(counted, OPTIONS[name], graded.label_texts).matrix
        assert not exact or same_graph(found, expected)
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_allclose(found.data, expected.data, rtol=1e-6)


def test_sums_do_not_depend_on_who_is_done_first(client, points):
    targets = points.targets.copy()
    targets.data = np.random.default_rng(1).uniform(0.1, 1, targets.nnz).astype(np.float32)
    graded = replace(points, targets=targets)
    found = [
        counted_graph(points_in_memory(client, graded, with_texts=False, pieces=9), GraphOptions()).matrix
        for _ in range(2)
    ]
    assert same_graph(*found)


def test_partial_sums_of_bits_are_exact_beyond_float32():
    """16.8 million points and more: a partial sum counts in float64, as one machine's sums do."""
    piece = piece_of(csr_array(np.ones((3, 2), dtype=np.float32)))
    part = block_sums(piece, (0, 2), np.float64, None)
    many = BlockSums(csr_array(part.joint * 2**24))
    frequency = np.full(2, 3 * 2**24 + 3.0)
    found = finished_rows([many, part], (0, 2), frequency, PairRule(Ratio(), 1 - 1e-9, None))
    assert found.lengths.tolist() == [
        2,
        2,
    ]  # float32 would round the 3 away, and the ratio below the threshold


def test_results_come_in_order_whoever_is_first(client):
    futures = (submit(client, pow, at, 2) for at in range(20))
    assert list(results_in_order(futures, window=3)) == [at**2 for at in range(20)]


def test_a_lost_worker_is_made_up_for(client, points):
    """Its pieces are made again from their recipes, and counted again."""
    counted = points_in_memory(client, points, with_texts=True, pieces=6, block=1_000)
    before = set(client.run(os.getpid).values())
    os.kill(min(before), signal.SIGKILL)
    found = counted_graph(counted, OPTIONS["calibrated"], points.label_texts).matrix
    assert same_graph(found, label_graph(points, OPTIONS["calibrated"]).matrix)
    client.wait_for_workers(2, timeout=60)
    assert set(client.run(os.getpid).values()) != before


# ---- the commands


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    splits = gandalf.synthetic(700, 120, seed=2, labels_per_point=4).splits
    return write_shards(splits, tmp_path_factory.mktemp("shards") / "cut")


@pytest.mark.parametrize("targets", ["ratio", "shrunk", "calibrated"])
def test_graph_of_shards(scheduler, sharded, tmp_path, targets):
    words = ("graph", sharded, "--targets", targets, "--label", "L3")
    found = done_json(*words, "--save", tmp_path / "there.npz", "--cluster", scheduler)
    expected = done_json(*words, "--save", tmp_path / "here.npz")
    assert found == expected
    assert (tmp_path / "there.npz").read_bytes() == (tmp_path / "here.npz").read_bytes()
    assert load_npz(tmp_path / "there.npz").nnz > 200


def test_many_shards_make_few_pieces(client, sharded, monkeypatch):
    where = find_shards(str(sharded), TableOptions(), Findings())
    options = GraphOptions("calibrated")
    found = []
    for most in (256, 2):
        monkeypatch.setattr(cluster_points, "MOST_PIECES", most)
        points = sharded_set(client, where, Findings(), with_texts=True)
        assert len(points.labelled.pieces) == min(most, len(where.train))
        found.append(points.label_graph(options).matrix)
    assert same_graph(*found) and same_graph(
        found[0], label_graph(gandalf.load(sharded).train, options).matrix
    )


def test_graph_of_any_layout(scheduler, made_up, tmp_path):
    words = ("graph", made_up, "--targets", "shrunk")
    assert done(*words, "--cluster", scheduler) == done(*words)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--targets", "calibrated"),
        ("--keep", "labels", "--share", "0.3", "--order", "tail"),
        ("--keep", "uniform"),
    ],
    ids=["both", "calibrated", "labels", "uniform"],
)
@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no-ids"])
def test_augmented_shards_are_the_files_of_one_machine(scheduler, tmp_path, words, ids):
    splits = gandalf.synthetic(300, 60, seed=3, labels_per_point=3).splits
    if words == ():  # grades above 1 are divided by the largest of all shards
        splits.train.targets.data[::7] = 2.0
        splits.test.targets.data[:] = 4.0
    folder = write_shards(splits, tmp_path / "cut", ids=ids)
    done("augment", folder, tmp_path / "here", *words)
    done("augment", folder, tmp_path / "there", *words, "--cluster", scheduler)
    assert same_files(tmp_path / "there", tmp_path / "here")
    assert {"trn.json.gz", "tst.json.gz", "filter_labels_train.txt"} <= {
        p.name for p in (tmp_path / "here").iterdir()
    }


def test_augmenting_another_layout_writes_any_format(scheduler, made_up, tmp_path):
    words = ("--format", "fasttext", "--harden", "any")
    done("augment", made_up, tmp_path / "here", *words)
    done("augment", made_up, tmp_path / "there", *words, "--cluster", scheduler)
    assert same_files(tmp_path / "there", tmp_path / "here")


def test_what_a_cluster_cannot_do_is_said_before_any_work(scheduler, sharded, tmp_path):
    at = ("--cluster", scheduler)
    refusal = fails("graph", sharded, "--targets", "walk", *at)
    assert refusal.startswith("walk targets are not sums over points")
    assert refusal.endswith("; choose from ratio, shrunk, calibrated, glas, self, or leave --cluster out")
    out = tmp_path / "out"
    assert "the format pecos needs the whole set in one memory" in fails(
        "augment", sharded, out, "--format", "pecos", *at
    )
    assert "--harden needs the whole set" in fails("augment", sharded, out, "--harden", "any", *at)
    assert not out.exists()


def test_a_bad_line_of_a_shard_is_named(scheduler, tmp_path):
    splits = gandalf.synthetic(60, 20, seed=3).splits
    folder = write_shards(splits, tmp_path / "cut", cuts=(0, 20, 40))
    bad = folder / "train" / "part-001.jsonl"
    (folder / "train" / "part-001.jsonl.gz").unlink()
    bad.write_text(json.dumps({"id": "x", "text": "t", "labels": ["L1"], "scores": [1]}) + '\n{"text": \n')
    for command in (("graph", folder), ("augment", folder, tmp_path / "out")):
        assert fails(*command, "--cluster", scheduler).startswith(f"{bad}:2: the line is no JSON object")
    bad.write_text(json.dumps({"id": "x", "text": "t", "labels": ["nobody"], "scores": [1]}) + "\n")
    assert fails("graph", folder, "--cluster", scheduler).startswith(f"{bad}:1: label 'nobody' is not in")
    assert not (tmp_path / "out").exists()


def test_shards_without_a_label_file_cannot_be_numbered_by_many(scheduler, tmp_path):
    folder = write_shards(gandalf.synthetic(60, 20, seed=3).splits, tmp_path / "cut", cuts=(0, 20))
    (folder / "labels.csv").unlink()
    assert "has no file of labels" in fails("graph", folder, "--cluster", scheduler)


def test_a_cluster_takes_the_label_file_as_it_is(sharded):
    with pytest.raises(DataError, match=r"^exclude=\.\.\. chooses labels, but a cluster"):
        find_shards(str(sharded), TableOptions(exclude=("x",)), Findings())
