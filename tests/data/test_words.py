from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from strategies import targets

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.harden import harden_points, harden_targets, is_soft
from gandalf.data.tf_idf import add_features
from gandalf.data.words import split_words
from gandalf.errors import DataError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("GetWindowTextW", "get window text w"),
        ("get window text", "get window text"),
        ("Array.prototype.map()", "array prototype map"),
        ("HTTPServer2", "http server 2"),
        ("snake_case-and/slash", "snake case and slash"),
        ("ÉcoleÉlève", "école élève"),
        ("E\u0301cole", "école"),  # decomposed accent
        ("M\u0304X", "m\u0304x"),  # an accent without a composed form stays with its letter
        ("हिन्दी भाषा", "हिन्दी भाषा"),  # vowel signs are no letters, and no gaps either
        ("東京タワーTower", "東 京 タ ワ ー tower"),
        ("ไทย", "ไ ท ย"),
        ("한국어 단어", "한국어 단어"),
        ("٣ كتب", "٣ كتب"),
        ("... 🙂 --", "🙂"),
        ("pizza🍕🍕!", "pizza 🍕 🍕"),
        ("❤\ufe0fworks", "❤\ufe0f works"),  # the selector of a picture is a mark
        ("Windows® 10 °C ©", "windows 10 c"),
        ("", ""),
    ],
)
def test_split_words(text, words):
    assert split_words(text) == words.split()


@given(st.text(max_size=20))
def test_words_keep_every_letter_and_digit_in_order(text):
    import unicodedata

    letters = [c for c in unicodedata.normalize("NFC", text) if unicodedata.category(c)[0] in "LN"]
    kept = [c for word in split_words(text) for c in word]
    lowered = [c for c in "".join(letters).lower() if unicodedata.category(c)[0] in "LN"]
    # Final sigma is lower-cased by its place in the word, so words and the whole text may differ in it.
    same = [c.replace("ς", "σ") for c in kept if unicodedata.category(c)[0] in "LN"]
    assert same == [c.replace("ς", "σ") for c in lowered]


def _splits(train, labels, test):
    points = Dataset(csr_array(np.ones((len(train), len(labels)), dtype=np.float32)), train, labels)
    tests = Dataset(csr_array(np.ones((len(test), len(labels)), dtype=np.float32)), test, labels)
    return Splits(points, tests)


WORDS = st.lists(st.sampled_from(["a", "b", "cd", "e9", "ü"]), max_size=5).map(" ".join)


@given(
    st.lists(WORDS, min_size=1, max_size=4),
    st.lists(WORDS, min_size=1, max_size=3),
    st.lists(WORDS, max_size=3),
)
def test_features_are_tf_idf_by_definition(train, labels, test):
    featured, words = add_features(_splits(train, labels, test))
    known = [split_words(text) for text in train + labels]
    in_texts = Counter(word for text in known for word in set(text))
    assert list(words) == sorted(in_texts, key=lambda word: (-in_texts[word], word))
    parts = [
        (featured.train.features, train),
        (featured.test.features, test),
        (featured.train.label_features, labels),
    ]
    for matrix, texts in parts:
        assert matrix.dtype == np.float32
        assert matrix.shape == (len(texts), len(words))
        for row, text in zip(matrix.toarray(), texts, strict=True):
            found = split_words(text)
            weights = [
                found.count(word) * (math.log((1 + len(known)) / (1 + in_texts[word])) + 1) for word in words
            ]
            length = math.sqrt(sum(weight**2 for weight in weights)) or 1.0
            np.testing.assert_allclose(row, [weight / length for weight in weights], rtol=1e-5)


def test_only_the_most_frequent_words_get_a_column_and_none_comes_from_the_test_split():
    featured, words = add_features(_splits(["b a", "a", "c"], ["a b"], ["zebra a"]), max_features=2)
    assert words == ("a", "b")
    assert featured.test.features.toarray().tolist() == [[1.0, 0.0]]


def test_features_need_texts():
    with pytest.raises(DataError, match="need texts"):
        add_features(Splits(Dataset(csr_array(np.ones((1, 1), dtype=np.float32)))))


@given(targets(graded=True), st.sampled_from([0.2, 0.25, 0.5, 0.9]))
def test_threshold_keeps_high_values_and_the_highest_of_each_row(soft, threshold):
    hard = harden_targets(soft, "threshold", threshold=threshold)
    expected = [
        [float(value > 0 and (value >= threshold or value == max(row))) for value in row]
        for row in soft.toarray().tolist()
    ]
    assert hard.toarray().tolist() == expected
    assert hard.nnz == np.sum(expected)
    assert not is_soft(hard)


@given(targets(graded=True))
def test_any_keeps_every_target_as_1(soft):
    hard = harden_targets(soft, "any")
    assert hard.toarray().tolist() == (soft.toarray() > 0).astype(float).tolist()
    assert not is_soft(hard)


@given(targets(graded=True), st.integers(0, 5))
def test_sampling_repeats_with_its_seed_and_keeps_every_certain_target(soft, seed):
    hard = harden_targets(soft, "sample", seed=seed)
    assert (hard != harden_targets(soft, "sample", seed=seed)).nnz == 0
    dense, drawn = soft.toarray(), hard.toarray()
    assert np.all(drawn[dense == 1] == 1)
    assert np.all(drawn[dense == 0] == 0)


def test_sampling_keeps_each_target_with_its_own_probability():
    soft = csr_array(np.full((4000, 2), [0.25, 0.5], dtype=np.float32))
    shares = harden_targets(soft, "sample", seed=3).toarray().mean(axis=0)
    np.testing.assert_allclose(shares, [0.25, 0.5], atol=4 * 0.5 / math.sqrt(4000))  # four standard errors


@given(targets(graded=True), st.integers(0, 3))
def test_copies_are_samples_one_after_the_other_and_hard_points_stay_as_they_are(soft, seed):
    texts = tuple(f"text {at}" for at in range(soft.shape[0]))
    points = Dataset(soft, texts=texts)
    made = harden_points(points, "copies", seed=seed)
    if not any(value not in (0.0, 1.0) for row in soft.toarray().tolist() for value in row):
        assert made == points
        return
    drawn = [harden_targets(soft, "sample", seed=seed + at).toarray() for at in range(3)]
    assert made.targets.toarray().tolist() == np.concatenate(drawn).tolist()
    assert tuple(made.texts) == 3 * texts


@given(targets(graded=True), st.sampled_from(["threshold", "any", "sample"]))
def test_points_are_hardened_as_their_targets_are(soft, how):
    points = Dataset(soft, texts=tuple("x" for _ in range(soft.shape[0])))
    made = harden_points(points, how, seed=4)
    assert made == replace(points, targets=harden_targets(soft, how, seed=4))


def test_unknown_hardening_names_the_known_ones():
    with pytest.raises(DataError, match="choose threshold or any or sample"):
        harden_targets(csr_array(np.ones((1, 1), dtype=np.float32)), "round")
    with pytest.raises(DataError, match="choose threshold or any or sample or copies"):
        harden_points(Dataset(csr_array(np.ones((1, 1), dtype=np.float32))), "round")
