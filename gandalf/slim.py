"""Predictions by onnxruntime, without PyTorch: reads what `gandalf export` wrote.

Needs NumPy, SciPy and onnxruntime, and tokenizers where the model's tokens are sub-words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from gandalf.data.files import read_lines
from gandalf.errors import DataError, Findings
from gandalf.text.tokens import check_texts, load_tokens

GRAPH, FACTS, LABELS = "model.onnx", "slim.json", "labels.jsonl"
FORMAT, VERSION = "gandalf slim model", 1
TOKENS, SCORES = "tokens", "scores"  # what goes into the graph and what comes out
BATCH = 256  # texts that meet all labels at once

Ids = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float32]
Named = list[tuple[str, float]]  # label text and probability, best first


class SlimPredictor:
    """An exported model: texts to labels and probabilities, as `Predictor` gives them."""

    def __init__(self, folder: str | Path, threads: int = 0) -> None:
        folder = Path(folder)
        facts = read_facts(folder / FACTS)
        self.calibration: dict[str, float] = facts["calibration"] or {"slope": 1.0, "offset": 0.0}
        self.tokens = load_tokens(folder)
        self.label_texts, self.label_ids = _labels(folder / LABELS, facts["labels"])
        self._session = _session(folder / GRAPH, threads)

    @property
    def num_labels(self) -> int:
        """Number of labels L."""
        return len(self.label_texts)

    def predict(self, texts: str | Sequence[str], k: int = 5) -> tuple[Ids, Probabilities]:
        """Ids and probabilities of the k best labels, best first: 1-d arrays for one text, else N x k."""
        if isinstance(texts, str):
            ids, scores = self.predict([texts], k)
            return ids[0], scores[0]
        check_texts(texts)
        if not 1 <= k <= self.num_labels:
            raise DataError(f"k is {k}, and there are {self.num_labels:,} labels")
        parts = [self._batch(texts[at : at + BATCH], k) for at in range(0, len(texts), BATCH)]
        return (
            np.concatenate([np.empty((0, k), dtype=np.int64), *(part[0] for part in parts)]),
            np.concatenate([np.empty((0, k), dtype=np.float32), *(part[1] for part in parts)]),
        )

    def scores(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Scores of all labels, before the sigmoid."""  # shape: (N, L)
        tokens = self.tokens.encode(texts).astype(np.int64)
        found: npt.NDArray[np.float32] = self._session.run([SCORES], {TOKENS: tokens})[0]
        return found

    @overload
    def named(self, texts: str, k: int = 5) -> Named: ...  # type: ignore[overload-overlap]  # told apart first
    @overload
    def named(self, texts: Sequence[str], k: int = 5) -> list[Named]: ...

    def named(self, texts: str | Sequence[str], k: int = 5) -> Named | list[Named]:
        """The same as lists of (label text, probability): one for one text, a list of lists for several."""
        ids, scores = self.predict(texts, k)
        if isinstance(texts, str):
            return self._names(ids, scores)
        return [self._names(*row) for row in zip(ids, scores, strict=True)]

    def _names(self, ids: Ids, scores: Probabilities) -> Named:
        return [
            (self.label_texts[id], score) for id, score in zip(ids.tolist(), scores.tolist(), strict=True)
        ]

    def _batch(self, texts: Sequence[str], k: int) -> tuple[Ids, Probabilities]:
        scores = self.scores(texts)
        some = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)  # ties: the smaller label
        order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
        ids = np.take_along_axis(some, order, axis=1)
        best = np.take_along_axis(scores, ids, axis=1).astype(np.float64)
        logits = self.calibration["slope"] * best + self.calibration["offset"]
        return ids.astype(np.int64), expit(logits).astype(np.float32)


def read_facts(path: Path) -> dict[str, Any]:
    """What an exported model says of itself."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            "is no exported model", remedy="write it with gandalf export", file=path.parent
        ) from error
    if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
        raise DataError("is no exported model of this version", remedy="export it again", file=path.parent)
    return found


def _labels(path: Path, expected: int) -> tuple[list[str], list[str] | None]:
    records = [json.loads(line) for _, line in read_lines(path, Findings())]
    if len(records) != expected:
        raise DataError(
            f"holds {len(records):,} labels, not {expected:,}", remedy="export it again", file=path
        )
    ids = [record["id"] for record in records if "id" in record]
    return [record["text"] for record in records], ids or None


def _session(path: Path, threads: int) -> Any:  # noqa: ANN401  onnxruntime has no types
    try:
        import onnxruntime
    except ImportError as error:
        raise DataError("an exported model needs onnxruntime", remedy="pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
