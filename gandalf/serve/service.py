"""Do the work of a server without HTTP: predict, explain, and add labels and examples."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model import Part
from gandalf.model.examples import (
    example_ids,
    examples_with_ids,
    with_examples,
    with_label_numbers,
    without_example,
)
from gandalf.model.known_labels import KnownLabels
from gandalf.model.with_memory import no_trace_of_failure
from gandalf.predict.explain import Background, Explainer, Explanation, LabelNeighbours
from gandalf.predict.index import Index, IndexSearch
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Answer, Query, answer
from gandalf.serve.journal import Change, Journal
from gandalf.serve.names import LabelNames

MakePredictor = Callable[[Part], Predictor]

log = logging.getLogger("uvicorn.error")


@dataclass(frozen=True, eq=False)
class Served:
    """A model at one moment; it is never changed, only replaced."""

    predictor: Predictor
    background: Background | None = None
    name: str = "baseline"  # name of a baseline in `/about`

    @property
    def model(self) -> Part:
        """Return the model of the predictor."""
        return self.predictor.model

    @property
    def index(self) -> Index | None:
        """Return the index of the search, or None if the search is exact."""
        search = self.predictor.search
        return search.index if isinstance(search, IndexSearch) else None

    @cached_property
    def names(self) -> LabelNames:
        """Return the names of the labels, for look-ups."""
        return LabelNames(self.model)

    @cached_property
    def explainer(self) -> Explainer:
        """Return the explainer of the predictor."""
        return Explainer(self.predictor, self.background)


def use_threads(number: int) -> None:
    """Set the number of threads for PyTorch and faiss; call it in the predicting thread, as faiss needs."""
    torch.set_num_threads(number)
    faiss: Any = sys.modules.get("faiss")
    if faiss is not None:
        faiss.omp_set_num_threads(number)


class Service:
    """A served model, with an optional baseline and an optional journal of changes."""

    def __init__(
        self,
        served: Served,
        baseline: Served | None = None,
        journal: Journal | None = None,
        make: MakePredictor = Predictor,
    ) -> None:
        self.served, self.baseline, self._journal, self._make_predictor = served, baseline, journal, make
        self._change_lock = threading.Lock()  # held during a change, until it is on disk
        self._apply_lock = threading.Lock()  # held while changes of other processes are applied
        self._is_current = False  # True while the journal is locked and all its changes are applied
        # The fit for new labels may take seconds. It runs now, so that the first request does not wait.
        self._base: Part = served.model if journal is None else served.model.with_label_maker()
        self._latest = self._base  # the base with all changes of the journal; it shares the base's rows
        self._lookup: tuple[Sequence[str], KnownLabels] | None = None
        # Number of labels before a damaged line, or None; the numbers of later labels may be wrong.
        self._reliable_labels: int | None = None
        if journal is not None:
            self._serve(self._base)
            self._apply(*journal.read_changes(strict=True), strict=True)

    @property
    def adds(self) -> bool:
        """Return True if the service has a journal, so that labels can be added."""
        return self._journal is not None

    def at(self, baseline: bool) -> Served:
        """Return the baseline or the model; raise a DataError if there is no baseline."""
        if not baseline:
            return self.served
        if self.baseline is None:
            raise DataError("there is no baseline", remedy="start the server with --baseline MODEL")
        return self.baseline

    def answer(self, queries: Sequence[tuple[Query, bool]]) -> list[Answer]:
        """Answer pairs of a query and True if the baseline shall answer it."""
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
        """Explain why the text gets the label."""
        self.catch_up()
        return self.at(baseline).explainer.explain(text, label)

    def near(self, label: int, baseline: bool = False) -> LabelNeighbours:
        """Return the neighbours of the label."""
        self.catch_up()
        return self.at(baseline).explainer.near(label)

    def add(self, labels: Sequence[NewLabel]) -> list[int]:
        """Add labels and return their numbers; on return they are predicted and on disk."""
        before, after = self._change(Change(labels=tuple(labels)))
        return list(range(before.num_labels, after.num_labels))

    def add_examples(self, examples: Sequence[Example], labels: Sequence[NewLabel] = ()) -> list[Example]:
        """Add examples, and labels that they need; on return they count and are on disk."""
        chosen = tuple(examples_with_ids(examples))
        self._change(Change(tuple(labels), chosen))
        return list(chosen)

    def remove_example(self, id: str) -> bool:
        """Remove an example from model and journal; return False if there is no such example."""
        with self._exclusive() as journal:
            if id not in example_ids(self._latest):
                return False
            after = without_example(self._latest, id)
            # The first example created the memory. Without it, the later changes must be made again.
            first = example_ids(self._base) == () and id == next(iter(example_ids(self._latest)))
            journal.remove(id)
            afresh, changes = journal.read_changes()
            if afresh and first:  # gives the same model as in every other process
                self._apply(afresh, changes)
            else:
                self._serve(after)
        return True

    @property
    def examples(self) -> int:
        """Return the number of added examples."""
        return len(example_ids(self.served.model))

    def _change(self, change: Change) -> tuple[Part, Part]:
        """Make a change, and return the model before and after it."""
        with self._exclusive() as journal:
            before = self._latest
            with no_trace_of_failure(before):
                after = self._with_change(before, change)  # raises an error if the change cannot be made
                journal.append(self._with_label_numbers(after, change))
            self._serve(after)
        return before, after

    @contextmanager
    def _exclusive(self) -> Iterator[Journal]:
        """Lock out all other changes, and apply all earlier changes.

        Predictions do not wait for the disk: earlier changes are applied before this one is written.
        """
        if self._journal is None:
            raise DataError("nothing can be added to this server")
        with self._change_lock, self._journal.locked():
            with self._apply_lock:
                self._apply(*self._journal.read_changes())
                self._is_current = True
            try:
                self._journal.need_writable()
                yield self._journal
            finally:
                self._is_current = False

    def trouble(self) -> str | None:
        """Return the reason why nothing can be added or removed now, or None."""
        if self._journal is None:
            return None
        if not self._change_lock.acquire(blocking=False):  # a change in progress checks the journal itself
            return self._journal.trouble
        try:
            with self._apply_lock:
                return self._journal.verify()
        finally:
            self._change_lock.release()

    def is_behind(self) -> bool:
        """Return True if another process has made a change that is not applied here yet."""
        return self._journal is not None and not self._is_current and self._journal.is_behind()

    def catch_up(self) -> None:
        """Apply the changes that other processes have acknowledged."""
        if self._journal is None or not self.is_behind():
            return
        with self._apply_lock:
            if not self._is_current:
                self._apply(*self._journal.read_changes())

    def _apply(self, afresh: bool, changes: Sequence[Change | None], strict: bool = False) -> None:
        """Apply changes of the journal; with `strict`, a change that cannot be made raises a DataError."""
        assert self._journal is not None
        model = self._base if afresh else self._latest
        self._reliable_labels = None if afresh else self._reliable_labels
        for change in changes:
            try:
                if change is not None:
                    model = self._with_journal_change(model, change)
                    continue
            except Exception as error:  # a line of the file may hold anything
                what = f"holds a change that cannot be made ({error})"
                if strict:
                    raise DataError(what, remedy="move it away", file=self._journal.path) from error
                log.error("%s: %s", self._journal.path, what)
                self._journal.mark_damaged()
            if self._reliable_labels is None:
                self._reliable_labels = model.num_labels
        if afresh or changes:
            self._serve(model)

    def _with_journal_change(self, model: Part, change: Change) -> Part:
        """Return the model with a change of the journal; the model folder may have changed since."""
        used = [label for example in change.examples for label in example.labels if isinstance(label, int)]
        if self._reliable_labels is not None and max(used, default=0) >= self._reliable_labels:
            raise DataError("an example has a label that was added behind a damaged line")
        for id in (*(example.id for example in change.examples), *change.removed):
            if id in example_ids(model):  # the journal takes precedence over the model folder
                model = without_example(model, str(id))
        return self._with_change(model, replace(change, removed=()))

    def _with_change(self, model: Part, change: Change) -> Part:
        """Return the model with the change."""
        if change.labels:
            model = model.with_labels(change.labels)
        if change.examples:
            model = with_examples(model, change.examples, self._label_lookup(model))
        for id in change.removed:
            model = without_example(model, id)
        return model

    def _with_label_numbers(self, model: Part, change: Change) -> Change:
        """Return the change with labels of examples as numbers, whose meaning does not change later."""
        if not change.examples:
            return change
        known = self._label_lookup(model)
        examples = tuple(with_label_numbers(example, known) for example in change.examples)
        return replace(change, examples=examples)

    def _label_lookup(self, model: Part) -> KnownLabels:
        """Return the look-up of the model's labels; it is made again only if the labels have changed."""
        if self._lookup is None or self._lookup[0] is not model.label_texts:
            self._lookup = (model.label_texts, KnownLabels(model))
        return self._lookup[1]

    def _serve(self, model: Part) -> None:
        """Serve this model from now on."""
        self._latest = model
        self.served = replace(self.served, predictor=self._make_predictor(model))
