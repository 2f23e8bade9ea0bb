"""The index against exact search: what it finds, what it excludes, labels added later, and its files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from small_model import small_model

from gandalf.model import load_model, save_model
from gandalf.model.exact import top_k
from gandalf.model.part import sample_label_texts
from gandalf.model.save import foreign_files, save_derived
from gandalf.model_folder import INDEX, INDEX_FACTS
from gandalf.nets.heads import Table
from gandalf.nets.int8_table import Int8Table, _rounded
from gandalf.predict import codes, hnsw_files
from gandalf.predict.codes import build_codes
from gandalf.predict.hnsw import build_hnsw
from gandalf.predict.hnsw_files import stored_or_built
from gandalf.predict.index import ENOUGH_RECALL, QUERIES, IndexSearch, recalled
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Query, answer

COLOURS = [f"colour{a}{b}" for a in "abcdefgh" for b in "abcde"]
THINGS = [f"thing{a}{b}" for a in "abcdef" for b in "abcde"]
LABELS = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]  # 1,200


@pytest.fixture(scope="module")
def model():
    return small_model(labels=LABELS, ids=False)


INDEXES = {"hnsw": build_hnsw, "codes": build_codes}


@pytest.fixture(scope="module", params=INDEXES)
def index(model, request):
    return INDEXES[request.param](model)


@pytest.fixture(scope="module")
def x(model):
    return model.vectors(LABELS[::7])


def test_recall_is_what_it_says(model, index):
    asked = model.vectors([LABELS[at] for at in np.linspace(0, 1199, 1000).astype(int)])
    found, exact = IndexSearch(index, model.head)(asked, 10)[0], top_k(asked, model.head, 10)[0]
    by_hand = np.mean(
        [len({*one} & {*other}) / 10 for one, other in zip(found.tolist(), exact.tolist(), strict=True)]
    )
    assert index.recall == pytest.approx(by_hand) == pytest.approx(recalled(found, exact))
    assert ENOUGH_RECALL <= index.recall <= 1 and index.queries == 1000


def test_scores_are_those_of_the_exact_search(model, index, x):
    ids, scores = IndexSearch(index, model.head)(x, 5)
    exact_ids, exact_scores = top_k(x, model.head, 5)
    same = ids == exact_ids
    assert same.mean() > 0.95
    assert scores[same] == pytest.approx(exact_scores[same], abs=1e-5)
    assert (np.diff(scores, axis=1) <= 0).all()
    by_hand = (x[:, None] * model.head.rows.detach()[ids]).sum(2) + model.head.bias.detach()[ids]
    assert scores == pytest.approx(by_hand.numpy(), abs=1e-5)


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_one_vector_finds_what_a_batch_finds(model, index, x, k, kind):
    head = model.head if kind == "float32" else Int8Table.of(model.head)
    search = IndexSearch(replace(index, labels=1190), head)  # ten labels were added later
    ids, scores = search(x, k)
    alone = [search(x[at : at + 1], k) for at in range(len(x))]
    assert (np.concatenate([found for found, _ in alone]) == ids).mean() > 0.99  # equals in the last digit
    np.testing.assert_allclose(np.concatenate([found for _, found in alone]), scores, atol=1e-5)


def test_turned_rows_and_texts_have_the_products_of_both(model):
    """With all axes nothing is lost; with some, as little as can be."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(12, 12))
    rows, texts = rng.normal(size=(300, 12)), (rng.normal(size=(200, 12)) @ mix).astype(np.float32)
    rows = (rows * np.geomspace(1, 0.01, 12) + 0.1).astype(np.float32)
    products = rows @ texts.T
    of_rows, of_texts = codes.axes(rows, texts, 12)
    np.testing.assert_allclose((rows @ of_rows) @ (texts @ of_texts).T, products, atol=1e-4)
    left = []
    for number in (4, 5, 8, 10):
        of_rows, of_texts = codes.axes(rows, texts, number)
        assert of_rows.shape == of_texts.shape == (12, number // 2 * 2)
        missed = products - (rows @ of_rows) @ (texts @ of_texts).T
        left.append(np.square(missed).sum() / np.square(products).sum())
        best = np.linalg.svd(products, compute_uv=False) ** 2  # Eckart and Young: no fewer axes miss less
        assert left[-1] == pytest.approx(best[number // 2 * 2 :].sum() / best.sum(), rel=1e-3, abs=1e-9)
    assert left[0] == left[1] > left[2] > left[3]


def test_rows_of_many_labels_are_turned(model, x, monkeypatch):
    monkeypatch.setattr(codes, "MANY", 1200)
    monkeypatch.setattr(codes, "AXES", 10)
    monkeypatch.setattr(codes, "DEPTHS_TURNED", (20, 60, 400))
    found = build_codes(model)
    assert found.turn is not None and found.recall >= ENOUGH_RECALL and "5 pairs of axes" in str(found)
    ids, scores = IndexSearch(found, model.head)(x, 5)
    exact_ids, exact_scores = top_k(x, model.head, 5)
    assert recalled(ids, exact_ids) > 0.9
    assert scores[ids == exact_ids] == pytest.approx(exact_scores[ids == exact_ids], abs=1e-5)
    monkeypatch.setattr(codes, "AXES", 2)  # two of twelve tell too little
    monkeypatch.setattr(codes, "DEPTHS_TURNED", (20,))
    assert build_codes(model).turn is None


def test_halves_of_texts():
    assert sorted(codes.mixed_halves(["a b c", "d"])) in (["a b b c", "d d"], ["a b d", "d b c"])


def test_rounded_rows_are_scored_again_with_those_of_the_head(model, x):
    ids, scores = IndexSearch(build_hnsw(model, "int8"), model.head)(x, 5)
    by_hand = (x[:, None] * model.head.rows.detach()[ids]).sum(2) + model.head.bias.detach()[ids]
    assert scores == pytest.approx(by_hand.numpy(), abs=1e-5) and (np.diff(scores, axis=1) <= 0).all()


def test_excluded_pairs_are_never_found(model, index, x):
    best = top_k(x, model.head, 3)[0]
    rows = np.repeat(np.arange(len(x)), 3)
    exclude = csr_array((np.ones(best.size, dtype=bool), (rows, best.ravel())), shape=(len(x), 1200))
    ids, _ = IndexSearch(index, model.head)(x, 5, exclude)
    exact = top_k(x, model.head, 5, exclude=exclude)[0]
    assert not any(set(one) & set(other) for one, other in zip(ids.tolist(), best.tolist(), strict=True))
    assert recalled(ids, exact) > 0.95


def test_many_labels_are_searched_exactly(model, index, x):
    nothing = csr_array((3, 1200), dtype=bool)
    ids, scores = IndexSearch(index, model.head)(x[:3], 1300, nothing)
    exact = top_k(x[:3], model.head, 1300)
    assert (ids == exact[0]).all() and (scores == exact[1]).all() and (ids[:, 1200:] == -1).all()
    # An index with the head's own scores answers by itself.
    as_found = IndexSearch(index, model.head)(x[:3], 1300)[0]
    assert (
        as_found.shape == (3, 1300)
        and (as_found[:, 1200:] == -1).all()
        and recalled(as_found, exact[0]) > 0.9
    )


def test_labels_added_later_are_found(model, index):
    longer = model.add_labels(["thingaa thingbb", "colourcc colourdd"])
    found = IndexSearch(index, longer.head)(longer.vectors(["thingaa thingbb", "colourcc colourdd"]), 3)[0]
    exact = top_k(longer.vectors(["thingaa thingbb", "colourcc colourdd"]), longer.head, 3)[0]
    assert recalled(found, exact) > 0.8
    assert {1200, 1201} & set(exact.ravel()) == {1200, 1201} & set(found.ravel()) != set()


def test_a_predictor_with_an_index(model, index):
    fast, exact = Predictor(model, search=IndexSearch(index, model.head)), Predictor(model)
    query = Query(("colouraa thingbb", "colourhe thingfe"), 3, deny=(0,))
    ((one, other),) = answer(fast, [query])
    assert [label for label, _ in one] == [label for label, _ in answer(exact, [query])[0][0]]
    assert len(other) == 3
    assert fast.named("colouraa thingbb", 1)[0][0] == "colouraa thingbb"


def test_more_candidates_are_scored_again_until_the_recall_suffices(model, monkeypatch):
    """Of codes that tell little apart the best of all labels are found when nearly all are scored again."""
    scan = codes.make_scan

    def coarse(rows):
        few = rows.copy()
        few[:, 1 : model.head.dim] = 0.0  # the bias, behind them, stays
        return scan(few)

    monkeypatch.setattr(codes, "make_scan", coarse)
    found = build_codes(model)
    assert found.depth > build_codes_of(model, scan, monkeypatch).depth
    asked = model.vectors(LABELS[::11])
    assert found.recall >= ENOUGH_RECALL or found.depth == 1200
    assert recalled(IndexSearch(found, model.head)(asked, 10)[0], top_k(asked, model.head, 10)[0]) > 0.95


def build_codes_of(model, scan, monkeypatch):
    monkeypatch.setattr(codes, "make_scan", scan)
    return build_codes(model)


def test_a_handful_of_labels_has_codes_too():
    model = small_model(labels=LABELS[:5], ids=False)
    found = build_codes(model)
    assert (found.recall, found.depth) == (1.0, 5)
    x = model.vectors(LABELS[:3])
    np.testing.assert_array_equal(IndexSearch(found, model.head)(x, 2)[0], top_k(x, model.head, 2)[0])


@pytest.mark.parametrize("build", [build_hnsw, build_codes])
def test_recall_with_rounded_rows_is_against_rows_as_they_were(model, build, monkeypatch):
    index, x = build(model, "int8"), model.vectors(sample_label_texts(model, QUERIES))
    exact, found = top_k(x, model.head, 10)[0], IndexSearch(index, Int8Table.of(model.head))(x, 10)[0]
    hits = sum(len(set(one) & set(other)) for one, other in zip(exact, found, strict=True))
    assert index.recall == hits / exact.size

    def coarse(table):
        """Two bits of each number are left."""
        rounded = Int8Table(*_rounded(table.rows.detach()), table.bias.detach().float())
        rounded.codes.bitwise_and_(-64)
        return rounded

    monkeypatch.setattr(Int8Table, "of", coarse)
    assert build(model, "int8").recall < index.recall - 0.05


# ---- files


@pytest.fixture
def folder(model, tmp_path):
    save_model(model, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("rows", ["float32", "int8"])
def test_what_is_stored_finds_the_same(model, folder, x, rows):
    made, new = stored_or_built(model, folder, rows)
    again, newer = stored_or_built(load_model(folder), folder, rows)
    assert (new, newer) == (True, False)
    assert (again.width, again.recall, again.queries) == (made.width, made.recall, made.queries)
    one, other = (IndexSearch(each, model.head)(x, 5) for each in (made, again))
    assert (one[0] == other[0]).all() and (one[1] == other[1]).all()
    facts = json.loads((folder / INDEX_FACTS).read_text())
    assert facts["recall@10"] == made.recall >= ENOUGH_RECALL and facts["rows"] == rows


def test_the_index_is_part_of_the_folder_and_not_of_a_copy(model, folder, tmp_path):
    stored_or_built(model, folder, "float32")
    assert foreign_files(folder) == []
    save_derived(model.add_labels(["colouraa colourbb"]), folder, tmp_path / "longer")
    assert not (tmp_path / "longer" / INDEX).exists() and (folder / INDEX).exists()


def spoilt(folder, name, change):
    from safetensors.numpy import load_file, save_file

    arrays = load_file(folder / INDEX)
    change(arrays[name])
    save_file(arrays, folder / INDEX)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("neighbors", lambda a: a.__setitem__(0, 1200)),
        ("neighbors", lambda a: a.__setitem__(0, -2)),
        ("offsets", lambda a: a.__setitem__(1, 10**9)),
        ("levels", lambda a: a.__setitem__(0, 99)),
        ("levels", lambda a: a.__setitem__(int(a.argmax()), 1)),
    ],
)
def test_damaged_links_are_built_again(model, folder, monkeypatch, name, change):
    stored_or_built(model, folder, "float32")
    spoilt(folder, name, change)
    assert stored_or_built(model, folder, "float32")[1]


def test_other_rows_or_another_kind_are_built_again(model, folder):
    stored_or_built(model, folder, "float32")
    assert stored_or_built(model, folder, "int8")[1]
    other = load_model(folder)
    with torch.no_grad():
        other.head.rows[5, 0] += 1
    assert stored_or_built(other, folder, "int8")[1]


def test_a_folder_that_cannot_be_written_is_no_obstacle(model, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("read-only")

    monkeypatch.setattr(hnsw_files, "_write", full)
    assert stored_or_built(model, tmp_path, "float32")[1]


# ---- rows of 8 bits


def test_rows_are_rounded_by_half_a_step_at_most():
    table = Table(50, 8)
    with torch.no_grad():
        table.rows[3] = 0.0
    small = Int8Table.of(table)
    rows, bias = small.block(0, 50)
    steps = table.rows.abs().amax(dim=1) / 127
    assert ((rows - table.rows).abs().amax(dim=1) <= steps / 2 + 1e-7).all()
    assert torch.equal(bias, table.bias) and rows.dtype == torch.float32 and small.codes.dtype == torch.int8
    ids = torch.tensor([[4, 3], [49, 4]])
    assert torch.equal(small.at(ids)[0], rows[ids]) and torch.equal(small.at(ids)[1], bias[ids])


def test_predictions_with_rounded_rows(model, x):
    model = replace(model)
    exact = top_k(x, model.head, 5)[0]
    model.head = Int8Table.of(model.head)
    assert recalled(Predictor(model).predict(LABELS[::7], 5)[0], exact) > 0.95
    longer = model.add_labels(["colouraa colourbb"])
    assert longer.num_labels == 1201 and longer.head.codes.dtype == torch.int8
    assert torch.equal(longer.head.block(0, 1200)[0], model.head.block(0, 1200)[0])
