"""Linear classifiers over TF-IDF terms, in label trees of the library omikuji."""

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
from gandalf.wide.folder import AGAIN, missing, read_json
from gandalf.wide.mixing import NO_LABEL, Floats, Ints, as_logits

TREES = "trees"  # what `config.json` and `slim.json` call the kind
WORDS, SETTINGS = "features.json", "settings.json"  # ours; omikuji's, beside tree0.cbor, tree1.cbor, ...
ADDED_ROWS = "added.npz"  # of labels that were added without training
BEAM = 10  # branches of a tree that are followed at once, the library's own default


def need_omikuji() -> Any:  # noqa: ANN401  it has no types
    """Return the library, or say how to get it."""
    try:
        import omikuji
    except ImportError as error:
        what = "linear models and label trees need omikuji"
        raise DataError(what, remedy="pip install 'gandalf-xmc[parabel]'", kind="missing-library") from error
    return omikuji


@contextmanager
def silenced() -> Iterator[None]:
    """Keep the library's log off standard output, where `--json` prints; show its bar on a terminal only."""
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
class Added:
    """Rows of labels that were added: logit = slope * (row . text) + offset."""

    rows: csr_array  # C x (D + 1), each of length 1
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
    """Terms that have a column, the linear classifiers over them, and rows of labels that were added.

    The classifiers stand in label trees, or all at the root: one-vs-all is a tree of one leaf.
    """

    words: TfIdf
    forest: Any  # omikuji's
    trained_labels: int  # that the classifiers were trained on, which come first
    added: Added | None = None

    @property
    def num_labels(self) -> int:
        """Number of labels L, the added ones among them."""
        return self.trained_labels + (0 if self.added is None else len(self.added))

    @property
    def size(self) -> int:
        """Number of columns: the terms, and one for texts without a known term."""
        return len(self.words.words) + 1

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return ids and logits of the k best labels that the search meets, ties to the smaller label.

        Pairs in `exclude` are dropped first. Where fewer than k labels remain, the id is -1, the score -inf.
        """
        ids = np.full((len(texts), k), NO_LABEL, dtype=np.int64)  # shape: (N, k)
        scores = np.full((len(texts), k), -np.inf, dtype=np.float32)  # shape: (N, k)
        for row, found in enumerate(self._found(texts, k, exclude)):
            dropped = set() if exclude is None else _columns(exclude, row)
            kept = sorted((-score, label) for label, score in found if label not in dropped)[:k]
            ids[row, : len(kept)] = [label for _, label in kept]
            scores[row, : len(kept)] = [-score for score, _ in kept]
        return ids, scores

    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return logits of these labels; one that the search does not meet has the lowest there is."""
        scores = np.full(labels.shape, as_logits(0.0), dtype=np.float32)  # shape: (N, C)
        for row, found in enumerate(self._found(texts, self.trained_labels, None)):
            known = dict(found)
            scores[row] = [known.get(label, scores[row, at]) for at, label in enumerate(labels[row].tolist())]
        return scores

    def knows(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each text that has a known term."""  # shape: (N,)
        return np.asarray(np.diff(self.words.features(texts).indptr) > 0)

    def unit_vectors(self, texts: Sequence[str]) -> csr_array:
        """Return TF-IDF rows."""  # shape: (N, D)
        return self.words.features(texts)

    def write(self, folder: Path) -> None:
        """Write words and trees into a folder that is there, each file wholly or not at all."""
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
        """Return what a folder must say of the files: kind, number of trees, how added labels are scored."""
        found = {"kind": TREES, "trees": int(self.forest.n_trees)}
        if self.added is None:
            return found
        return found | {"added_slope": self.added.slope, "added_offset": self.added.offset}

    def _found(
        self, texts: Sequence[str], k: int, exclude: csr_array | None
    ) -> Iterator[list[tuple[int, float]]]:
        """Yield labels and logits of each text: k more than are excluded, and all that were added."""
        features = word_features(self.words, texts)
        added = None if self.added is None else self.added(features)
        trained = self.trained_labels
        for row, pairs in enumerate(_pairs(features)):
            spare = 0 if exclude is None else int(exclude.indptr[row + 1] - exclude.indptr[row])
            found = self.forest.predict(pairs, beam_size=BEAM, top_k=min(k + spare, trained))
            scores = as_logits([score for _, score in found]).tolist()
            of_forest = [(label, score) for (label, _), score in zip(found, scores, strict=True)]
            more = [] if added is None else list(enumerate(added[row].tolist(), start=trained))
            yield of_forest + more


def read_wide_model(folder: Path, facts: Mapping[str, Any], labels: int, size: int) -> WideModel:
    """Read what `WideModel.write` wrote; `facts`, `labels` and `size` are what the folder says of it."""
    omikuji = need_omikuji()
    words = _read_words(folder / WORDS, size - 1)
    added = _read_added(folder / ADDED_ROWS, facts, labels, size)
    if not (folder / SETTINGS).is_file():
        raise missing(folder / SETTINGS)
    try:
        with silenced():
            forest = omikuji.Model.load(str(folder))
    except (RuntimeError, OSError, ValueError) as error:
        raise DataError(f"its trees cannot be read ({error})", remedy=AGAIN, file=folder) from error
    # The library reads what trees there are. Folders of earlier releases do not say how many there were.
    if forest.n_trees != facts.get("trees", forest.n_trees) or forest.n_features > size:
        what = f"holds {forest.n_trees} trees of {forest.n_features:,} terms, not what the folder speaks of"
        raise DataError(what, remedy=AGAIN, file=folder)
    return WideModel(words, forest, labels - (0 if added is None else len(added)), added)


def word_features(words: TfIdf, texts: Sequence[str]) -> csr_array:
    """Return TF-IDF rows, and a last column that marks texts without a known term."""  # shape: (N, D + 1)
    found = words.features(texts)
    none = csr_array((np.diff(found.indptr) == 0).astype(np.float32)[:, np.newaxis])
    return csr_array(hstack([found, none], format="csr"))


def _pairs(features: csr_array) -> Iterator[list[tuple[int, float]]]:
    columns, values, ends = features.indices.tolist(), features.data.tolist(), features.indptr.tolist()
    for start, stop in pairwise(ends):
        yield list(zip(columns[start:stop], values[start:stop], strict=True))


def _columns(matrix: csr_array, row: int) -> set[int]:
    return set(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist())


def _read_words(path: Path, expected: int) -> TfIdf:
    found = read_json(path)
    try:
        kinds = tuple(kind for kind in KINDS if kind in found.get("kinds", ("words",)))
        if not kinds:
            raise ValueError("there is no kind of word")
        words = TfIdf(tuple(map(str, found["words"])), np.asarray(found["idf"], dtype=np.float32), kinds)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"lacks or garbles its words ({error})", remedy=AGAIN, file=path) from error
    if len(words.words) != expected or words.idf.shape != (expected,):
        what = f"does not hold the {expected:,} words that the folder speaks of"
        raise DataError(what, remedy=AGAIN, file=path)
    return words


def _read_added(path: Path, facts: Mapping[str, Any], labels: int, size: int) -> Added | None:
    if "added_slope" not in facts:
        return None
    if not path.is_file():
        raise missing(path)
    try:
        rows = csr_array(read_npz(path))
        found = Added(rows, float(facts["added_slope"]), float(facts["added_offset"]))
    except Exception as error:  # NumPy and zipfile raise a dozen kinds of errors of a damaged file
        raise DataError(f"its added labels cannot be read ({error})", remedy=AGAIN, file=path) from error
    if rows.shape[1] != size or rows.shape[0] >= labels:
        what = "does not hold the added labels that the folder speaks of"
        raise DataError(what, remedy=AGAIN, file=path)
    return found
