"""The length that the data call for, and the texts that it cuts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_runs import small, small_splits

from gandalf.data.check import inspect
from gandalf.data.lengths import LEAST, MOST_WORDS, cut_sentence, length_for
from gandalf.errors import Findings
from gandalf.recipe import Recipe
from gandalf.runs.folder import RunPlace
from gandalf.runs.prepare import fit_tokens
from gandalf.runs.session import run_training
from gandalf.text.subwords import Subwords, SubwordsOptions
from gandalf.text.table import count_cut, token_table, with_fitted_length
from gandalf.text.words import Words, WordsOptions

LETTERS = "abcdefghij"


def texts_of(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list(LETTERS), number)) for number in lengths]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([], LEAST), ([3] * 50, LEAST), ([40] * 50, 40), ([500] * 50, 64), ([10] * 996 + [50] * 4, LEAST)],
)
def test_nearly_all_texts_are_read_whole(lengths, expected):
    assert length_for(np.array(lengths, dtype=np.int64), 64) == expected


@pytest.mark.parametrize("kind", ["words", "subwords"])
@pytest.mark.parametrize("seed", range(3))
def test_texts_that_are_cut_are_counted(kind, seed):
    lengths = np.random.default_rng(seed).integers(1, 14, 80)
    texts = texts_of(lengths, seed)
    fit = {
        "words": lambda: Words.fit(texts, WordsOptions(max_length=9)),
        "subwords": lambda: Subwords.fit(texts, SubwordsOptions(max_length=9, size=20)),
    }
    tokens = fit[kind]()
    expected = int((lengths > 9).sum())
    assert count_cut(tokens, texts, token_table(tokens, texts)) == expected > 0
    whole = tokens.with_length(20)
    assert count_cut(whole, texts, token_table(whole, texts)) == 0
    assert np.array_equal(whole.encode(texts)[:, :9], tokens.encode(texts))
    assert np.array_equal(whole.idf(), tokens.idf())
    exactly = [text for text, length in zip(texts, lengths, strict=True) if length == 9]
    assert count_cut(tokens, exactly, token_table(tokens, exactly)) == 0


def test_a_length_by_the_data_lies_between_the_least_and_the_most():
    tokens = Words.fit(texts_of([50] * 20), WordsOptions(max_length=64))
    assert with_fitted_length(tokens, texts_of([50] * 20)).max_length == 50
    assert with_fitted_length(tokens, texts_of([5] * 20)).max_length == LEAST
    assert with_fitted_length(tokens, texts_of([90] * 20)).max_length == MOST_WORDS


@pytest.mark.parametrize("setting", ["0", "7"])
def test_a_model_reads_as_much_as_its_data_call_for_and_the_run_says_what_is_cut(setting):
    splits = small_splits()
    long = [f"{text} {'word ' * 40}" for text in splits.train.texts]
    long[3] = " ".join(["word"] * 90)
    splits = replace(splits, train=replace(splits.train, texts=long), test=None)
    assert Recipe().text.max_length == 0
    told: list[str] = []
    chosen = small(f"text.max_length={setting}", "training.steps=1", "targets.targets=none")
    trained = run_training(splits, chosen, RunPlace(tell=told.append))
    length = trained.model.tokens.max_length
    assert length == trained.model.config["text"]["max_length"]
    assert length == 7 if setting == "7" else length > 40
    (said,) = [each for each in told if "longer than" in each]
    assert f"longer than {length} tokens and" in said and said.split()[2] == f"{len(long) - 15}"
    tokens = fit_tokens(splits.train, chosen.text, chosen.encoder)
    cut = count_cut(tokens, long, token_table(tokens, long))
    assert cut == (len(long) if setting == "7" else 1)


def test_short_texts_are_not_spoken_of():
    told: list[str] = []
    run_training(small_splits(), small("text.max_length=0", "training.steps=1"), RunPlace(tell=told.append))
    assert not [each for each in told if "longer than" in each]


def test_check_notes_texts_that_are_cut():
    splits = small_splits()
    texts = list(splits.train.texts)
    texts[5] = "word " * 100
    findings = Findings(strict=False)
    inspect(replace(splits, train=replace(splits.train, texts=texts)), findings)
    (found,) = [each for each in findings.problems if each.kind == "long-text"]
    assert found.severity == "note"
    assert found.what.startswith(f"1 of {len(texts):,} texts (0.3%) is longer than 32 words and is cut")
    findings = Findings(strict=False)
    inspect(splits, findings)
    assert not [each for each in findings.problems if each.kind == "long-text"]


def test_the_sentence():
    assert cut_sentence(12, 9_599, 32) == "12 of 9,599 texts (0.1%) are longer than 32 tokens and are cut"
