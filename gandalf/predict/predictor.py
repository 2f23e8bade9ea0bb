"""Predict labels and probabilities of one text or many with a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from gandalf.data.in_memory import plain_texts
from gandalf.errors import DataError
from gandalf.model import Calibration, Model, ModelWithMemory, Part
from gandalf.model.calibration import probabilities
from gandalf.model.exact import RowBlocks, pair_scores, top_k
from gandalf.model.with_memory import without_memory
from gandalf.predict.fused import LEAST_LABELS, FusedSearch, why_not_fused
from gandalf.predict.index import IndexSearch
from gandalf.predict.one_text import OneText
from gandalf.predict.tables import Kind, as_table, label_columns, label_name
from gandalf.progress import track
from gandalf.text.tokens import check_texts
from gandalf.wide.mixing import NO_LABEL, PROPOSED
from gandalf.wide.rounded import Rounded

CHUNK = 8_192  # texts whose vectors are in memory at once

Ids = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float32]
NamedLabels = list[tuple[str, float]]  # label text and score, best first


class Search(Protocol):
    """A search for the best labels of vectors: exact, or by an index that misses some."""

    def __call__(self, x: Tensor, k: int, exclude: csr_array | None) -> tuple[Ids, Probabilities]:
        """Return numbers and scores, before the sigmoid, of the k best labels, in the form of `top_k`."""
        ...


class Predictor:
    """Predicts labels and probabilities with a trained model.

    Probabilities are the model's calibrated scores; without a calibration they are plain sigmoids of scores.

    `precision`: below float32 it finds candidates faster on suitable hardware (see `top_k`).
    `head`: replaces the model's head.
    `search`: replaces the exact search of the head, which is a `FusedSearch` on a suitable GPU.
    `rounded`: the result of `prepare` of a predictor for the first labels of the model.
    """

    def __init__(
        self,
        model: Part,
        *,
        precision: torch.dtype = torch.float32,
        head: RowBlocks | None = None,
        search: Search | None = None,
        rounded: Rounded | None = None,
    ) -> None:
        self.model, self.precision = model, precision
        network = without_memory(model)
        self._network = network if isinstance(network, Model) else None
        self._given_head = head
        self._fused: FusedSearch | None = None  # holds a copy of the rows at its first use
        self._search = search
        self._one_text = self._one_text_search(rounded)
        self.calibration = model.calibration or Calibration()

    def _one_text_search(self, rounded: Rounded | None) -> OneText | None:
        """Return the fast search for single texts, or None if the model or an option rules it out."""
        index = self._search if isinstance(self._search, IndexSearch) else None
        own_rows = self._search is None and self._given_head is None
        if not isinstance(self.model, Model) or self.precision != torch.float32 or not (index or own_rows):
            return None
        return OneText(self.model, index, rounded)

    def prepare(self) -> Rounded | None:
        """Round the rows now for fast single texts; return them for a predictor with further labels."""
        if self._one_text is None or self._search is not None:
            return None
        self._one_text.prepare()
        return self._one_text.rounded

    @property
    def network(self) -> Model:
        """Return the network of the model, which may have a memory; raise a DataError for other models."""
        if self._network is None:
            what = "a mix or label trees have no single table of rows"
            raise DataError(what, remedy="give a model of one system, such as astec")
        return self._network

    @property
    def search(self) -> Search:
        """Return the search for the best labels of vectors."""
        return self._search_exactly if self._search is None else self._search

    @property
    def head(self) -> RowBlocks:
        """Return the head whose rows are searched."""
        return self.network.head if self._given_head is None else self._given_head

    def predict(
        self,
        texts: str | Sequence[str],
        k: int = 5,
        exclude: csr_array | None = None,
        threshold: float | None = None,
    ) -> tuple[Ids, Probabilities]:
        """Return numbers and probabilities of the k best labels, best first.

        One text gives arrays of length k, several texts give N x k. Pairs in `exclude` (N x L) are never
        predicted, nor labels with a probability below `threshold`. If fewer than k labels remain, the number
        is -1 and the probability 0. A text of which the model knows nothing (`model.knows`) has no label.
        """
        if isinstance(texts, str):
            ids, scores = self.predict([texts], k, exclude, threshold)
            return ids[0], scores[0]
        texts = plain_texts(texts)
        check_texts(texts)
        starts = range(0, len(texts), CHUNK)
        parts = [
            self.best(texts[at : at + CHUNK], k, None if exclude is None else exclude[at : at + CHUNK])
            for at in (track(starts, "predicting") if len(starts) > 1 else starts)
        ]
        ids = np.concatenate([np.empty((0, k), dtype=np.int64), *(part[0] for part in parts)])
        logits = np.concatenate([np.empty((0, k), dtype=np.float32), *(part[1] for part in parts)])
        scores = probabilities(logits, self.calibration)
        if threshold is not None:
            unlikely = scores < threshold
            ids[unlikely], scores[unlikely] = -1, 0.0
        return ids, scores

    @overload
    def named(  # type: ignore[overload-overlap]  # a str is also a sequence of str, and told apart first
        self, texts: str, k: int = 5, exclude: csr_array | None = None, threshold: float | None = None
    ) -> NamedLabels: ...
    @overload
    def named(
        self,
        texts: Sequence[str],
        k: int = 5,
        exclude: csr_array | None = None,
        threshold: float | None = None,
    ) -> list[NamedLabels]: ...

    def named(
        self,
        texts: str | Sequence[str],
        k: int = 5,
        exclude: csr_array | None = None,
        threshold: float | None = None,
    ) -> NamedLabels | list[NamedLabels]:
        """Return lists of (label text, probability): one list for one text, a list of lists for several.

        A label with a blank text is named by its id.
        """
        if isinstance(texts, str):
            return self._names(*self.predict(texts, k, exclude, threshold))
        ids, scores = self.predict(texts, k, exclude, threshold)
        return [self._names(*row) for row in zip(ids, scores, strict=True)]

    def table(
        self,
        texts: str | Sequence[str],
        k: int = 5,
        threshold: float | None = None,
        kind: Kind = "pandas",
    ) -> Any:  # noqa: ANN401  a table of a library that may be missing
        """Return a pandas or polars DataFrame, or a pyarrow Table, with one row for each label of each text.

        Columns are `row` (of the text, from 0), `text`, `rank`, `label` (number), `label_id`, `label_text`
        and `score`. A text without labels has no row.
        """
        asked = [texts] if isinstance(texts, str) else list(texts)
        ids, scores = self.predict(asked, min(k, self.model.num_labels), threshold=threshold)
        return as_table(label_columns(self.model, asked, ids, scores), kind)

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None) -> tuple[Ids, Probabilities]:
        """Return numbers and scores, before calibration, of the k best labels of each text.

        A text of which the model knows nothing has no labels; every such text would get the same labels.
        """
        if len(texts) == 1 and exclude is None and self._one_text is not None:
            found = self._one_text.best(texts[0], k)
            if found is not None:
                return found
        ids, scores = self._best(texts, k, exclude)
        unknown = ~self.model.knows(texts)
        ids[unknown], scores[unknown] = NO_LABEL, -np.inf
        return ids, scores

    def _best(self, texts: Sequence[str], k: int, exclude: csr_array | None) -> tuple[Ids, Probabilities]:
        model = self.model
        if self._network is None:
            return model.best(texts, k, exclude)
        x = self._network.vectors(texts)  # computed once, for the search of rows and for the memory
        if not isinstance(model, ModelWithMemory):
            return self.search(x, k, exclude)
        proposed = self.search(x, min(max(k, PROPOSED), model.num_labels), exclude)
        return model.with_votes(F.normalize(x, dim=1), proposed, k, exclude)

    @torch.no_grad()
    def score(self, texts: Sequence[str], labels: Ids) -> Probabilities:
        """Return the score, before calibration, of each text with each of its own labels."""
        if isinstance(self.model, Model):
            ids = torch.from_numpy(labels).to(self.model.device)
            found: Probabilities = pair_scores(self.model.vectors(texts), self.head, ids).cpu().numpy()
            return found
        return self.model.score(texts, labels)

    def _search_exactly(self, x: Tensor, k: int, exclude: csr_array | None) -> tuple[Ids, Probabilities]:
        head = self.head
        if head.num_labels < LEAST_LABELS or why_not_fused(head.block(0, 1)[0]) is not None:
            return top_k(x, head, k, exclude=exclude, precision=self.precision)
        if self._fused is None or self._fused.head is not head:
            self._fused = FusedSearch(head)
        return self._fused(x, k, exclude)

    def _names(self, ids: Ids, scores: Probabilities) -> NamedLabels:
        places = zip(ids.tolist(), scores.tolist(), strict=True)
        return [(label_name(self.model, id), score) for id, score in places if id >= 0]
