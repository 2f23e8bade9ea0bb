"""Parabel's label trees over TF-IDF words, by the library omikuji: learnt in seconds on a CPU."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, hstack

from gandalf.data.bag_of_words import BagOfWords
from gandalf.data.files import written
from gandalf.errors import DataError
from gandalf.model.calibration import Calibration
from gandalf.model.layout import AGAIN, CONFIG, Facts, missing, read_json

# Settings of a recipe that say nothing about trees: what they are about is not there.
UNHEEDED = frozenset(
    (
        *("device", "text", "encoder", "head", "siamese", "labels", "training", "baselines"),
        *("targets.label_weight", "targets.label_epochs", "validation.every", "validation.patience"),
    )
)
KIND = "trees"  # what `config.json` says in place of an encoder's kind
WORDS, SETTINGS = "features.json", "settings.json"  # ours; omikuji's, beside tree0.cbor, tree1.cbor, ...
ALMOST = 1e-7  # how near to 0 and 1 a score comes before it is taken for a logit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def need_omikuji() -> Any:  # noqa: ANN401  it has no types
    """The library, or a sentence about how to get it."""
    try:
        import omikuji
    except ImportError as error:
        what = "the system parabel needs omikuji"
        raise DataError(what, remedy="pip install 'gandalf-xmc[parabel]'", kind="missing-library") from error
    return omikuji


@contextmanager
def silenced() -> Iterator[None]:
    """Nothing on standard output, where the library logs and `--json` prints; a bar only on a terminal."""
    sys.stdout.flush()
    streams = (1,) if sys.stderr.isatty() else (1, 2)
    kept, nowhere = [os.dup(stream) for stream in streams], os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in streams:
            os.dup2(nowhere, stream)
        yield
    finally:
        for stream, old in zip(streams, kept, strict=True):
            os.dup2(old, stream)
            os.close(old)
        os.close(nowhere)


@dataclass
class Trees:
    """Words that have a column, the label trees, what the labels are called, and how it was made."""

    words: BagOfWords
    forest: Any  # omikuji's
    label_texts: Sequence[str]  # L
    label_ids: Sequence[str] | None  # L
    config: dict[str, Any]  # the recipe
    calibration: Calibration | None = None
    device: ClassVar[torch.device] = torch.device("cpu")
    unheeded: ClassVar[frozenset[str]] = UNHEEDED

    def __repr__(self) -> str:
        name = self.config.get("system", "trees")
        return f"<Trees {name}, {self.num_labels:,} labels, {len(self.words.words):,} words>"

    @property
    def num_labels(self) -> int:
        """Number of labels L."""
        return len(self.label_texts)

    @property
    def about(self) -> str:
        """What the model card says of its parts."""
        known = f"{len(self.words.words):,} known words"
        return f"trees of labels are searched by linear scores of the text's words, out of {known}."

    @property
    def reads(self) -> str:
        """What the model card says of the length of texts."""
        return (
            "It reads words that are in the training texts, wherever they stand in the text, and no others."
        )

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Ids and logits of the k best labels that the search meets, ties to the smaller label.

        Pairs in `exclude` are dropped first. Where fewer than k labels remain, the id is -1, the score -inf.
        """
        ids = np.full((len(texts), k), -1, dtype=np.int64)  # shape: (N, k)
        scores = np.full((len(texts), k), -np.inf, dtype=np.float32)  # shape: (N, k)
        for row, pairs in enumerate(_pairs(word_features(self.words, texts))):
            dropped = set() if exclude is None else _columns(exclude, row)
            found = self.forest.predict(pairs, top_k=k + len(dropped))
            kept = sorted((-score, label) for label, score in found if label not in dropped)[:k]
            ids[row, : len(kept)] = [label for _, label in kept]
            scores[row, : len(kept)] = logits([-score for score, _ in kept])
        return ids, scores

    def facts(self) -> Facts:
        """What `config.json` will say."""
        size = len(self.words.words) + 1
        return Facts({"kind": KIND}, self.num_labels, size, self.config, self.calibration)

    def write(self, folder: Path) -> None:
        """Write words and trees into a folder that is there, each file wholly or not at all."""
        with written(folder / WORDS) as file:
            words, idf = list(self.words.words), [float(each) for each in self.words.idf]
            json.dump({"words": words, "idf": idf}, file, ensure_ascii=False)
        part = folder / f".trees.{uuid.uuid4().hex[:8]}.part"
        try:
            with silenced():
                self.forest.save(str(part))
            for path in part.iterdir():
                os.replace(path, folder / path.name)
            part.rmdir()
        except (OSError, RuntimeError) as error:
            raise DataError(f"cannot be written ({error})", file=folder) from error


def load_trees(folder: Path, facts: Facts, ids: list[str] | None, texts: list[str]) -> Trees:
    """Read what `Trees.write` wrote."""
    omikuji = need_omikuji()
    for name in read_json(folder / CONFIG).get("files", []):
        if not (folder / str(name)).is_file():
            raise missing(folder / str(name))
    words = _read_words(folder / WORDS, facts.dim - 1)
    try:
        with silenced():
            forest = omikuji.Model.load(str(folder))
    except (RuntimeError, OSError, ValueError) as error:
        raise DataError(f"its trees cannot be read ({error})", remedy=AGAIN, file=folder) from error
    return Trees(words, forest, texts, ids, facts.config, facts.calibration)


def word_features(words: BagOfWords, texts: Sequence[str]) -> csr_array:
    """TF-IDF of the texts, and a last column that says that a text has no known word."""  # shape: (N, D + 1)
    found = words.features(texts)
    none = csr_array((np.diff(found.indptr) == 0).astype(np.float32)[:, np.newaxis])
    return csr_array(hstack([found, none], format="csr"))


def logits(scores: Sequence[float]) -> Floats:
    """Scores of the trees, which are in [0, 1], such that a sigmoid gives them back."""
    inside = np.clip(np.asarray(scores, dtype=np.float64), ALMOST, 1 - ALMOST)
    return np.asarray(np.log(inside) - np.log1p(-inside), dtype=np.float32)


def _pairs(features: csr_array) -> Iterator[list[tuple[int, float]]]:
    columns, values, ends = features.indices.tolist(), features.data.tolist(), features.indptr.tolist()
    for start, stop in pairwise(ends):
        yield list(zip(columns[start:stop], values[start:stop], strict=True))


def _columns(matrix: csr_array, row: int) -> set[int]:
    return set(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist())


def _read_words(path: Path, expected: int) -> BagOfWords:
    if not path.is_file():
        raise missing(path)
    found = read_json(path)
    try:
        words = BagOfWords(tuple(map(str, found["words"])), np.asarray(found["idf"], dtype=np.float32))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"lacks or garbles its words ({error})", remedy=AGAIN, file=path) from error
    if len(words.words) != expected or words.idf.shape != (expected,):
        raise DataError(
            f"does not hold the {expected:,} words that {CONFIG} speaks of", remedy=AGAIN, file=path
        )
    return words
