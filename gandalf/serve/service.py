"""What a server does, without HTTP: predict, explain, look labels up, add labels."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model import Part
from gandalf.predict.explain import Background, Explainer, Explanation, Near
from gandalf.predict.index import Index, IndexSearch
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Answer, Query, answer
from gandalf.serve.journal import Journal
from gandalf.serve.names import LabelNames

MakePredictor = Callable[[Part], Predictor]


@dataclass(frozen=True, eq=False)
class Served:
    """A model as it is at one moment; never changed, only replaced."""

    predictor: Predictor
    background: Background | None = None

    @property
    def model(self) -> Part:
        """The model."""
        return self.predictor.model

    @property
    def index(self) -> Index | None:
        """What it is searched by, if that may miss labels."""
        search = self.predictor.search
        return search.index if isinstance(search, IndexSearch) else None

    @cached_property
    def names(self) -> LabelNames:
        """What its labels are called."""
        return LabelNames(self.model)

    @cached_property
    def explainer(self) -> Explainer:
        """Says why."""
        return Explainer(self.predictor, self.background)


def use_threads(number: int) -> None:
    """Compute with so many threads in the thread that calls it: faiss knows no number for all of them."""
    torch.set_num_threads(number)
    faiss: Any = sys.modules.get("faiss")
    if faiss is not None:
        faiss.omp_set_num_threads(number)


class Service:
    """One model, perhaps a baseline beside it, and perhaps a journal of labels that were added."""

    def __init__(
        self,
        served: Served,
        baseline: Served | None = None,
        journal: Journal | None = None,
        make: MakePredictor = Predictor,
    ) -> None:
        self.served, self.baseline, self._journal, self._make = served, baseline, journal, make
        self._changing = threading.Lock()
        # What new labels need is fitted now: it may take seconds, and who adds the first should not wait.
        self._growing: Part = served.model if journal is None else served.model.with_label_maker()
        self.catch_up()

    @property
    def adds(self) -> bool:
        """Whether labels can be added."""
        return self._journal is not None

    def at(self, baseline: bool) -> Served:
        """The model, or the one beside it."""
        if not baseline:
            return self.served
        if self.baseline is None:
            raise DataError("there is no baseline", remedy="start the server with --baseline MODEL")
        return self.baseline

    def answer(self, queries: Sequence[tuple[Query, bool]]) -> list[Answer]:
        """Answers to queries, each marked by whether it is for the baseline."""
        self.catch_up()
        found: list[Answer] = [()] * len(queries)
        for of_baseline in (False, True):
            places = [at for at, (_, baseline) in enumerate(queries) if baseline == of_baseline]
            if places:
                predictor = self.at(of_baseline).predictor
                answers = answer(predictor, [queries[at][0] for at in places])
                for at, one in zip(places, answers, strict=True):
                    found[at] = one
        return found

    def explain(self, text: str, label: int, baseline: bool = False) -> Explanation:
        """Why the text gets the label."""
        return self.at(baseline).explainer.explain(text, label)

    def near(self, label: int, baseline: bool = False) -> Near:
        """The label's neighbours."""
        return self.at(baseline).explainer.near(label)

    def add(self, labels: Sequence[NewLabel]) -> list[int]:
        """Add labels and give their numbers; on return they answer, and are on the disk."""
        if self._journal is None:
            raise DataError("labels cannot be added to this server")
        with self._changing, self._journal.locked():
            self._apply(self._journal.new())
            before = self._growing.num_labels
            longer = self._growing.with_labels(labels)  # refuses what cannot be added
            self._journal.append(labels)
            self._replace(longer)
        return list(range(before, longer.num_labels))

    def catch_up(self) -> None:
        """Take in what other processes have added; where labels are just being added here, later."""
        if self._journal is None or not self._journal.grown() or not self._changing.acquire(blocking=False):
            return
        try:
            self._apply(self._journal.new())
        finally:
            self._changing.release()

    def _apply(self, added: Sequence[Sequence[NewLabel]]) -> None:
        model = self._growing
        for labels in added:
            model = model.with_labels(labels)
        if added:
            self._replace(model)

    def _replace(self, model: Part) -> None:
        self._growing = model
        self.served = Served(self._make(model), self.served.background)
