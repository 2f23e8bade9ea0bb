"""A few awkward texts in every kind of file that `predict` reads."""

from __future__ import annotations

import csv
import json

import pyarrow
import pyarrow.parquet

TEXTS = ["compress a file", "disk usage", "", 'gzip, bzip2 "and" more', "Ärger über Zeilen"]


def write_txt(path):
    path.write_text("\n".join(TEXTS) + "\n", "utf-8")


def write_csv(path, delimiter=","):
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter=delimiter)
        rows.writerow(["uid", "title", "labels"])
        rows.writerows([f"u{n}", text, "x"] for n, text in enumerate(TEXTS))


def write_jsonl(path):
    path.write_text("".join(json.dumps({"uid": f"u{n}", "title": t}) + "\n" for n, t in enumerate(TEXTS)))


def write_parquet(path):
    table = pyarrow.table({"uid": [f"u{n}" for n in range(len(TEXTS))], "title": TEXTS})
    pyarrow.parquet.write_table(table, path)


FILES = {
    "t.txt": write_txt,
    "t.csv": write_csv,
    "t.tsv": lambda path: write_csv(path, "\t"),
    "t.jsonl": write_jsonl,
    "t.parquet": write_parquet,
}
