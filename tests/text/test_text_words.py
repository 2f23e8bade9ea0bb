from __future__ import annotations

import math
import pickle
from collections import Counter

import numpy as np
import pytest
from command_line import python
from hypothesis import given
from hypothesis import strategies as st

import gandalf
from gandalf.data.words import split_words
from gandalf.errors import DataError
from gandalf.text.load import load_tokens
from gandalf.text.words import Words, WordsOptions, learn_pieces

WORD = st.text("abcd", min_size=1, max_size=4)
TEXTS = st.lists(st.lists(WORD, max_size=5).map(" ".join), max_size=8)
ANYTHING = st.text(st.characters(), max_size=20)  # halves of surrogate pairs included
SOME = ["get window text", "get the text", "GetWindowTextW", "set window", "the window text w"]


def row(ids):
    """The ids of one encoded text, without the padding, which must all stand on the right."""
    kept = [int(number) for number in ids if number]
    assert list(ids) == kept + [0] * (len(ids) - len(kept))
    return kept


@given(TEXTS, st.integers(1, 3), st.integers(0, 6))
def test_vocabulary_by_hand(texts, min_count, max_words):
    counts = Counter(word for text in texts for word in split_words(text))
    often = [word for word in counts if counts[word] >= min_count]
    often.sort(key=lambda word: (-counts[word], word))
    tokens = Words.fit(texts, WordsOptions(min_count=min_count, max_words=max_words, pieces=0))
    assert list(tokens.words) == often[:max_words]
    assert list(tokens.pieces) == sorted(set("".join(counts)))
    assert tokens.strings[:2] == ["", ""]
    assert tokens.strings[2:] == list(dict.fromkeys([*tokens.words, *tokens.pieces]))
    assert tokens.size == len(tokens.strings)


def longest_first(tokens, word):
    pieces = []
    while word:
        starts = [piece for piece in tokens.pieces if word.startswith(piece)]
        piece = max(starts, key=len, default="")
        pieces += [piece] if piece else []
        word = word[len(piece) or 1 :]
    return pieces


@given(TEXTS, st.lists(st.text("abcde ", max_size=12), max_size=5), st.integers(1, 6))
def test_encode_by_hand(texts, others, max_length):
    tokens = Words.fit(texts, WordsOptions(max_length=max_length, pieces=5))
    numbers = {string: number for number, string in enumerate(tokens.strings)}
    table = tokens.encode([*texts, *others])
    assert table.shape == (len(texts) + len(others), max_length) and table.dtype == np.int32
    for ids, text in zip(table, [*texts, *others], strict=True):
        words = split_words(text)
        parts = [[word] if word in tokens.words else longest_first(tokens, word) for word in words]
        expected = [numbers[string] for part in parts for string in part]
        assert row(ids) == (expected[:max_length] or [1])


@given(st.lists(ANYTHING, max_size=6), ANYTHING)
def test_any_text_has_tokens(texts, other):
    tokens = Words.fit(texts, WordsOptions(pieces=10))
    table = tokens.encode([*texts, other, ""])
    assert (table[:, 0] > 0).all() and (table < tokens.size).all()
    for ids, text in zip(table, texts, strict=False):
        assert (row(ids) == [1]) == (not split_words(text))  # a fitted text is never unknown
    assert row(table[-1]) == [1]


@given(TEXTS)
def test_idf_by_hand(texts):
    tokens = Words.fit(texts, WordsOptions(pieces=5, max_length=4))
    held = [set(row(ids)) for ids in tokens.encode(texts)]
    weights = tokens.idf()
    assert weights.dtype == np.float32 and weights.shape == (tokens.size,) and weights[0] == 0
    for number in range(1, tokens.size):
        frequency = sum(number in ids for ids in held)
        assert weights[number] == pytest.approx(math.log((1 + len(texts)) / (1 + frequency)) + 1)


@given(st.lists(ANYTHING, max_size=6), st.permutations(range(6)))
def test_the_order_of_texts_does_not_matter(texts, order):
    tokens = Words.fit(texts)
    again = Words.fit([texts[i] for i in order if i < len(texts)])
    assert (again.words, again.pieces) == (tokens.words, tokens.pieces)
    assert (again.frequencies == tokens.frequencies).all()


@given(st.lists(ANYTHING, max_size=6))
def test_round_trip(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("model")
    tokens = Words.fit(texts, WordsOptions(max_length=7, pieces=10))
    tokens.save(folder)
    loaded = load_tokens(folder)
    assert isinstance(loaded, Words) and loaded.options == tokens.options
    assert (loaded.words, loaded.pieces, loaded.size) == (tokens.words, tokens.pieces, tokens.size)
    assert (loaded.idf() == tokens.idf()).all()
    assert (loaded.encode(texts) == tokens.encode(texts)).all()
    first = (folder / "words.json").read_bytes()
    loaded.save(folder)
    assert (folder / "words.json").read_bytes() == first


def test_code_and_prose_share_words():
    tokens = Words.fit(SOME)
    code, prose = tokens.encode(["GetWindowTextW", "get window text"])
    assert row(code)[:3] == row(prose)


def test_unseen_words_share_pieces_with_each_other_and_with_words():
    related = ["configure", "configured", "configuration", "configurable", "configures"]
    tokens = Words.fit(["window text", "window text", *related])
    first, second = tokens.encode(["configuring", "configurist"])
    shared = set(row(first)) & set(row(second))
    assert "configur" in [tokens.strings[number] for number in shared]
    joined, apart = tokens.encode(["windowtext", "window text"])
    assert row(joined) == row(apart)


def test_rare_words_are_broken_up():
    tokens = Words.fit(["often often rarely", "often"], WordsOptions(min_count=2, pieces=0))
    assert tokens.words == ("often",)
    assert len(row(tokens.encode(["rarely"])[0])) == len("rarely")
    whole = Words.fit(["often often rarely", "often"], WordsOptions(min_count=1, pieces=0))
    assert len(row(whole.encode(["rarely"])[0])) == 1


def test_unseen_characters_are_passed_over():
    tokens = Words.fit(["ab ab"])
    assert row(tokens.encode(["aжb"])[0]) == row(tokens.encode(["a b"])[0])
    assert row(tokens.encode(["жжж"])[0]) == [1]


def test_a_very_long_word_is_cut():
    tokens = Words.fit(["ab ab"], WordsOptions(max_length=5))
    assert len(row(tokens.encode(["ba" * 100_000])[0])) == 5


def test_pieces_are_those_of_many_words_not_of_frequent_ones():
    words = {f"{start}ness": 1 for start in "abcdefghij"} | {"qqqq": 30}
    pieces = learn_pieces(words, number=4)
    assert "ness" in pieces and "qqqq" not in pieces
    assert learn_pieces(words, number=4) == pieces


def test_an_iterator_is_as_good_as_a_list():
    tokens, again = Words.fit(SOME), Words.fit(iter(SOME))
    assert again.words == tokens.words and again.num_texts == len(SOME)
    assert (again.frequencies == tokens.frequencies).all()


def test_workers_learn_the_same(monkeypatch):
    monkeypatch.setattr("gandalf.text.workers.CHUNK", 300)
    texts = list(gandalf.load("man").train.texts)[:2_000]
    tokens, again = Words.fit(texts, workers=0), Words.fit(texts, workers=2)
    assert (again.words, again.pieces, again.num_texts) == (tokens.words, tokens.pieces, len(texts))
    assert (again.frequencies == tokens.frequencies).all()


def test_manual_pages_leave_little_unknown():
    splits = gandalf.load("man")
    tokens = Words.fit([*splits.train.texts, *splits.train.label_texts])
    table = tokens.encode(splits.test.texts)
    assert (table == 1).sum() == 0
    assert (tokens.encode(splits.test.texts) == table).all()  # broken words are remembered rightly
    assert (pickle.loads(pickle.dumps(tokens)).encode(splits.test.texts) == table).all()


def test_broken_words_are_forgotten_before_they_fill_memory(monkeypatch):
    monkeypatch.setattr("gandalf.text.words._CACHED_WORDS", 2)
    tokens = Words.fit(["ab ab"])
    rows = [tuple(row(tokens.encode([word])[0])) for word in ("aab", "abb", "bba", "aab")]
    assert rows[0] == rows[3] and len(tokens._piece_ids) <= 2


@pytest.mark.parametrize("wrong", [{"max_length": 0}, {"min_count": 0}, {"pieces": -1}, {"max_words": 1.5}])
def test_options_out_of_range(wrong):
    with pytest.raises(DataError, match=next(iter(wrong))):
        WordsOptions(**wrong)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda text: text[: len(text) // 2], "cut short or damaged"),
        (lambda text: "[]", "holds no vocabulary"),
        (lambda text: "{}", "KeyError"),
        (lambda text: "[" * 100_000, "cut short or damaged"),
        (lambda text: text.replace('"words":["', '"words":["text","text","'), "listed twice"),
        (lambda text: text.replace('"words":["', '"words":[3,"'), "a list of words"),
        (lambda text: text.replace('"max_length":32', '"max_length":0'), "max_length"),
        (lambda text: text.replace('"max_length":32', '"longest":32'), "longest"),
        (lambda text: text.replace('"frequencies":[0,', '"frequencies":['), "one for each token"),
        (lambda text: text.replace('"frequencies":[0,', '"frequencies":[0.5,'), "one for each token"),
        (lambda text: text.replace('"num_texts":5', '"num_texts":-5'), "one for each token"),
    ],
)
def test_damaged_files(tmp_path, damage, sentence):
    Words.fit(SOME).save(tmp_path)
    file = tmp_path / "words.json"
    before = file.read_text("utf-8")
    file.write_text(damage(before), "utf-8")
    assert file.read_text("utf-8") != before
    with pytest.raises(DataError, match=sentence) as raised:
        load_tokens(tmp_path)
    assert "words.json" in str(raised.value)


def test_files_that_are_no_text_or_not_there(tmp_path):
    with pytest.raises(DataError, match="holds no vocabulary"):
        load_tokens(tmp_path)
    (tmp_path / "words.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        load_tokens(tmp_path)


def test_only_learning_pieces_needs_an_extra():
    code = (
        "import sys; sys.modules['tokenizers'] = None; sys.modules['torch'] = None\n"
        "from gandalf.text.words import Words, WordsOptions\n"
        "print(Words.fit(['a b', 'a'], WordsOptions(pieces=0)).encode(['a ba'])[0, :4].tolist())\n"
        "Words.fit(['a b'])\n"
    )
    done = python(code)
    assert done.stdout.strip() == "[2, 3, 2, 0]"
    assert "pip install 'gandalf-xmc[train]'" in done.stderr
