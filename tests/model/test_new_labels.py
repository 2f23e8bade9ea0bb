"""Labels added to a model: what they are made of, what stays, what is refused, and that they are found."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit
from small_model import LABELS, small_model

from gandalf.errors import DataError
from gandalf.model import Model, load_model, save_model
from gandalf.model.added_labels import ADDED
from gandalf.model.new_labels import known_labels
from gandalf.model.new_rows import Evidence, Known, NewRows, _bias_change, fit_new_rows, unit
from gandalf.model.row_map import fit_row_map
from gandalf.predict.predictor import Predictor

WORDS = ["red", "green", "blue", "gold", "pink", "grey", "teal", "lime", "navy", "plum"]
THINGS = ["boat", "book", "lamp", "road", "tree", "fish", "coat", "door", "ring", "bell"]
PAIRS = [f"{colour} {thing}" for colour in WORDS for thing in THINGS]


@pytest.fixture(scope="module")
def pairs():
    """A model of a hundred labels of two words each, whose rows answer to the labels' own words."""
    return small_model(labels=PAIRS, texts=["black sail", "dark sail", "night sail", *PAIRS] * 2)


def scores(model: Model, text: str) -> np.ndarray:
    x = model.vectors([text])[0]
    return (model.head.rows @ x + model.head.bias).detach().numpy()


# ---- rows and biases, by brute force


def known(labels=60, dim=5, seed=0):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(0.3, 1, (labels, dim))
    rows = 2 * vectors @ np.linalg.qr(rng.normal(size=(dim, dim)))[0] + rng.normal(0, 1.0, (labels, dim))
    return Known(vectors, rows, rng.normal(-3, 0.1, labels))


def test_length_and_bias_make_left_out_rows_as_probable_as_learned_ones():
    """At the best scale and offset both moments of the probabilities agree, summed pair by pair."""
    of = known()
    maker = fit_new_rows(of, np.random.default_rng(0))
    student, teacher = [], []
    left_out = maker.row_map.left_out(of.vectors, of.rows)
    directions = maker.directions(Evidence.of_texts(of.vectors), left_out)
    for query in range(60):
        for label in range(60):
            if query != label:
                student.append(of.vectors[query] @ directions[label])
                teacher.append(expit(of.vectors[query] @ of.rows[label] + of.biases[label]))
    found = expit(maker.scale * np.array(student) + maker.offset)
    assert np.mean(found) == pytest.approx(np.mean(teacher), rel=1e-3)
    assert np.mean(found * student) == pytest.approx(np.mean(np.array(teacher) * student), rel=1e-2)


def test_a_row_is_the_weighted_sum_of_its_witnesses():
    of, rng = known(), np.random.default_rng(1)
    row_map = fit_row_map(of.vectors, of.rows, rng)
    maker = NewRows(row_map, of.vectors, scale=3.0, offset=-2.0)
    x, sums, near = rng.normal(size=5), rng.normal(size=5), rng.normal(size=5)
    one = (np.array([each]) for each in (x, sums, 2.0, near, 3.0))
    (row,), (bias,) = maker(Evidence(*one))
    (plain,), (plain_bias,) = maker(Evidence.of_texts(x[None]))
    assert plain_bias == -2.0 and abs(bias - plain_bias) > 0.1
    as_often = expit(of.vectors @ plain + plain_bias).mean()
    assert expit(of.vectors @ row + bias).mean() == pytest.approx(as_often)

    def length_1(vector):
        return vector / np.linalg.norm(vector)

    of_map = row_map.explained / (1 - row_map.explained)
    assert 0.2 < of_map < 50
    mapped = row_map(x[None])[0] - of.rows.mean(0)
    expected = of_map * length_1(mapped) + 1.5 * length_1(near)
    expected += 3 * length_1(row_map.discriminant(((x + sums) / 3)[None])[0])
    np.testing.assert_allclose(row, 3.0 * length_1(expected))


def test_more_evidence_does_not_make_a_label_more_probable():
    rng = np.random.default_rng(0)
    before, after = rng.normal(-3, 1, (50, 4)), rng.normal(2, 3, (50, 4))
    shift = _bias_change(before, after)
    np.testing.assert_allclose(expit(after + shift).mean(0), expit(before).mean(0), rtol=1e-6)
    np.testing.assert_allclose(_bias_change(before, before), 0, atol=1e-9)


def test_rows_that_are_linear_in_the_texts_come_back():
    """Where the map explains everything, a held-out label gets the direction of the row it would have had."""
    rng = np.random.default_rng(0)
    vectors, linear = rng.normal(size=(200, 6)), rng.normal(size=(6, 6))
    rows = vectors @ linear
    maker = fit_new_rows(Known(vectors[:180], rows[:180], np.full(180, -4.0)), rng)
    found, _ = maker(Evidence.of_texts(vectors[180:]))
    true = unit(rows[180:] - rows[:180].mean(0))
    assert ((unit(found) * true).sum(1) > 0.999).all()


def test_each_label_is_made_as_if_it_were_alone(pairs):
    several = pairs.add_labels(
        ["black boat", "black sail"], examples=[[], ["night sail"]], neighbours=[[3], []]
    )
    alone = pairs.add_labels(["black sail"], examples=[["night sail"]])
    torch.testing.assert_close(several.head.rows[-1], alone.head.rows[-1])
    torch.testing.assert_close(several.head.bias[-1], alone.head.bias[-1])


# ---- the model


def test_a_new_label_is_found_by_its_text(pairs):
    longer = pairs.add_labels(["black sail"])
    assert longer.num_labels == 101 and longer.label_texts[-1] == longer.label_ids[-1] == "black sail"
    assert Predictor(longer).named("black sail", 1)[0][0] == "black sail"
    assert Predictor(longer).named("red boat", 1)[0][0] == "red boat"


def test_examples_and_neighbours_draw_a_label_to_them(pairs):
    def rank(text, **more):
        found = scores(pairs.add_labels(["black sail"], **more), text)
        return int((found > found[-1]).sum())

    assert rank("gold fish", examples=[["gold fish"] * 5]) < rank("gold fish")
    assert rank("gold fish", neighbours=[["gold fish"]]) < rank("gold fish")


def test_what_was_there_stays_bit_by_bit(pairs):
    rows, biases = pairs.head.rows.detach().clone(), pairs.head.bias.detach().clone()
    config = dict(pairs.config)
    drawn = torch.random.get_rng_state()
    longer = pairs.add_labels(["black sail", "dark sail"])
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert torch.equal(pairs.head.rows, rows) and torch.equal(pairs.head.bias, biases)
    assert (pairs.config, pairs.num_labels, len(pairs.label_texts)) == (config, 100, 100)
    assert torch.equal(longer.head.rows[:100], rows) and torch.equal(longer.head.bias[:100], biases)
    assert longer.calibration == pairs.calibration
    x = pairs.vectors(["red boat", "black sail", ""])
    for label in (0, 57, 99):  # the score of a known label is the same sum of the same numbers
        before, after = (x @ model.head.rows[label] + model.head.bias[label] for model in (pairs, longer))
        assert torch.equal(before, after)


def test_the_same_labels_give_the_same_model(pairs):
    first, second = (pairs.add_labels(["black sail"], examples=[["night sail"]]) for _ in range(2))
    assert torch.equal(first.head.rows, second.head.rows) and torch.equal(first.head.bias, second.head.bias)


def test_added_labels_are_not_learned_from(pairs):
    once = pairs.add_labels(["black sail"])
    twice = once.add_labels(["dark sail"])
    assert [record["labels"] for record in twice.config[ADDED]] == [1, 1]
    assert len(known_labels(twice).rows) == 100
    torch.testing.assert_close(twice.head.rows[-1], pairs.add_labels(["dark sail"]).head.rows[-1])


def test_very_many_labels_are_learned_from_in_part(pairs, monkeypatch):
    monkeypatch.setattr("gandalf.model.new_labels.MOST", 30)
    of = known_labels(pairs)
    assert of.rows.shape == (30, 12) and len(np.unique(of.vectors, axis=0)) == 30
    assert pairs.add_labels(["black sail"]).config[ADDED][0]["fitted_on"] == 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_round_trip(dtype, tmp_path):
    model = small_model()
    model.head.to(dtype)
    longer = model.add_labels(["tar archives"], ["new"], [["pack files", " "]], [["L1", "gzip", 2]])
    save_model(longer, tmp_path / "m")
    found = load_model(tmp_path / "m")
    assert torch.equal(found.head.rows, longer.head.rows) and torch.equal(found.head.bias, longer.head.bias)
    assert found.head.rows.dtype == dtype
    assert found.label_ids == ["L0", "L1", "L2", "L3", "L4", "new"]
    assert found.label_texts == [*LABELS, "tar archives"]
    record = found.config[ADDED][0]
    assert record == longer.config[ADDED][0] and record["map_strength"] > 0
    assert (record["labels"], record["with_examples"], record["with_neighbours"]) == (1, 1, 1)
    card = (tmp_path / "m" / "README.md").read_text("utf-8")
    assert "Added labels" in card and "the last 1 label in" in card
    save_model(model, tmp_path / "old")
    assert "Added labels" not in (tmp_path / "old" / "README.md").read_text("utf-8")


@pytest.mark.parametrize("kind", ["bag-of-words", "inception"])
@pytest.mark.parametrize("labels", [["one"], ["one", "two"]])
def test_tiny_models(kind, labels):
    longer = small_model(kind, labels=labels).add_labels(["three"], examples=[["3"]], neighbours=[[0]])
    assert bool(longer.head.rows.isfinite().all()) and bool(longer.head.bias.isfinite().all())


# ---- what is refused


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"texts": ["tar", "GZIP "]}, "'GZIP' is a label of the model already; leave it out"),
        ({"texts": ["tar", "tar"]}, "'tar' is there twice"),
        ({"texts": ["tar", " "]}, "the label has no text"),
        ({"texts": []}, "there is no label to add"),
        ({"texts": [5]}, "text of a label is not a string"),
        ({"texts": "tar"}, "texts holds a string"),
        ({"texts": ["tar"], "examples": ["pack"]}, "examples holds a string"),
        ({"texts": ["tar"], "neighbours": [["gzip"], []]}, r"neighbours has 2 entries.* 1 texts"),
        ({"texts": ["tar"], "ids": ["L3"]}, "the id 'L3' of 'tar' is taken"),
        (
            {"texts": ["tar"], "neighbours": [["zip"]]},
            "the neighbour 'zip' of 'tar' is no label of the model",
        ),
        ({"texts": ["tar"], "neighbours": [[5]]}, "the neighbour 5 of 'tar' is no label"),
        ({"texts": ["tar"], "neighbours": [[-1]]}, "the neighbour -1 of 'tar' is no label"),
    ],
)
def test_refusals(given, sentence):
    with pytest.raises(DataError, match=sentence):
        small_model().add_labels(**given)


def test_ids_where_the_model_has_none():
    model = small_model(ids=False)
    with pytest.raises(DataError, match="has the id 'x', and the model's labels have none"):
        model.add_labels(["tar"], ["x"])
    assert model.add_labels(["tar"]).label_ids is None
