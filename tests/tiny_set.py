"""A raw data set of four points and four labels, one of them without points."""

from __future__ import annotations

import json
from pathlib import Path

ROWS = [("alpha one", [0, 1]), ("beta two", [1]), ("gamma three", [0, 1, 2]), ("delta four", [0])]
LABELS = ["first label", "second label", "third label", "label nobody has"]


def write_tiny_set(folder: Path) -> Path:
    folder.mkdir()
    for name, rows in (("trn", ROWS), ("tst", [("alpha five", [0])])):
        lines = [
            json.dumps(
                {"uid": f"{name}{at}", "title": text, "target_ind": labels, "target_rel": [1.0] * len(labels)}
            )
            for at, (text, labels) in enumerate(rows)
        ]
        (folder / f"{name}.json").write_text("\n".join(lines) + "\n", "utf-8")
    lines = [json.dumps({"uid": f"l{at}", "title": text}) for at, text in enumerate(LABELS)]
    (folder / "lbl.json").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "filter_labels_train.txt").write_text("0 3\n", "utf-8")
    (folder / "filter_labels_test.txt").write_text("0 1\n", "utf-8")
    return folder
