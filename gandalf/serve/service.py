"""What a server does, without HTTP: predict, explain, look labels up, add labels."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model import Part
from gandalf.model.chosen_labels import KnownLabels
from gandalf.model.examples import (
    example_ids,
    named_examples,
    numbered,
    with_examples,
    without_example,
)
from gandalf.predict.explain import Background, Explainer, Explanation, Near
from gandalf.predict.index import Index, IndexSearch
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Answer, Query, answer
from gandalf.serve.journal import Change, Journal
from gandalf.serve.names import LabelNames

MakePredictor = Callable[[Part], Predictor]


@dataclass(frozen=True, eq=False)
class Served:
    """A model as it is at one moment; never changed, only replaced."""

    predictor: Predictor
    background: Background | None = None
    name: str = "baseline"  # that `/about` shows of a baseline

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
    """One model, perhaps a baseline beside it, and perhaps a journal of what was added."""

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
        self._base: Part = served.model if journal is None else served.model.with_label_maker()
        self._growing = self._base  # with all changes of the journal
        self._known: tuple[Sequence[str], KnownLabels] | None = None
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
        self.catch_up()
        return self.at(baseline).explainer.explain(text, label)

    def near(self, label: int, baseline: bool = False) -> Near:
        """The label's neighbours."""
        self.catch_up()
        return self.at(baseline).explainer.near(label)

    def add(self, labels: Sequence[NewLabel]) -> list[int]:
        """Add labels and give their numbers; on return they answer, and are on the disk."""
        before, after = self._change(Change(labels=tuple(labels)))
        return list(range(before.num_labels, after.num_labels))

    def add_examples(self, examples: Sequence[Example], labels: Sequence[NewLabel] = ()) -> list[Example]:
        """Add examples, and labels that they need; on return they count, and are on the disk."""
        chosen = tuple(named_examples(examples))
        self._change(Change(tuple(labels), chosen))
        return list(chosen)

    def remove_example(self, id: str) -> bool:
        """Remove an example; on return it does not count any more, and the journal does not hold it.

        Return False if there is no such example.
        """
        journal = self._need_journal()
        with self._changing, journal.locked():
            self._apply(*journal.new())
            if id not in example_ids(self._growing):
                return False
            after = without_example(self._growing, id)
            journal.remove(id)
            afresh, changes = journal.new()
            if afresh:  # as every other process will have it: what else was added may rest on the example
                self._apply(afresh, changes)
            else:
                self._replace(after)
        return True

    @property
    def examples(self) -> int:
        """Number of examples that were added."""
        return len(example_ids(self.served.model))

    def _change(self, change: Change) -> tuple[Part, Part]:
        """Make a change, and return the model before and after it."""
        journal = self._need_journal()
        with self._changing, journal.locked():
            self._apply(*journal.new())
            before = self._growing
            after = self._changed(before, change)  # refuses what cannot be added
            journal.append(self._numbered(after, change))
            self._replace(after)
        return before, after

    def _need_journal(self) -> Journal:
        if self._journal is None:
            raise DataError("nothing can be added to this server")
        return self._journal

    def catch_up(self) -> None:
        """Take in what other processes have changed; where something is just being changed here, later."""
        if self._journal is None or not self._journal.grown() or not self._changing.acquire(blocking=False):
            return
        try:
            self._apply(*self._journal.new())
        finally:
            self._changing.release()

    def _apply(self, afresh: bool, changes: Sequence[Change]) -> None:
        """Make changes that were acknowledged before; the model's folder may have changed since."""
        model = self._base if afresh else self._growing
        for change in changes:
            for id in (*(example.id for example in change.examples), *change.removed):
                if id in example_ids(model):  # what the journal says of an example counts
                    model = without_example(model, str(id))
            model = self._changed(model, replace(change, removed=()))
        if afresh or changes:
            self._replace(model)

    def _changed(self, model: Part, change: Change) -> Part:
        if change.labels:
            model = model.with_labels(change.labels)
        if change.examples:
            model = with_examples(model, change.examples, self._known_labels(model))
        for id in change.removed:
            model = without_example(model, id)
        return model

    def _numbered(self, model: Part, change: Change) -> Change:
        """Return the change with labels of examples as numbers, which mean the same whenever it is read."""
        known = self._known_labels(model)
        return replace(change, examples=tuple(numbered(example, known) for example in change.examples))

    def _known_labels(self, model: Part) -> KnownLabels:
        """Return the names of the model's labels; they are listed again only if the labels are others."""
        if self._known is None or self._known[0] is not model.label_texts:
            self._known = (model.label_texts, KnownLabels(model))
        return self._known[1]

    def _replace(self, model: Part) -> None:
        self._growing = model
        self.served = replace(self.served, predictor=self._make(model))
