from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from test_text_subwords import word_level

from gandalf.errors import DataError
from gandalf.text.subwords import Subwords
from gandalf.text.vectors import project, static_vectors
from gandalf.text.words import Words, WordsOptions

TOKENS = Words.fit(["get window text the", "get window text the"], WordsOptions(pieces=0))
NUMBER = {string: number for number, string in enumerate(TOKENS.strings)}
ROWS = {"get": [1, 0, 2], "text": [0, 3, 0], "never": [9, 9, 9]}


def lines(rows, header=False, end=""):
    first = [f"{len(rows)} {len(next(iter(rows.values())))}"] if header else []
    return (
        "\n".join([*first, *(f"{word} {' '.join(map(str, row))}{end}" for word, row in rows.items())]) + "\n"
    )


def check_rows(matrix, found):
    assert matrix.shape == (TOKENS.size, 3) and matrix.dtype == np.float32
    for string, number in NUMBER.items():
        if string in ("get", "text"):
            assert found[number] and matrix[number].tolist() == ROWS[string]
        else:
            assert not found[number] and not matrix[number].any()


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("end", ["", " ", "\r"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_text_files(tmp_path, header, end, pack):
    path = tmp_path / ("vectors.txt.gz" if pack is gzip.compress else "vectors.vec")
    path.write_bytes(pack(lines(ROWS, header, end).encode()))
    check_rows(*static_vectors(path, TOKENS, 3))
    check_rows(*static_vectors(str(path), TOKENS, 3))


def test_words_with_spaces_and_words_in_capitals(tmp_path):
    rows = {
        ". . .": [5, 5, 5],
        "Get": [7, 7, 7],
        "GET": [8, 8, 8],
        "TEXT": [6, 6, 6],
        **ROWS,
        "Text": [4, 4, 4],
    }
    path = tmp_path / "vectors.txt"
    path.write_text(lines(rows, header=True))  # what is written the same counts, before or after
    check_rows(*static_vectors(path, TOKENS, 3))
    del rows["get"]
    path.write_text(lines(rows, header=True))
    matrix, found = static_vectors(path, TOKENS, 3)
    assert found[NUMBER["get"]] and matrix[NUMBER["get"]].tolist() == [7, 7, 7]  # the first, or most frequent


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("get 1 2 3\ntext 1 2\n", 2, "has 2 numbers after the word, but 3"),
        ("get 1 2 3\ntext 1 2 3 4\n", 2, "more than the 3 numbers"),
        ("get 1 2 3\n\ntext 1 2 3\n", 2, "has 0 numbers"),
        ("2 3\nget 1 2 3\ntext 1 x 3\n", 3, "has 'x'"),
        ("get 1 2 3\ntext 1 nan 3\n", 2, "not finite"),
        ("get 1 2 1e300\n", 1, "not finite"),
        ("no-vectors\n", 1, "no text file of word vectors"),
        ("", 1, "no text file of word vectors"),
        ("3 3\nget 1 2 3\n", None, "ends after 1 .* 3"),
        ("the_other 1 2 3\n", None, "none of the words"),
    ],
)
def test_damaged_text_files(tmp_path, text, line, sentence):
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=sentence) as raised:
        static_vectors(path, TOKENS, 3)
    where = f"{path}: " if line is None else f"{path}:{line}: "
    assert str(raised.value).startswith(where)


def test_a_cut_off_gzip(tmp_path):
    path = tmp_path / "vectors.txt.gz"
    rng = np.random.default_rng(0)
    rows = {f"word{number}": rng.random(3).tolist() for number in range(500)}
    path.write_bytes(gzip.compress(lines(rows).encode())[:-2000])
    with pytest.raises(DataError, match="cut short or damaged"):
        static_vectors(path, TOKENS, 3)


VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "get": 2, "win": 3, "text": 4}


def model_folder(folder, table, name="embeddings.word_embeddings.weight", **others):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer_config.json").write_text("{}")  # stands first in the alphabet and describes nothing
    (folder / "tokenizer.json").write_text(word_level(VOCABULARY, "[UNK]"))
    save_file({name: table, **others}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_model_folder(tmp_path, dtype):
    table = torch.arange(18, dtype=dtype).reshape(6, 3)  # padded by a row, as many models are
    other = {
        "a.lm_head.weight": torch.ones(5, 3),
        "embed.positions": torch.ones(4, 3),
        "embed.b": torch.ones(9),
    }
    folder = model_folder(tmp_path / "deep" / "model", table, **other)
    matrix, found = static_vectors(folder.parent, TOKENS, 3)
    for string, number in NUMBER.items():
        assert found[number] == (string in VOCABULARY)
        expected = table[VOCABULARY[string]].float().tolist() if found[number] else [0, 0, 0]
        assert matrix[number].tolist() == expected


def test_a_word_is_the_mean_of_its_tokens(tmp_path):
    tokens = Subwords.fit(["ab ab b"])
    folder = tmp_path / "model"
    table = torch.tensor([[9.0, 9], [9, 9], [1, 2], [3, 6]])
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}
    folder.mkdir()
    text = word_level(vocabulary, "[UNK]").replace(
        '{"type": "Whitespace"}',
        '{"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": false}',
    )
    (folder / "tokenizer.json").write_text(text)
    save_file({"embed": table}, folder / "x.safetensors")
    matrix, found = static_vectors(folder, tokens, 2)
    for number, string in enumerate(tokens.strings):
        rows = [table[vocabulary[character]].numpy() for character in string]
        assert found[number] == bool(rows)
        assert matrix[number].tolist() == (np.mean(rows, axis=0).tolist() if rows else [0, 0])
    assert "ab" in tokens.strings


def test_an_installed_package(tmp_path, monkeypatch):
    package = tmp_path / "some_vectors"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be run')")
    model_folder(package / "weights", torch.ones(5, 3))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("some_vectors", "some-vectors"):
        assert static_vectors(name, TOKENS, 3)[1].sum() == 2
    for name in ("no_such_vectors", "no/such.txt", "os", ""):
        with pytest.raises(DataError, match=r"no file|no tokenizer"):
            static_vectors(name, TOKENS, 3)


def test_damaged_folders(tmp_path):
    with pytest.raises(DataError, match="holds no tokenizer"):
        static_vectors(tmp_path, TOKENS, 3)
    folder = model_folder(tmp_path / "small", torch.ones(4, 3))
    with pytest.raises(DataError, match="no table of vectors for the 5 tokens"):
        static_vectors(folder, TOKENS, 3)
    folder = model_folder(tmp_path / "cut", torch.ones(5, 3))
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-8])
    with pytest.raises(DataError, match=r"model\.safetensors: cannot be read"):
        static_vectors(folder, TOKENS, 3)
    with pytest.raises(DataError, match="cannot have 0 numbers"):
        static_vectors(folder, TOKENS, 0)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000))
def test_other_dimensions_keep_dot_products(columns, dim, seed):
    rng = np.random.default_rng(seed)
    rank = min(columns, dim)
    vectors = (rng.standard_normal((12, rank)) @ rng.standard_normal((rank, columns))).astype(np.float32)
    found = rng.random(12) < 0.8
    found[:rank] = True  # directions that no found vector has cannot be kept
    turned = project(vectors, found, dim)
    assert turned.shape == (12, dim) and turned.dtype == np.float32
    np.testing.assert_allclose(turned @ turned.T, vectors @ vectors.T, rtol=1e-3, atol=1e-3)
    assert (project(vectors, found, dim) == turned).all()


def test_fewer_dimensions_are_the_best_ones():
    rng = np.random.default_rng(0)
    vectors = (rng.standard_normal((40, 8)) * 2.0 ** np.arange(8)).astype(np.float32)
    found = np.ones(40, dtype=bool)
    left, sizes, right = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)
    best = (left[:, :3] * sizes[:3]) @ (left[:, :3] * sizes[:3]).T
    turned = project(vectors, found, 3)
    np.testing.assert_allclose(turned @ turned.T, best, rtol=1e-3, atol=1e-2 * np.abs(best).max())
    heaviest = np.abs(right[:3]).argmax(axis=1)
    assert (np.sign(turned.T @ vectors)[np.arange(3), heaviest] > 0).all()  # each direction's sign is settled
