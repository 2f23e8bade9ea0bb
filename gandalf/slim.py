"""Predict without PyTorch, with a slim model of `gandalf export` or a trained model of words.

This module needs NumPy and SciPy. An exported network needs onnxruntime, and tokenizers if its tokens are
sub-words. A trained network of words needs safetensors. Label trees need omikuji. A mix needs the libraries
of its parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from gandalf.data.claim import restore_folder
from gandalf.errors import DataError
from gandalf.memory.files import INNER, MEMORY, check_memory, read_memory
from gandalf.memory.keys import Vectors
from gandalf.model.calibration import Calibration, probabilities
from gandalf.model.facts import read_facts as read_trained
from gandalf.model.facts import read_labels
from gandalf.model_folder import CONFIG, LABELS, PARTS, SLIM_FACTS, WEIGHTS, check_hashes, damaged
from gandalf.text.load import load_tokens
from gandalf.text.tokens import check_texts
from gandalf.wide.mixing import MIX, NO_LABEL, PROPOSED, best_of_mix, read_composition, scores_of_mix
from gandalf.wide.plain_network import BAG_OF_WORDS, can_be_plain, read_plain_network
from gandalf.wide.wide_model import TREES, read_wide_model

GRAPH = "model.onnx"
FORMAT, VERSION = "gandalf slim model", 1
NEEDS_PYTORCH = "needs-pytorch"  # kind of the problem with a folder that can be read another way
NETWORK = "network"  # the kind of a folder of an early release, which does not store a kind
TOKENS, SCORES, VECTORS = "tokens", "scores", "vectors"  # input and outputs of the ONNX graph
BATCH = 256  # texts that are scored with all labels at once

Ids = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float32]
NamedLabels = list[tuple[str, float]]  # label text and probability, best first


class SlimPart(Protocol):
    """An exported model of any kind; its scores are logits before calibration."""

    def best(self, texts: Sequence[str], k: int) -> tuple[Ids, Probabilities]:
        """Return ids and scores of the k best labels, as `Part.best` does."""  # shape: (N, k), (N, k)
        ...

    def score(self, texts: Sequence[str], labels: Ids) -> Probabilities:
        """Return the score of each text with each label of its row of `labels`."""  # shape: (N, C) -> (N, C)
        ...

    def knows(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each text with at least one known token."""  # shape: (N,)
        ...

    def unit_vectors(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of length 1 for the search in a memory."""  # shape: (N, dim)
        ...


class SlimPredictor:
    """An exported model, or a trained model of words, that turns texts into labels like `Predictor`.

    A folder with a changed file is refused; `verify=False` skips this check.
    """

    def __init__(self, folder: str | Path, threads: int = 0, *, verify: bool = True) -> None:
        folder = Path(folder)
        restore_folder(folder)
        facts = _facts_of(folder)
        if verify:
            check_hashes(folder / (SLIM_FACTS if (folder / SLIM_FACTS).is_file() else CONFIG))
        self.calibration, self.calibrated = facts.calibration or Calibration(), facts.calibration is not None
        self.label_ids, self.label_texts = read_labels(folder / LABELS, facts.labels)
        self._part = _read_part(folder, facts, threads)

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        return len(self.label_texts)

    def predict(self, texts: str | Sequence[str], k: int = 5) -> tuple[Ids, Probabilities]:
        """Return ids and probabilities of the k best labels, best first: 1-d for one text, else N x k.

        If fewer than k labels are found, the other ids are -1 and their probabilities 0. A text without a
        known token gets no labels.
        """
        if isinstance(texts, str):
            ids, scores = self.predict([texts], k)
            return ids[0], scores[0]
        check_texts(texts)
        if not 1 <= k <= self.num_labels:
            most = f"the number of labels, {self.num_labels:,}"
            raise DataError(f"k is {k}, but it must lie between 1 and {most}")
        parts = [self._best(texts[at : at + BATCH], k) for at in range(0, len(texts), BATCH)]
        ids = np.concatenate([np.empty((0, k), dtype=np.int64), *(part[0] for part in parts)])
        scores = np.concatenate([np.empty((0, k), dtype=np.float32), *(part[1] for part in parts)])
        return ids, probabilities(scores, self.calibration)

    def knows(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each text of which at least one token is known."""  # shape: (N,)
        return self._part.knows(texts)

    def _best(self, texts: Sequence[str], k: int) -> tuple[Ids, Probabilities]:
        ids, scores = self._part.best(texts, k)
        unknown = ~self._part.knows(texts)
        ids[unknown], scores[unknown] = NO_LABEL, -np.inf
        return ids, scores

    def scores(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the scores of all labels, before calibration and sigmoid."""  # shape: (N, L)
        every = np.broadcast_to(np.arange(self.num_labels), (len(texts), self.num_labels))
        return self._part.score(texts, every)

    @overload
    def named(self, texts: str, k: int = 5) -> NamedLabels: ...  # type: ignore[overload-overlap]  # str comes first
    @overload
    def named(self, texts: Sequence[str], k: int = 5) -> list[NamedLabels]: ...

    def named(self, texts: str | Sequence[str], k: int = 5) -> NamedLabels | list[NamedLabels]:
        """Return lists of (label text, probability): one list for one text, a list of lists for several."""
        ids, scores = self.predict(texts, k)
        if isinstance(texts, str):
            return self._names(ids, scores)
        return [self._names(*row) for row in zip(ids, scores, strict=True)]

    def _names(self, ids: Ids, scores: Probabilities) -> NamedLabels:
        return [
            (self.label_texts[id], score)
            for id, score in zip(ids.tolist(), scores.tolist(), strict=True)
            if id != NO_LABEL
        ]


class _Network:
    """A network: encoder and rows in one ONNX graph."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._tokens, self._path = load_tokens(folder), folder / GRAPH
        self._session = _session(self._path, threads)

    def best(self, texts: Sequence[str], k: int) -> tuple[Ids, Probabilities]:
        scores = self._run(SCORES, texts)
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        best = np.sort(best, axis=1)  # so that ties go to smaller labels
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        ids = np.take_along_axis(best, order, axis=1)
        return ids.astype(np.int64), np.take_along_axis(scores, ids, axis=1)

    def score(self, texts: Sequence[str], labels: Ids) -> Probabilities:
        return np.take_along_axis(self._run(SCORES, texts), labels, axis=1)

    def knows(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return self._tokens.known(texts)

    def unit_vectors(self, texts: Sequence[str]) -> Vectors:
        found = self._run(VECTORS, texts)
        if not np.isfinite(found).all():
            raise damaged("gives vectors that are no numbers", self._path)
        length = np.linalg.norm(found.astype(np.float64), axis=1, keepdims=True)  # squares stay finite
        return np.asarray(found / np.maximum(length, 1e-12), dtype=np.float32)

    def _run(self, output: str, texts: Sequence[str]) -> Probabilities:
        tokens = self._tokens.encode(texts).astype(np.int64)
        with _told_as_damage(self._path):
            found: Probabilities = self._session.run([output], {TOKENS: tokens})[0]
        return found


class _Mix:
    """A mix: its parts, each in its folder, and their weights."""

    def __init__(self, folder: Path, facts: SlimFacts, threads: int) -> None:
        stored, self._size = facts.stored, facts.labels
        self._names, self._weights = read_composition(
            stored.get("parts"), stored.get("weights"), folder / SLIM_FACTS
        )
        what = f"is not a part of this mix of {self._size:,} labels"
        self._parts = [
            _read_inner(folder / PARTS / name, self._size, MIX, what, threads) for name in self._names
        ]

    def best(self, texts: Sequence[str], k: int) -> tuple[Ids, Probabilities]:
        size = min(max(k, PROPOSED), self._size)
        found = [(part.best(texts, size), calibration) for part, calibration in self._parts]
        lists = [(ids, calibration(scores)) for (ids, scores), calibration in found]
        return best_of_mix(lists, self._weights, k)

    def score(self, texts: Sequence[str], labels: Ids) -> Probabilities:
        found = [calibration(part.score(texts, labels)) for part, calibration in self._parts]
        return scores_of_mix(self._weights, found)

    def knows(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.asarray(np.logical_or.reduce([part.knows(texts) for part, _ in self._parts]))

    def unit_vectors(self, texts: Sequence[str]) -> Vectors:
        return self._parts[0][0].unit_vectors(texts)

    def part(self, name: object, path: Path) -> SlimPart:
        """Return the part with this name."""
        if name not in self._names:
            raise damaged(f"has no part {str(name)[:40]!r}", path)
        return self._parts[self._names.index(str(name))][0]


class _WithMemory:
    """A model in a folder, and a memory."""

    def __init__(self, folder: Path, facts: SlimFacts, threads: int) -> None:
        inner, self._size = folder / PARTS / INNER, facts.labels
        what = f"is not the model of {self._size:,} labels that belongs to the memory"
        self._model, self._calibration = _read_inner(inner, self._size, MEMORY, what, threads)
        model = self._model
        self._reader = model.part(facts.stored.get("reader"), inner) if isinstance(model, _Mix) else model
        self._memory, self._weight = read_memory(folder, facts.stored, self._size)
        check_memory(self._memory, self._reader.unit_vectors([""]), folder)

    def best(self, texts: Sequence[str], k: int) -> tuple[Ids, Probabilities]:
        ids, scores = self._model.best(texts, min(max(k, PROPOSED), self._size))
        near = self._memory.nearest(self._reader.unit_vectors(texts))
        return self._memory.best_with((ids, self._calibration(scores)), near, self._weight, k)

    def score(self, texts: Sequence[str], labels: Ids) -> Probabilities:
        near = self._memory.nearest(self._reader.unit_vectors(texts))
        probabilities = self._calibration(self._model.score(texts, labels))
        return self._memory.score_with(probabilities, near, self._weight, labels)

    def knows(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return self._model.knows(texts)

    def unit_vectors(self, texts: Sequence[str]) -> Vectors:
        return self._model.unit_vectors(texts)


@dataclass(frozen=True)
class SlimFacts:
    """The facts of an exported model, or of a trained model that runs without PyTorch."""

    kind: str
    labels: int
    size: int  # columns of a wide model
    calibration: Calibration | None
    stored: dict[str, Any]  # the facts of this kind of model


def _read_part(folder: Path, facts: SlimFacts, threads: int) -> SlimPart:
    readers: dict[str, Callable[[], SlimPart]] = {
        NETWORK: lambda: _Network(folder, threads),
        BAG_OF_WORDS: lambda: read_plain_network(folder, WEIGHTS, facts.stored, facts.labels),
        TREES: lambda: read_wide_model(folder, facts.stored, facts.labels, facts.size),
        MIX: lambda: _Mix(folder, facts, threads),
        MEMORY: lambda: _WithMemory(folder, facts, threads),
    }
    return readers[facts.kind]()


def _read_inner(
    folder: Path, labels: int, outer: str, what: str, threads: int
) -> tuple[SlimPart, Calibration]:
    """Read an inner model; refuse one of the kind `outer` or of other labels with the words `what`."""
    facts = _facts_of(folder)
    if facts.kind == outer or facts.labels != labels:
        raise damaged(what, folder)
    return _read_part(folder, facts, threads), facts.calibration or Calibration()


def read_facts(path: Path) -> dict[str, Any]:
    """Return the facts of an exported model."""
    try:
        stored = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        remedy = "write it with gandalf export"
        raise DataError("is no exported model", remedy=remedy, file=path.parent) from error
    if not isinstance(stored, dict) or (stored.get("format"), stored.get("version")) != (FORMAT, VERSION):
        raise damaged("is no exported model of this version", path.parent)
    return stored


def _facts_of(folder: Path) -> SlimFacts:
    """Return the facts of an exported or a trained model; refuse a trained model that needs PyTorch."""
    if (folder / SLIM_FACTS).is_file() or not (folder / CONFIG).is_file():
        return _exported_facts(folder / SLIM_FACTS)
    trained = read_trained(folder)
    kind = trained.encoder.get("kind")
    if kind not in (TREES, MIX, MEMORY) and not can_be_plain(trained.encoder):
        remedy = "export the model with gandalf export, or load it with gandalf.load_model"
        raise DataError("needs PyTorch", remedy=remedy, file=folder, kind=NEEDS_PYTORCH)
    return SlimFacts(str(kind), trained.labels, trained.dim, trained.calibration, trained.encoder)


def _exported_facts(path: Path) -> SlimFacts:
    """Return the facts of an exported model, with defaults for facts that early releases do not store."""
    stored: dict[str, Any] = {"kind": NETWORK, "size": 0} | read_facts(path)
    kind = stored["kind"]
    if kind not in (NETWORK, TREES, MIX, MEMORY):
        what = f"is an exported model of the kind {str(kind)[:40]!r}, which this release cannot run"
        raise DataError(what, remedy="pip install --upgrade gandalf-xmc", file=path.parent)
    try:
        numbers = stored.get("calibration")
        calibration = Calibration(float(numbers["slope"]), float(numbers["offset"])) if numbers else None
        return SlimFacts(kind, int(stored["labels"]), int(stored["size"]), calibration, stored)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(f"lacks a fact, or has one that is not valid ({error})", path) from error


def _session(path: Path, threads: int) -> Any:  # noqa: ANN401  onnxruntime has no types
    try:
        import onnxruntime
    except ImportError as error:
        raise DataError("an exported model needs onnxruntime", remedy="pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    with _told_as_damage(path):
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@contextmanager
def _told_as_damage(path: Path) -> Iterator[None]:
    """Raise a DataError for an error of onnxruntime, which may notice damage only when it runs the graph."""
    try:
        yield
    except Exception as error:  # onnxruntime has an exception type for each kind of damage
        reason = str(error).splitlines()[0][:120]
        raise damaged(f"cannot be run ({reason})", path) from error
