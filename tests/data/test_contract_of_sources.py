"""Everything that `load` takes, `train`, `predict` and the estimator take: tables, files and folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from command_line import done
from pyarrow import parquet

import gandalf

TOPICS = ("printer", "password", "invoice")
TEXTS = [f"{TOPICS[n % 3]} number {n}" for n in range(24)]
LISTS = [[TOPICS[n % 3]] + (["urgent"] if n % 4 == 0 else []) for n in range(24)]
SINGLE = [TOPICS[n % 3] for n in range(24)]
SMALL = ("encoder.dim=16", "training.steps=2", "device=cpu", "validation.share=0")
COLUMNS = {"text_column": "subject", "label_column": "tags"}
ROWS = {"subject": TEXTS, "tags": LISTS}

TABLES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "datasets": datasets.Dataset.from_dict,
    "records": lambda rows: [dict(zip(rows, each, strict=True)) for each in zip(*rows.values(), strict=True)],
}


def csv(folder):
    pd.DataFrame({"subject": TEXTS, "tags": [";".join(each) for each in LISTS]}).to_csv(
        folder / "t.csv", index=False
    )
    return folder / "t.csv"


def tsv(folder):
    joined = ["|".join(each) for each in LISTS]
    pd.DataFrame({"subject": TEXTS, "tags": joined}).to_csv(folder / "t.tsv", sep="\t", index=False)
    return folder / "t.tsv"


def jsonl(folder):
    lines = (json.dumps({"subject": text, "tags": tags}) for text, tags in zip(TEXTS, LISTS, strict=True))
    (folder / "t.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "t.jsonl"


def parquet_file(folder):
    parquet.write_table(pa.table(ROWS), folder / "t.parquet")
    return folder / "t.parquet"


def fasttext(folder):
    lines = (
        " ".join([*(f"__label__{tag}" for tag in tags), text])
        for text, tags in zip(TEXTS, LISTS, strict=True)
    )
    (folder / "t.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "t.txt"


def annif(folder):
    uris = [" ".join(f"<http://example.org/{tag}>" for tag in tags) for tags in LISTS]
    lines = "".join(f"{text}\t{each}\n" for text, each in zip(TEXTS, uris, strict=True))
    (folder / "train.tsv").write_text(lines, encoding="utf-8")
    names = (*TOPICS, "urgent")
    (folder / "vocab.tsv").write_text(
        "".join(f"<http://example.org/{n}>\t{n}\n" for n in names), encoding="utf-8"
    )
    return folder


def raw(folder):
    gandalf.export(gandalf.load(pd.DataFrame(ROWS), **COLUMNS), folder / "raw", "raw")
    return folder / "raw"


# Files that hold a column of texts; then sources that name their own texts and labels.
FILES = {"csv": csv, "tsv": tsv, "jsonl": jsonl, "parquet": parquet_file}
NAMED = {"fasttext": fasttext, "annif": annif, "raw": raw}


def expected(splits):
    """The labels of the first texts, whatever the numbers of labels."""
    texts = splits.train.label_texts
    return [sorted(texts[label] for label in splits.train.targets[[row]].indices) for row in range(5)]


def check_trained(source, **columns):
    splits = gandalf.load(source, **columns)
    assert list(splits.train.texts) == TEXTS
    assert expected(splits) == [sorted(each) for each in LISTS[:5]]
    trained = gandalf.train(source, "astec", *SMALL, **columns)
    assert sorted(trained.model.label_texts) == sorted({*TOPICS, "urgent"})
    return gandalf.Predictor(trained.model)


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_in_memory(kind):
    table = TABLES[kind](ROWS)
    predictor = check_trained(table, **COLUMNS)
    texts, labels = (TEXTS, LISTS) if kind == "records" else (table["subject"], table["tags"])
    ids, scores = predictor.predict(texts, 2)
    plain, same = predictor.predict(TEXTS, 2)
    np.testing.assert_array_equal(ids, plain)
    np.testing.assert_array_equal(scores, same)
    classifier = gandalf.GandalfClassifier(settings=SMALL).fit(texts, labels)
    assert sorted(classifier.classes_) == sorted({*TOPICS, "urgent"})
    np.testing.assert_array_equal(classifier.predict_proba(texts), classifier.predict_proba(TEXTS))


@pytest.mark.parametrize("kind", TABLES)
def test_one_label_a_text(kind):
    table = TABLES[kind]({"subject": TEXTS, "tags": SINGLE})
    assert gandalf.load(table, **COLUMNS).train.targets.nnz == len(TEXTS)
    if kind != "records":
        classifier = gandalf.GandalfClassifier(settings=SMALL).fit(table["subject"], table["tags"])
        assert sorted(classifier.classes_) == sorted(TOPICS)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_with_columns(kind, tmp_path):
    path = FILES[kind](tmp_path)
    check_trained(str(path), **COLUMNS)
    named = ("--text-column", "subject", "--label-column", "tags")
    settings = [word for each in SMALL for word in ("--set", each)]
    done("train", path, tmp_path / "m", *named, "--system", "astec", *settings)
    done("predict", tmp_path / "m", path, "-o", tmp_path / "p.jsonl")  # it knows the column
    told = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text("utf-8").splitlines()]
    assert [each["text"] for each in told] == TEXTS


@pytest.mark.parametrize("kind", NAMED)
def test_a_source_that_names_its_own_texts(kind, tmp_path):
    check_trained(NAMED[kind](tmp_path))


def test_splits_by_name():
    frame = pd.DataFrame(ROWS)
    by_name = {"train": frame, "test": frame[:6]}
    assert len(gandalf.load(by_name, **COLUMNS).test) == 6
    assert gandalf.train(by_name, "astec", *SMALL, **COLUMNS).steps == 2
