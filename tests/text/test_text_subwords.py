from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gandalf
from gandalf.errors import DataError
from gandalf.text.load import load_tokens
from gandalf.text.subwords import Subwords, SubwordsOptions

ANYTHING = st.text(st.characters(), max_size=20)  # halves of surrogate pairs included
SOME = ["get window text", "get the text", "GetWindowTextW", "set window", "HTTPServer2 http server"] * 2


def row(ids):
    """The ids of one encoded text, without the padding, which must all stand on the right."""
    kept = [int(number) for number in ids if number]
    assert list(ids) == kept + [0] * (len(ids) - len(kept))
    return kept


def word_level(vocabulary, unknown="<unk>", special=()):
    """The text of a tokenizer.json that cuts at spaces, as a pre-trained model might bring it."""
    wrap = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": name, "type_id": 0}} for name in special]
        + [{"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in special
        },
    }
    return json.dumps(
        {
            "version": "1.0",
            "padding": {
                "strategy": {"Fixed": 9},
                "direction": "Left",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "x",
            },
            "added_tokens": [],
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": wrap if special else None,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown},
        }
    )


def with_number(text, number):
    """The text of a tokenizer.json whose last token has another number."""
    found = json.loads(text)
    vocabulary = found["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] = number
    return json.dumps(found)


@settings(max_examples=40)
@given(st.lists(ANYTHING, max_size=6), ANYTHING, st.integers(1, 5))
def test_any_text_has_tokens_and_comes_back(tmp_path_factory, texts, other, max_length):
    folder = tmp_path_factory.mktemp("model")
    tokens = Subwords.fit(texts, SubwordsOptions(max_length=max_length, size=50))
    every = [*texts, other, "", "[PAD] [UNK]"]
    table = tokens.encode(every)
    assert table.shape == (len(every), max_length) and table.dtype == np.int32
    assert all(row(ids) for ids in table) and (table < tokens.size).all()
    assert row(table[-2]) == [1]
    tokens.save(folder)
    loaded = load_tokens(folder)
    assert isinstance(loaded, Subwords) and loaded.size == tokens.size == len(tokens.strings)
    assert (loaded.encode(every) == table).all() and (loaded.idf() == tokens.idf()).all()
    assert loaded.tokenizer == tokens.tokenizer == Subwords.fit(texts, SubwordsOptions(size=50)).tokenizer


@given(st.lists(st.text("ab ", max_size=8), max_size=6))
@settings(max_examples=40)
def test_idf_by_hand(texts):
    tokens = Subwords.fit(texts)
    held = [set(row(ids)) for ids in tokens.encode(texts)]
    weights = tokens.idf()
    assert weights.dtype == np.float32 and weights[0] == 0
    for number in range(1, tokens.size):
        frequency = sum(number in ids for ids in held)
        assert weights[number] == pytest.approx(math.log((1 + len(texts)) / (1 + frequency)) + 1)


def test_code_and_prose_share_tokens():
    tokens = Subwords.fit(SOME)
    code, prose, camel, apart = tokens.encode(
        ["GetWindowTextW", "get window text", "HTTPServer2", "http server 2"]
    )
    assert row(code)[:3] == row(prose) and len(row(prose)) == 3
    assert row(camel) == row(apart)


def test_the_vocabulary_keeps_to_its_size():
    texts = list(gandalf.load("man").train.texts)
    tokens = Subwords.fit(texts, SubwordsOptions(size=600))
    assert tokens.size == 600
    assert len({string for string in tokens.strings if string}) == 598
    few = Subwords.fit(texts, SubwordsOptions(size=10))  # fewer than there are characters, which all stay
    assert {len(string) for string in few.strings[2:]} == {1} and (few.encode(texts) != 1).all()
    assert few.tokenizer == Subwords.fit(texts, SubwordsOptions(size=10)).tokenizer


def test_padding_stands_first_wherever_the_file_has_it():
    vocabulary = {"<unk>": 0, "<s>": 1, "<pad>": 2, "a": 3, "b": 4}
    tokens = Subwords(word_level(vocabulary), 4)
    assert tokens.tokenizer_ids.tolist() == [2, 1, 0, 3, 4] and tokens.size == 5
    assert tokens.encode(["a b", "q", "", "a <pad> b"]).tolist() == [
        [3, 4, 0, 0],
        [2, 0, 0, 0],
        [2, 0, 0, 0],
        [3, 2, 2, 2],
    ]
    assert tokens.strings[3:] == ["a", "b"]


def test_padding_is_added_where_the_file_has_none():
    tokens = Subwords(word_level({"a": 0, "b": 1, "[UNK]": 2}, "[UNK]"), 3)
    assert tokens.tokenizer_ids.tolist() == [-1, 0, 1, 2] and tokens.size == 4
    assert tokens.encode(["b a b a", "", "q"]).tolist() == [[2, 1, 2], [3, 0, 0], [3, 0, 0]]
    assert tokens.strings[:3] == ["", "a", "b"]


def test_special_tokens_of_a_pre_trained_model(tmp_path):
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "a": 3, "b": 4}
    (tmp_path / "tokenizer.json").write_text(word_level(vocabulary, "[UNK]", ["[CLS]"]))
    tokens = Subwords.from_file(tmp_path, max_length=3)
    assert tokens.encode(["a b a", ""]).tolist() == [[2, 3, 4], [2, 0, 0]]
    assert Subwords.from_file(tmp_path / "tokenizer.json", max_length=3).size == tokens.size
    assert tokens.idf().tolist() == [0, 1, 1, 1, 1]
    counted = tokens.counted(["a b", "a"])
    assert counted.idf()[3] < counted.idf()[4] < counted.idf()[1]
    counted.save(tmp_path)
    loaded = load_tokens(tmp_path)
    assert (loaded.idf() == counted.idf()).all() and (loaded.encode(["a"]) == tokens.encode(["a"])).all()
    with pytest.raises(DataError, match="max_length is 1"):
        Subwords.from_file(tmp_path, max_length=1)


def test_a_copy_is_the_same():
    tokens = Subwords.fit(SOME)
    other = copy.deepcopy(tokens)
    assert (other.encode(["[PAD] get"]) == tokens.encode(["[PAD] get"])).all()
    assert (other.idf() == tokens.idf()).all()


def test_an_iterator_is_as_good_as_a_list():
    tokens, again = Subwords.fit(SOME), Subwords.fit(iter(SOME))
    assert again.tokenizer == tokens.tokenizer and again.num_texts == len(SOME)
    assert (again.frequencies == tokens.frequencies).all()


@pytest.mark.parametrize("wrong", [{"max_length": 0}, {"size": 2}])
def test_options_out_of_range(wrong):
    with pytest.raises(DataError, match=next(iter(wrong))):
        SubwordsOptions(**wrong)


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        ("tokenizer.json", lambda text: text[: len(text) // 2], "no tokenizer that can be read"),
        ("tokenizer.json", lambda text: "{}", "no tokenizer that can be read"),
        ("tokenizer.json", lambda text: with_number(text, 2**31), r"2,147,483,648; .* may become 0\.07 GB"),
        ("subwords.json", lambda text: text[:20], "cut short or damaged"),
        ("subwords.json", lambda text: text.replace('"max_length":32', '"max_length":-1'), "max_length"),
        ("subwords.json", lambda text: text.replace('"frequencies":[0,', '"frequencies":['), "each token"),
    ],
)
def test_damaged_files(tmp_path, name, damage, sentence):
    Subwords.fit(SOME).save(tmp_path)
    before = (tmp_path / name).read_text("utf-8")
    (tmp_path / name).write_text(damage(before), "utf-8")
    assert (tmp_path / name).read_text("utf-8") != before
    with pytest.raises(DataError, match=sentence) as raised:
        load_tokens(tmp_path)
    assert name in str(raised.value)


def test_missing_files(tmp_path):
    Subwords.fit(SOME).save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json: cannot be read"):
        load_tokens(tmp_path)
    with pytest.raises(DataError, match="name the folder or file"):
        Subwords.from_file(tmp_path)


@pytest.mark.parametrize(
    ("name", "raised"), [("PanicException", DataError), ("KeyboardInterrupt", KeyboardInterrupt)]
)
def test_a_panic_of_the_library_is_an_error_with_a_sentence(name, raised, monkeypatch):
    """A damaged tokenizer may panic only when it meets a text; a panic is no `Exception`."""
    error = KeyboardInterrupt if raised is KeyboardInterrupt else type(name, (BaseException,), {})

    class Breaks:
        def encode_batch_fast(self, *_, **__):
            raise error("no entry found for key")

    tokens = Subwords(word_level({"a": 0, "[UNK]": 1}, "[UNK]"), 3)
    monkeypatch.setattr(tokens, "_model", Breaks())
    with pytest.raises(raised, match="no entry found for key"):
        tokens.encode(["a"])
