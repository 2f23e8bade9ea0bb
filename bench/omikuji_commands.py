"""omikuji has no command of its own in its wheel: these two, run by an interpreter that has it and SciPy.

python omikuji_commands.py train TRAIN_FILE MODEL THREADS
python omikuji_commands.py predict MODEL TEST_FILE PREDICTIONS_NPZ TOP

Stands alone: that interpreter does not know the rest of this project.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import omikuji
from scipy.sparse import csr_matrix, save_npz


def train(data: str, folder: str, threads: str) -> None:
    """Train with the library's defaults and save the model."""
    settings = omikuji.Model.default_hyper_param()
    omikuji.Model.train_on_data(data, settings, n_threads=int(threads)).save(folder)


def predict(folder: str, data: str, out: str, top: str) -> None:
    """Write the `top` best labels of every test point as a SciPy matrix."""
    model = omikuji.Model.load(folder)
    with open(data, encoding="utf-8") as file:
        _, _, labels = map(int, next(file).split())
        found = [model.predict(pairs, top_k=int(top)) for pairs in features(file)]
    ends = np.cumsum([0, *map(len, found)])
    entries = [entry for row in found for entry in row]
    ids = np.fromiter((label for label, _ in entries), np.int32, len(entries))
    scores = np.fromiter((score for _, score in entries), np.float32, len(entries))
    save_npz(out, csr_matrix((scores, ids, ends), shape=(len(found), labels)))


def features(lines: Iterator[str]) -> Iterator[list[tuple[int, float]]]:
    """The (column, value) pairs of lines `label,label column:value column:value`."""
    for line in lines:
        _, _, pairs = line.partition(" ")
        yield [
            (int(column), float(value))
            for column, _, value in (pair.partition(":") for pair in pairs.split())
        ]


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"train": train, "predict": predict}
    commands[sys.argv[1]](*sys.argv[2:])
