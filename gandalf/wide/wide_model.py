"""Predict by linear classifiers over TF-IDF terms, in label trees of the library omikuji."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack, save_npz

from gandalf.data.files import moved_in, written
from gandalf.data.matrix_files import read_npz
from gandalf.data.tf_idf import KINDS, TfIdf
from gandalf.errors import DataError
from gandalf.model_folder import damaged, need_file, read_json
from gandalf.wide.mixing import Floats, Ints, as_logits, no_labels

TREES = "trees"  # the kind in `config.json` and `slim.json`
WORDS = "features.json"  # terms and their weights
SETTINGS = "settings.json"  # written by omikuji, with tree0.cbor, tree1.cbor, ...
ADDED_ROWS = "added.npz"  # rows of labels that were added without training
BEAM = 10  # branches of a tree that are followed at once; the default of omikuji


def need_omikuji() -> Any:  # noqa: ANN401  it has no types
    """Return the library omikuji; raise a DataError with the install command if it is missing."""
    try:
        import omikuji
    except ImportError as error:
        what = "linear models and label trees need omikuji"
        raise DataError(what, remedy="pip install 'gandalf-xmc[parabel]'", kind="missing-library") from error
    return omikuji


@contextmanager
def silenced() -> Iterator[None]:
    """Suppress the library's output: on standard output always, on standard error if it is no terminal."""
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


@dataclass(frozen=True, eq=False)
class AddedRows:
    """Rows of added labels: logit = slope * (row . text) + offset."""

    rows: csr_array  # C x (D + 1), each of norm 1
    slope: float
    offset: float

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __call__(self, features: csr_array) -> Floats:
        """Return the logits of texts with these features."""  # shape: (N, D + 1) -> (N, C)
        cosines = (features @ self.rows.T).toarray()
        return np.asarray(self.slope * cosines + self.offset, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class WideModel:
    """Terms, linear classifiers over them, and rows of added labels.

    The classifiers are in label trees; one-vs-all is a tree with a single leaf.
    """

    words: TfIdf
    forest: Any  # a model of omikuji
    trained_labels: int  # labels of the classifiers; added labels come after them
    added: AddedRows | None = None

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L, added labels included."""
        return self.trained_labels + (0 if self.added is None else len(self.added))

    @property
    def size(self) -> int:
        """Return the number of columns: one for each term, and one for texts without a known term."""
        return len(self.words.words) + 1

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return ids and logits of the k best labels that the beam search finds, ties to the smaller label.

        Pairs in `exclude` are dropped first. If fewer than k labels remain, other ids are -1 and scores -inf.
        """
        ids, scores = no_labels(len(texts), k)
        for row, candidates in enumerate(self._candidates(texts, k, exclude)):
            excluded = set() if exclude is None else _labels_of_row(exclude, row)
            best = sorted((-score, label) for label, score in candidates if label not in excluded)[:k]
            ids[row, : len(best)] = [label for _, label in best]
            scores[row, : len(best)] = [-score for score, _ in best]
        return ids, scores

    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return logits of these labels; a label that the beam search does not find has the lowest logit."""
        scores = np.full(labels.shape, as_logits(0.0), dtype=np.float32)  # shape: (N, C)
        for row, candidates in enumerate(self._candidates(texts, self.trained_labels, None)):
            known = dict(candidates)
            scores[row] = [known.get(label, scores[row, at]) for at, label in enumerate(labels[row].tolist())]
        return scores

    def knows(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each text that has a known term."""  # shape: (N,)
        return np.asarray(np.diff(self.words.features(texts).indptr) > 0)

    def unit_vectors(self, texts: Sequence[str]) -> csr_array:
        """Return TF-IDF rows."""  # shape: (N, D)
        return self.words.features(texts)

    def write(self, folder: Path) -> None:
        """Write terms, trees and added rows into an existing folder."""
        with written(folder / WORDS) as file:
            words, idf = list(self.words.words), [float(each) for each in self.words.idf]
            json.dump({"words": words, "idf": idf, "kinds": self.words.kinds}, file, ensure_ascii=False)
        try:
            with moved_in(folder, TREES) as inner, silenced():
                self.forest.save(str(inner))
        except (OSError, RuntimeError) as error:
            raise DataError(f"cannot be written ({error})", file=folder) from error
        if self.added is not None:
            with written(folder / ADDED_ROWS, "wb") as file:
                save_npz(file, self.added.rows)

    def facts(self) -> dict[str, Any]:
        """Return the facts for `config.json`: kind, number of trees, and calibration of added labels."""
        found = {"kind": TREES, "trees": int(self.forest.n_trees)}
        if self.added is None:
            return found
        return found | {"added_slope": self.added.slope, "added_offset": self.added.offset}

    def _candidates(
        self, texts: Sequence[str], k: int, exclude: csr_array | None
    ) -> Iterator[list[tuple[int, float]]]:
        """Yield labels and logits of each text: at least the k best trained labels, and all added labels."""
        features = word_features(self.words, texts)
        added = None if self.added is None else self.added(features)
        trained = self.trained_labels
        for row, pairs in enumerate(_terms_and_weights(features)):
            spare = 0 if exclude is None else int(exclude.indptr[row + 1] - exclude.indptr[row])
            found = self.forest.predict(pairs, beam_size=BEAM, top_k=min(k + spare, trained))
            scores = as_logits([score for _, score in found]).tolist()
            of_forest = [(label, score) for (label, _), score in zip(found, scores, strict=True)]
            more = [] if added is None else list(enumerate(added[row].tolist(), start=trained))
            yield of_forest + more


def read_wide_model(folder: Path, facts: Mapping[str, Any], labels: int, size: int) -> WideModel:
    """Read the files that `WideModel.write` wrote; the other arguments come from `config.json`."""
    omikuji = need_omikuji()
    words = _read_words(folder / WORDS, size - 1)
    added = _read_added(folder / ADDED_ROWS, facts, labels, size)
    need_file(folder / SETTINGS)
    try:
        with silenced():
            forest = omikuji.Model.load(str(folder))
    except (RuntimeError, OSError, ValueError) as error:
        raise damaged(f"its trees cannot be read ({error})", folder) from error
    # omikuji does not notice missing trees. Folders of early releases do not store their number.
    if forest.n_trees != facts.get("trees", forest.n_trees) or forest.n_features > size:
        what = f"has {forest.n_trees} trees over {forest.n_features:,} terms, which differs from its config"
        raise damaged(what, folder)
    return WideModel(words, forest, labels - (0 if added is None else len(added)), added)


def word_features(words: TfIdf, texts: Sequence[str]) -> csr_array:
    """Return TF-IDF rows, with a last column for texts without a known term."""  # shape: (N, D + 1)
    found = words.features(texts)
    none = csr_array((np.diff(found.indptr) == 0).astype(np.float32)[:, np.newaxis])
    return csr_array(hstack([found, none], format="csr"))


def _terms_and_weights(features: csr_array) -> Iterator[list[tuple[int, float]]]:
    columns, values, ends = features.indices.tolist(), features.data.tolist(), features.indptr.tolist()
    for start, stop in pairwise(ends):
        yield list(zip(columns[start:stop], values[start:stop], strict=True))


def _labels_of_row(matrix: csr_array, row: int) -> set[int]:
    return set(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist())


def _read_words(path: Path, expected: int) -> TfIdf:
    found = read_json(path)
    try:
        kinds = tuple(kind for kind in KINDS if kind in found.get("kinds", ("words",)))
        if not kinds:
            raise ValueError("there is no kind of word")
        words = TfIdf(tuple(map(str, found["words"])), np.asarray(found["idf"], dtype=np.float32), kinds)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(f"has no valid list of words ({error})", path) from error
    if len(words.words) != expected or words.idf.shape != (expected,):
        what = f"does not have the {expected:,} words that config.json announces"
        raise damaged(what, path)
    return words


def _read_added(path: Path, facts: Mapping[str, Any], labels: int, size: int) -> AddedRows | None:
    if "added_slope" not in facts:
        return None
    need_file(path)
    try:
        rows = csr_array(read_npz(path))
        found = AddedRows(rows, float(facts["added_slope"]), float(facts["added_offset"]))
    except Exception as error:  # NumPy and zipfile raise errors of many types on a damaged file
        raise damaged(f"its added labels cannot be read ({error})", path) from error
    if rows.shape[1] != size or rows.shape[0] >= labels:
        what = "does not have the added labels that config.json announces"
        raise damaged(what, path)
    return found
