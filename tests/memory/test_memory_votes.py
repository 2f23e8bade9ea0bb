"""A memory: what the nearest keys say, by brute force over all keys."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from gandalf.errors import DataError
from gandalf.memory import keys as keys_module
from gandalf.memory.files import check_memory, memory_facts, read_memory, write_memory
from gandalf.memory.keys import DenseKeys, SparseKeys, keys_of
from gandalf.memory.memory import EXAMPLE, EntryGroup, Memory, Record, Voting
from gandalf.memory.scan import OUTSIDE, make_scan, search_scan
from gandalf.memory.turned_scan import TurnedScan

LABELS = 6
RNG = np.random.default_rng(0)


def unit(rows: int, dim: int = 16) -> np.ndarray:
    found = RNG.normal(size=(rows, dim))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def sparse_unit(rows: int, dim: int = 40) -> csr_array:
    dense = np.abs(RNG.normal(size=(rows, dim))) * (RNG.random((rows, dim)) < 0.2)
    dense[:, 0] += 0.01  # no row is empty
    return csr_array((dense / np.linalg.norm(dense, axis=1, keepdims=True)).astype(np.float32))


def some_values(rows: int) -> csr_array:
    return csr_array((RNG.random((rows, LABELS)) * (RNG.random((rows, LABELS)) < 0.4)).astype(np.float32))


def some_records(rows: int, kind: str = "point") -> list[Record]:
    return [Record(f"text {at}", kind, f"{kind}-{at}" if kind == EXAMPLE else None) for at in range(rows)]


def memory_of(vectors, values, voting=None) -> Memory:
    group = EntryGroup(keys_of(vectors), values, tuple(some_records(values.shape[0])))
    return Memory((group,), voting or Voting())


def votes_by_hand(queries, vectors, values, voting: Voting) -> np.ndarray:
    """The softmax of the nearest cosines, one query and one key after the other."""
    found = np.zeros((len(queries), LABELS))
    for row, query in enumerate(queries):
        cosines = sorted(((float(query @ key), -at) for at, key in enumerate(vectors)), reverse=True)
        near = [(cosine, -at) for cosine, at in cosines[: voting.neighbours]]
        weights = [np.exp(cosine / voting.temperature) for cosine, _ in near]
        total = sum(weights) + (0.0 if voting.doubt is None else np.exp(voting.doubt / voting.temperature))
        for weight, (_, at) in zip(weights, near, strict=True):
            found[row] += weight / total * values[[at]].toarray()[0]
    return found


@pytest.mark.parametrize("voting", [Voting(), Voting(0.1, 7), Voting(0.1, 7, 0.4), Voting(0.05, 500, 0.9)])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_votes_are_those_of_a_loop_over_all_keys(kind, voting):
    make = unit if kind == "dense" else sparse_unit
    vectors, queries, values = make(80), make(9), some_values(80)
    memory = memory_of(vectors, values, voting)
    if kind == "dense":
        rows = memory.groups[0].keys.codes * memory.groups[0].keys.scales[:, np.newaxis]
        expected = votes_by_hand(queries, rows, values, voting)
    else:
        expected = votes_by_hand(queries.toarray(), vectors.toarray(), values, voting)
    near = memory.nearest(queries)
    found = memory.votes(near).toarray()
    np.testing.assert_allclose(found, expected, atol=2e-3)
    every = np.tile(np.arange(LABELS), (9, 1))
    np.testing.assert_allclose(memory.votes_for(near, every), found, atol=1e-12)
    ids, said = memory.strongest_votes(near, LABELS)
    for row in range(9):
        own = {label: value for label, value in enumerate(found[row]) if value}
        listed = dict(zip(ids[row][ids[row] >= 0].tolist(), said[row][ids[row] >= 0], strict=True))
        assert listed == pytest.approx(own, abs=1e-12)
        assert (np.diff(said[row]) <= 0).all()


def test_codes_round_a_vector_by_less_than_a_hundredth():
    vectors = unit(200, 64)
    keys = DenseKeys.of(vectors)
    rows = keys.codes * keys.scales[:, np.newaxis]
    assert np.abs((rows * vectors).sum(axis=1) - 1).max() < 0.01


def test_codes_find_nearly_all_of_the_nearest(monkeypatch):
    """As many keys as make the search go by codes; those it finds have the cosines of a full search."""
    pytest.importorskip("faiss", reason="faiss is an optional library: extra [train]")
    vectors = unit(3_000, 32)
    queries = unit(40, 32)
    whole = DenseKeys.of(vectors)
    exact, cosines = whole.nearest(queries, 20)
    monkeypatch.setattr(keys_module, "SCANNED", 1_000)
    found, near = DenseKeys.of(vectors).nearest(queries, 20)
    recall = np.mean([len(np.intersect1d(one, other)) / 20 for one, other in zip(found, exact, strict=True)])
    assert recall > 0.95
    for row in range(40):
        known = dict(zip(exact[row].tolist(), cosines[row].tolist(), strict=True))
        for place, cosine in zip(found[row].tolist(), near[row].tolist(), strict=True):
            assert cosine == pytest.approx(known.get(place, cosine), abs=2e-5)


def test_codes_are_the_nearest_of_sixteen_places():
    pytest.importorskip("faiss", reason="faiss is an optional library: extra [train]")
    rows = np.random.default_rng(3).normal(size=(400, 6)).astype(np.float32) * [1, 10, 0.1, 1, 1, 0]
    rows = rows.astype(np.float32)
    found = make_scan(rows).reconstruct_n(0, len(rows))
    low, high = np.quantile(rows, [OUTSIDE, 1 - OUTSIDE], axis=0)
    places = low + (high - low) / 15 * np.arange(16)[:, np.newaxis]  # shape: (16, dim)
    nearest = np.abs(rows - places[:, np.newaxis]).argmin(axis=0)  # shape: (N, dim)
    np.testing.assert_allclose(found, np.take_along_axis(places, nearest, axis=0), atol=1e-5)


@pytest.mark.parametrize("dim", [6, 8, 64])
def test_turned_codes_are_the_nearest_of_four_places_by_other_axes(dim):
    pytest.importorskip("faiss", reason="faiss is an optional library: extra [train]")
    rows = np.random.default_rng(4).normal(size=(300, dim)).astype(np.float32) + 1
    scan = TurnedScan.of(len(rows), rows.__getitem__)
    axes = np.linalg.qr(np.random.default_rng(0).standard_normal((-(-dim // 4) * 4,) * 2))[0][:dim]
    np.testing.assert_allclose(axes @ axes.T, np.eye(dim), atol=1e-6)  # products stay as they are
    turned = rows @ axes
    levels = turned.mean(axis=0) + 0.9957 * turned.std(axis=0) * np.array([[-1.5], [-0.5], [0.5], [1.5]])
    nearest = np.abs(turned - levels[:, np.newaxis]).argmin(axis=0)
    found = scan.codes.reconstruct_n(0, len(rows))
    np.testing.assert_allclose(found, np.take_along_axis(levels, nearest, axis=0), atol=1e-4)
    longer = scan.longer(rows[:40] * 0.9)
    _, places = longer.shorter(np.arange(300)).search(rows[:1], 40)
    assert sorted(places[0].tolist()) == list(range(40)) and scan.codes.ntotal == 300
    scores, _ = scan.search(rows[:5], 300)
    np.testing.assert_allclose(scores[:, 0], (turned[:5] @ found.T).max(axis=1), rtol=0.05, atol=0.1)


def test_rows_that_codes_cannot_tell_apart_are_found_once_each():
    pytest.importorskip("faiss", reason="faiss is an optional library: extra [train]")
    scan = make_scan(unit(40, 4))
    scores, places = search_scan(scan, np.zeros((2, 4), dtype=np.float32), 50)
    assert all(sorted(row) == list(range(40)) for row in places.tolist())
    assert not np.isnan(scores).any()


def test_equal_keys_vote_in_their_order_however_they_are_stored():
    vectors, values = np.repeat(unit(1), 30, axis=0), some_values(30)
    queries = unit(3)
    whole = memory_of(vectors, values, Voting(0.1, 5))
    parts = memory_of(vectors[:10], values[:10], Voting(0.1, 5))
    for start in range(10, 30, 4):
        own = slice(start, start + 4)
        parts = parts.appended(vectors[own], csr_array(values[own]), some_records(4))
    found, expected = (each.votes(each.nearest(queries)).toarray() for each in (parts, whole))
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_examples_count_at_once_and_leave_nothing_when_removed(kind, tmp_path):
    make = unit if kind == "dense" else sparse_unit
    memory = memory_of(make(20), some_values(20), Voting(0.1, 8))
    queries, more = make(5), make(7)
    told = csr_array(np.eye(7, LABELS, dtype=np.float32))
    longer = memory
    for at in range(7):  # one at a time: blocks are merged on the way
        record = Record(f"example {at}", EXAMPLE, f"e{at}")
        longer = longer.appended(more[[at]], told[[at]], [record])
    assert len(longer) == 27 and len(longer.groups) < 5 and longer.groups[0] is memory.groups[0]
    assert (
        longer.votes(longer.nearest(more)).toarray()[0, 0]
        > memory.votes(memory.nearest(more)).toarray()[0, 0]
    )
    loud = longer.votes_on(more[[0]], 0)[0]
    assert loud.record.id == "e0" and loud.cosine == pytest.approx(1.0, abs=0.01) and loud.value == 1.0
    back = longer.without([f"e{at}" for at in range(7)])
    same = [each.votes(each.nearest(queries)).toarray() for each in (back, memory)]
    np.testing.assert_array_equal(*same)
    write_memory(back, tmp_path)
    assert "example" not in (tmp_path / "memory.jsonl").read_text("utf-8")
    with pytest.raises(DataError, match="no example 'e3'"):
        back.without(["e3"])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_file_gives_the_same_memory_back(kind, tmp_path):
    make = unit if kind == "dense" else sparse_unit
    voting = Voting(0.07, 9, 0.2)
    memory = memory_of(make(20), some_values(20), voting)
    memory = memory.appended(make(2), some_values(2), some_records(2, EXAMPLE))
    write_memory(memory, tmp_path)
    again, weight = read_memory(tmp_path, memory_facts(memory, 0.25), LABELS)
    assert weight == 0.25 and again.voting == voting and again.examples.keys() == memory.examples.keys()
    queries = make(4)
    found, expected = (each.votes(each.nearest(queries)).toarray() for each in (again, memory))
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_doubt_keeps_a_few_keys_from_answering_for_everything():
    vectors = np.eye(3, 16, dtype=np.float32)
    values = csr_array(np.eye(3, LABELS, dtype=np.float32))
    far = np.zeros((1, 16), dtype=np.float32)
    far[0, 10] = 1.0
    sure, doubtful = (memory_of(vectors, values, Voting(0.1, 3, doubt)) for doubt in (None, 0.6))
    assert sure.votes(sure.nearest(far)).sum() == pytest.approx(1.0)
    assert doubtful.votes(doubtful.nearest(far)).sum() < 0.01
    near = vectors[:1]
    assert doubtful.votes(doubtful.nearest(near)).toarray()[0, 0] > 0.95


def test_a_text_without_a_known_term_gets_no_votes():
    memory = memory_of(sparse_unit(10), some_values(10))
    empty = csr_array((1, 40), dtype=np.float32)
    assert memory.votes(memory.nearest(empty)).nnz == 0 and memory.votes_on(empty, 0) == []


def test_dense_and_sparse_keys_do_not_mix():
    memory = memory_of(unit(4), some_values(4))
    with pytest.raises(DataError, match="dense and sparse"):
        memory.appended(sparse_unit(2), some_values(2), some_records(2))


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0.0}, {"neighbours": 0}, {"neighbours": 2.5}, {"doubt": float("nan")}]
)
def test_a_voting_that_cannot_be_is_refused(wrong):
    with pytest.raises(DataError, match="cannot vote"):
        Voting(**wrong)


def test_parts_of_other_lengths_are_refused():
    with pytest.raises(DataError, match="differ in length"):
        EntryGroup(SparseKeys(sparse_unit(3)), some_values(2), tuple(some_records(3)))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"codes": np.zeros((3, 7), np.int8)}, "fit the model"),
        ({"scales": np.full(3, 1e38, np.float32)}, "not a vector of length 1"),
        ({"label_values": np.full(3, 1e30, np.float32)}, "between -1 and 1"),
        ({"label_values": np.full(3, np.nan, np.float32)}, "between -1 and 1"),
    ],
)
def test_a_damaged_memory_is_refused(damage, said, tmp_path):
    memory = memory_of(unit(3), csr_array(np.eye(3, LABELS, dtype=np.float32)))
    write_memory(memory, tmp_path)
    with np.load(tmp_path / "memory.npz") as arrays:
        kept = dict(arrays)
    np.savez(tmp_path / "memory.npz", **(kept | damage))
    with pytest.raises(DataError, match=said):
        again, _ = read_memory(tmp_path, memory_facts(memory, 0.2), LABELS)
        check_memory(again, unit(1), tmp_path)


def test_an_id_that_is_there_twice_is_refused(tmp_path):
    memory = memory_of(unit(2), some_values(2))
    write_memory(memory, tmp_path)
    line = '{"text": "a", "kind": "example", "id": "e"}\n'
    (tmp_path / "memory.jsonl").write_text(2 * line, "utf-8")
    with pytest.raises(DataError, match="there twice"):
        read_memory(tmp_path, memory_facts(memory, 0.2), LABELS)


def test_a_scan_that_grows_and_shrinks_finds_what_a_new_one_finds(monkeypatch):
    monkeypatch.setattr(keys_module, "SCANNED", 300)
    number, size = 1_200, 100
    vectors = unit(number)
    memory = memory_of(vectors[:0], some_values(0))
    for first in range(0, number, size):
        records = [Record(str(at), EXAMPLE, str(at)) for at in range(first, first + size)]
        memory = memory.appended(vectors[first : first + size], some_values(size), records)
    memory = memory.without(["0", "500", "1199"])
    left = np.delete(np.arange(number), [0, 500, 1_199])
    assert {record.text for group in memory.groups for record in group.records} == set(map(str, left))
    assert any("_scan" in group.keys.__dict__ for group in memory.groups)  # else this shows nothing
    near = memory.nearest(vectors)
    places = zip(near.groups[:, 0].tolist(), near.places[:, 0].tolist(), strict=True)
    nearest = [memory.groups[group].records[place].text for group, place in places]
    assert np.mean([nearest[at] == str(at) for at in left]) > 0.99  # a text is nearest to itself
    assert all(nearest[at] != str(at) for at in (0, 500, 1_199))


def test_examples_are_found_by_their_ids_in_every_block():
    memory = memory_of(unit(0), some_values(0))
    for at in range(5):
        memory = memory.appended(unit(1), some_values(1), [Record("text", EXAMPLE, f"id {at}")])
    assert sorted(memory.examples) == [f"id {at}" for at in range(5)] and len(memory.examples) == 5
    assert "id 9" not in memory.examples
    number, place = memory.examples["id 2"]
    assert memory.groups[number].records[place].id == "id 2"
