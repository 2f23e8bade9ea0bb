"""The smallest data sets in each layout, to be spoiled in one place."""

from __future__ import annotations

LABELS = '{"uid": "x", "title": "first"}\n{"uid": "y", "title": "second"}\n'
POINT = '{"title": "t", "target_ind": [0]}\n'


def raw(trn=POINT, lbl=LABELS, **others):
    return {"trn.json": trn, "lbl.json": lbl, **{f"{name}.json": text for name, text in others.items()}}


def renee(y="3 2\n0:1\n\n1:0.5\n", x="a\nb\nc\n", labels="first\nsecond\n", **others):
    return {"trn_X_Y.txt": y, "trn_X.txt": x, "Y.txt": labels} | {f"{n}.txt": t for n, t in others.items()}


def single(body, header="2 3 2"):
    return {"train.txt": f"{header}\n{body}"}


def folder_of(tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


MANY = "".join(f'{{"title": "{number * 7919}", "target_ind": [0]}}\n' for number in range(2000)).encode()
