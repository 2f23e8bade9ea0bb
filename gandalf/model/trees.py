"""Parabel's label trees over TF-IDF words, by the library omikuji: learnt in seconds on a CPU."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array, hstack, load_npz, save_npz, vstack

from gandalf.data.bag_of_words import KINDS, BagOfWords
from gandalf.data.files import written
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model.added_terms import Added, fit_added, label_terms
from gandalf.model.calibration import Calibration
from gandalf.model.chosen_labels import checked_labels, with_record
from gandalf.model.layout import AGAIN, CONFIG, Facts, listed_files, missing, read_json
from gandalf.model.part import NO_LABEL, Floats, Ints, Mask, largest

# Settings of a recipe that say nothing about trees: what they are about is not there.
UNHEEDED = frozenset(
    (
        *("device", "text", "encoder", "head", "siamese", "labels", "training", "baselines"),
        *("targets.label_weight", "targets.label_epochs", "validation.every", "validation.patience"),
    )
)
KIND = "trees"  # what `config.json` says in place of an encoder's kind
WORDS, SETTINGS = "features.json", "settings.json"  # ours; omikuji's, beside tree0.cbor, tree1.cbor, ...
ADDED_ROWS = "added.npz"  # of labels that were added without training
BEAM = 10  # branches of a tree that are followed at once, the library's own default
ALMOST = 1e-7  # how near to 0 and 1 a score comes before it is taken for a logit


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
    """Terms that have a column, the linear classifiers over them, and what the labels are called.

    The classifiers stand in label trees, or all at the root: one-vs-all is a tree of one leaf.
    """

    words: BagOfWords
    forest: Any  # omikuji's
    label_texts: Sequence[str]  # L
    label_ids: Sequence[str] | None  # L
    config: dict[str, Any]  # the recipe
    calibration: Calibration | None = None
    added: Added | None = None  # labels that were added without training
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
    def trained_labels(self) -> int:
        """Number of labels that the classifiers were trained on, which come first."""
        return self.num_labels - (0 if self.added is None else len(self.added))

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
        scores = np.full(labels.shape, logits([0.0])[0], dtype=np.float32)  # shape: (N, C)
        for row, found in enumerate(self._found(texts, self.trained_labels, None)):
            known = dict(found)
            scores[row] = [known.get(label, scores[row, at]) for at, label in enumerate(labels[row].tolist())]
        return scores

    def knows(self, texts: Sequence[str]) -> Mask:
        """Return True for each text that has a known term."""
        return np.asarray(np.diff(self.words.features(texts).indptr) > 0)

    def unit_vectors(self, texts: Sequence[str]) -> csr_array:
        """Return TF-IDF rows."""
        return self.words.features(texts)

    def alike(self, label: int, most: int) -> list[tuple[int, float]]:
        """Return the labels whose texts share most terms with this label's."""
        of_labels = self.unit_vectors(self.label_texts)
        cosines = (of_labels @ of_labels[[label]].T).toarray()[:, 0]
        cosines[label] = -np.inf
        return largest(cosines, min(most, self.num_labels - 1))

    def with_labels(self, labels: Sequence[NewLabel]) -> Trees:
        """Return trees that also have these labels, scored by the terms of their texts and examples."""
        chosen = checked_labels(self, labels)
        terms = label_terms(self, chosen.labels, chosen.neighbours)
        fitted = fit_added(self)
        before = [] if self.added is None else [self.added.rows]
        rows = csr_array(vstack([*before, terms], format="csr"))
        return replace(
            self,
            label_texts=[*self.label_texts, *(label.text for label in chosen.labels)],
            label_ids=chosen.ids,
            config=with_record(self.config, chosen.labels, fitted_on=self.trained_labels),
            added=Added(rows, *fitted),
        )

    def facts(self) -> Facts:
        """Return what `config.json` will say."""
        size = len(self.words.words) + 1
        more = (
            {} if self.added is None else {"added_slope": self.added.slope, "added_offset": self.added.offset}
        )
        return Facts({"kind": KIND, **more}, self.num_labels, size, self.config, self.calibration)

    def write(self, folder: Path) -> None:
        """Write words and trees into a folder that is there, each file wholly or not at all."""
        with written(folder / WORDS) as file:
            words, idf = list(self.words.words), [float(each) for each in self.words.idf]
            json.dump({"words": words, "idf": idf, "kinds": self.words.kinds}, file, ensure_ascii=False)
        part = folder / f".trees.{uuid.uuid4().hex[:8]}.part"
        try:
            with silenced():
                self.forest.save(str(part))
            for path in part.iterdir():
                os.replace(path, folder / path.name)
            part.rmdir()
        except (OSError, RuntimeError) as error:
            raise DataError(f"cannot be written ({error})", file=folder) from error
        if self.added is not None:
            with written(folder / ADDED_ROWS, "wb") as file:
                save_npz(file, self.added.rows)

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
            scores = logits([score for _, score in found]).tolist()
            of_forest = [(label, score) for (label, _), score in zip(found, scores, strict=True)]
            more = [] if added is None else list(enumerate(added[row].tolist(), start=trained))
            yield of_forest + more


def load_trees(folder: Path, facts: Facts, ids: list[str] | None, texts: list[str]) -> Trees:
    """Read what `Trees.write` wrote."""
    omikuji = need_omikuji()
    for name in listed_files(folder):
        if not (folder / name).is_file():
            raise missing(folder / name)
    words = _read_words(folder / WORDS, facts.dim - 1)
    try:
        with silenced():
            forest = omikuji.Model.load(str(folder))
    except (RuntimeError, OSError, ValueError) as error:
        raise DataError(f"its trees cannot be read ({error})", remedy=AGAIN, file=folder) from error
    return Trees(words, forest, texts, ids, facts.config, facts.calibration, _read_added(folder, facts))


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
        kinds = tuple(kind for kind in KINDS if kind in found.get("kinds", ("words",)))
        words = BagOfWords(tuple(map(str, found["words"])), np.asarray(found["idf"], dtype=np.float32), kinds)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"lacks or garbles its words ({error})", remedy=AGAIN, file=path) from error
    if len(words.words) != expected or words.idf.shape != (expected,):
        raise DataError(
            f"does not hold the {expected:,} words that {CONFIG} speaks of", remedy=AGAIN, file=path
        )
    return words


def _read_added(folder: Path, facts: Facts) -> Added | None:
    if "added_slope" not in facts.encoder:
        return None
    path = folder / ADDED_ROWS
    if not path.is_file():
        raise missing(path)
    try:
        rows = csr_array(load_npz(path))
        found = Added(rows, float(facts.encoder["added_slope"]), float(facts.encoder["added_offset"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"its added labels cannot be read ({error})", remedy=AGAIN, file=path) from error
    if rows.shape[1] != facts.dim or rows.shape[0] >= facts.labels:
        raise DataError(f"does not hold the added labels that {CONFIG} speaks of", remedy=AGAIN, file=path)
    return found
