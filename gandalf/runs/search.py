"""Search for the best model (`--system auto`): try candidates, and mix what held-out points favour."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from gandalf.data.dataset import Splits
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions
from gandalf.metrics.evaluate import Scores
from gandalf.model import Calibration, Mix
from gandalf.model_folder import CHECKPOINTS
from gandalf.recipe import Recipe
from gandalf.runs.candidates import (
    FIRST,
    MEMORY,
    READER,
    Candidate,
    SearchResult,
    TriedCandidate,
    find_candidates,
    fit_to_time,
    is_network,
    load_trained,
    store_trained,
    why_chosen,
    why_memory,
)
from gandalf.runs.checks import check_encoder, check_run
from gandalf.runs.cost import Clock, Size, search_minutes, speed
from gandalf.runs.few_points import FEW, search_few_points
from gandalf.runs.folder import RunPlace
from gandalf.runs.mix import FittedMix, PartAnswers, fit_mix
from gandalf.runs.plan import resolved_device
from gandalf.runs.prepare import split_holdout
from gandalf.runs.remember import MODEL as WHOLE
from gandalf.runs.remember import MemoryOptions, add_memory, forget_texts
from gandalf.runs.session import run_training
from gandalf.runs.trees import Baseline, note_if_behind, score_baselines, trees_of_all_points, trial_trees
from gandalf.runs.validation import Trained, key_figures, objective
from gandalf.settings import to_dict
from gandalf.systems import AUTO, frozen

LAST_STRETCH = 0.15  # of a network's updates: then it learns from the held-out points, too
LATE = 1.5  # times the seconds that are left: a network that would take longer is shortened
VALIDATIONS = 3  # of a network: each costs as much as predicting all held-out points
AGAIN = 1.25  # times what a linear model took on the rest, to train it on all points


def search(splits: Splits, recipe: Recipe, place: RunPlace | None = None) -> SearchResult:
    """Find the best model, or mix of models, by held-out training points; never look at the test split."""
    check_run(recipe, splits.train)
    return ModelSearch(splits, recipe, place or RunPlace()).run()


class ModelSearch:
    """A search in progress: the candidates tried so far, the trained ones, and the time that is left."""

    def __init__(self, splits: Splits, recipe: Recipe, place: RunPlace) -> None:
        self.splits = Splits(train=splits.train, name=splits.name)  # without the test split
        self.recipe, self.place, self.tell = recipe, place, place.tell_search
        self.size, self.device = Size.of(splits.train), resolved_device(recipe.device)
        self.speed = speed(self.device)
        self.minutes = search_minutes(recipe.search.minutes, self.size, self.speed)
        self.clock = Clock(self.minutes)
        self.candidates = find_candidates(self.splits, self.device, recipe.search.parts)
        self.tried: list[TriedCandidate] = []
        self.trained: dict[str, Trained] = {}  # by the name of the candidate
        self.recipes: dict[str, Recipe] = {}  # of the trained candidates
        self.notes: list[str] = []

    def run(self) -> SearchResult:
        """Try all candidates, and choose the model."""
        held = self._count_held_out()
        self.tell(
            f"searching for at most {self.minutes:.2g} minutes ({counted(self.size.points, 'point')}, "
            f"{counted(self.size.labels, 'label')}, {self.device}): "
            f"{', '.join(each.name for each in self.candidates)}"
        )
        if held < FEW:
            return search_few_points(self, held)
        for candidate in self.candidates:
            self._try(candidate)
        self.need_a_model()
        return self._choose()

    def _count_held_out(self) -> int:
        """Return the number of points that can be held out."""
        try:
            _, held = split_holdout(self.splits.train, self.shared(self.recipe))
        except DataError:
            return 0
        return 0 if held is None else len(held)

    # ---- try a candidate

    def _try(self, candidate: Candidate) -> None:
        """Fit the candidate into the time that is left and train it, or leave it out."""
        row, recipe = self.add_row(candidate.name), self.shared(candidate.recipe)
        if candidate.is_network:
            try:
                recipe = self.fit_network(recipe, last=candidate is self.candidates[-1])
            except DataError as error:
                self.leave_out(row, str(error))
                return
        elif self.trained and self.clock.left < 2 * self.tried[0].seconds:
            self.leave_out(row, "the budget is spent")
            return
        self._train(candidate, recipe, row)

    def shared(self, recipe: Recipe) -> Recipe:
        """Return a candidate's recipe with what all candidates share: seed, device, held-out points."""
        asked = self.recipe
        training, validation = recipe.training, asked.validation
        if is_network(recipe) and recipe.system != AUTO:
            training = replace(training, last_stretch=LAST_STRETCH)
            validation = replace(validation, every=training.epochs / VALIDATIONS)
        return replace(recipe, seed=asked.seed, device=asked.device, validation=validation, training=training)

    def fit_network(self, recipe: Recipe, *, last: bool) -> Recipe:
        """Return a network's recipe fitted to installed libraries and time, or refuse it."""
        recipe = self._without_missing_vectors(recipe)
        check_encoder(recipe.encoder)
        fitted = fit_to_time(recipe, self.size, self.seconds_left, self.speed, last=last)
        if fitted is None:
            raise DataError(f"{self.seconds_left:,.0f} s of the budget are too few for it")
        if fitted.text.max_length != recipe.text.max_length:
            beginning = f"the first {fitted.text.max_length} tokens of a text"
            self.note_once(f"{recipe.system} reads {beginning}: the budget is too short for more")
        return fitted

    def _without_missing_vectors(self, recipe: Recipe) -> Recipe:
        """Return the recipe without word vectors if the transformer that makes them is not installed."""
        if recipe.text.vectors is None:
            return recipe
        try:
            check_encoder(frozen().encoder)
        except DataError as error:
            self.note_once(str(error))
            return replace(recipe, text=replace(recipe.text, vectors=None))
        return recipe

    @property
    def seconds_left(self) -> float:
        """Seconds for networks; a linear model needs some again, to learn from all points."""
        linear = (row.seconds for row in self.tried if self._is_linear(row.name))
        return max(self.clock.left - AGAIN * max(linear, default=0.0), 0.0)

    def _is_linear(self, name: str) -> bool:
        return name in self.recipes and not is_network(self.recipes[name])

    def _train(self, candidate: Candidate, recipe: Recipe, row: TriedCandidate) -> None:
        before = self.clock.spent
        try:
            trained = self._load_or_train(candidate.name, recipe)
        except DataError as error:
            if not self.trained and candidate.name != FIRST:
                raise
            self.leave_out(row, str(error))
            return
        assert trained.held is not None
        row.scores, row.seconds = trained.held.evaluated(), self.clock.spent - before
        if trained.shortened:
            row.note = "shortened on the way: the machine became slower than was planned for"
            self.note_once(f"{row.name} was {row.note}")
        figures = ", ".join(f"{name} {value:.1f}" for name, value in key_figures(row.scores).items())
        self.tell(f"{row.name}: {figures} on held-out points, {row.seconds:,.0f} s")
        self.keep(candidate.name, recipe, trained)

    def _load_or_train(self, name: str, recipe: Recipe) -> Trained:
        """Return the candidate that an earlier try of this search trained, or train it."""
        place = replace(self.place, until=time.monotonic() + LATE * self.seconds_left)
        if place.folder is None:
            return self._train_candidate(recipe, place)
        folder = place.folder / CHECKPOINTS / name
        stored = load_trained(folder, recipe, self.splits) if place.resume else None
        if stored is not None:
            return stored
        folder.mkdir(parents=True, exist_ok=True)
        trained = self._train_candidate(recipe, replace(place, folder=folder, title=name))
        store_trained(folder, recipe, trained)
        return trained

    def _train_candidate(self, recipe: Recipe, place: RunPlace) -> Trained:
        """Train a candidate; a linear model learns from all points only if it is chosen."""
        if is_network(recipe):
            return run_training(self.splits, recipe, place)
        return trial_trees(self.splits, recipe)

    # ---- keep records

    def add_row(self, name: str) -> TriedCandidate:
        """Return a new row of the table of candidates."""
        self.tried.append(TriedCandidate(name))
        return self.tried[-1]

    def keep(self, name: str, recipe: Recipe, trained: Trained) -> None:
        """Keep a trained candidate; the first one is a usable model."""
        self.trained[name], self.recipes[name] = trained, recipe
        if len(self.trained) == 1:
            self.place.take_first_model(trained.model)

    def leave_out(self, row: TriedCandidate, why: str) -> None:
        """Note that a candidate is left out, and why."""
        row.note = f"left out: {why}"
        self.tell(f"{row.name}: {row.note}")
        self.note_once(f"{row.name} {row.note}")

    def note_once(self, note: str) -> None:
        """Add a note unless another note says the same, such as which library is missing."""
        if not any(note in each for each in self.notes):
            self.notes.append(note)

    def need_a_model(self) -> None:
        """Refuse to go on without a trained candidate."""
        if not self.trained:
            raise DataError("no model could be trained", remedy="; ".join(self.notes) or "try a --system")

    # ---- choose

    def _choose(self) -> SearchResult:
        """Fit a mix, train its linear models on all points, and add a memory if it helps."""
        rivals_apart = self._without_worse_rivals()
        answers = {name: each.held for name, each in rivals_apart.items() if each.held is not None}
        baselines, notes = score_baselines([next(iter(answers.values())).splits], self.recipe.seed)
        self.notes += [note for note in notes if not any("omikuji" in each for each in self.notes)]
        best = fit_mix(answers)
        for row in self.tried:
            row.weight = best.shares.get(row.name, 0.0)
            if not row.weight and not row.note:
                row.note = "adds nothing to the others" if row.name in answers else "its rival is ahead"
        why = why_chosen(best, self.tried)
        self._train_linear_models_on_all_points(best.names)
        trained, scores = self.mix(best.shares, best.calibration), best.scores
        trained, scores, why = self._with_memory(trained, best, why)
        for each in self.trained.values():
            forget_texts(each.model)
        return self.result(trained, baselines, scores, why)

    def _without_worse_rivals(self) -> dict[str, Trained]:
        """Return the trained candidates, of two rivals only the better."""
        pairs = [(each.name, each.rival) for each in self.candidates if each.rival in self.trained]
        worse = {
            min((name, rival), key=self._objective)
            for name, rival in pairs
            if rival is not None and name in self.trained
        }
        return {name: each for name, each in self.trained.items() if name not in worse}

    def _objective(self, name: str) -> float:
        held = self.trained[name].held
        assert held is not None
        return objective(held.evaluated())

    def _train_linear_models_on_all_points(self, names: Sequence[str]) -> None:
        for row in self.tried:
            if row.name in names and self._is_linear(row.name):
                before = self.clock.spent
                trial = self.trained[row.name]
                self.trained[row.name] = trees_of_all_points(trial, self.splits, self.recipes[row.name])
                row.seconds += self.clock.spent - before

    def mix(self, shares: dict[str, float], calibration: Calibration | None) -> Trained:
        """Return the mix of trained candidates with these weights, or the only candidate."""
        parts = {name: self.trained[name] for name in shares}
        first = next(iter(parts.values()))
        if len(parts) == 1:
            return replace(first, seconds=self.clock.spent)
        config = to_dict(self.recipe) | {
            "recipe": to_dict(self.recipe),
            "data": first.model.config.get("data"),
            "parts": {name: each.model.config.get("recipe") for name, each in parts.items()},
        }
        model = Mix(
            tuple(parts),
            tuple(each.model for each in parts.values()),
            tuple(shares.values()),
            first.model.label_texts,
            first.model.label_ids,
            config,
            calibration,
        )
        return Trained(
            model,
            history=[],
            seconds=self.clock.spent,
            steps=sum(each.steps for each in parts.values()),
            points=len(self.splits.train),
            label_points=max(each.label_points for each in parts.values()),
            held=first.held,
        )

    def _with_memory(self, trained: Trained, best: FittedMix, why: str) -> tuple[Trained, Scores, str]:
        """Add a memory if a part can read for it and it improves held-out points."""
        wanted = self.recipe.search.parts
        if READER not in best.names or (wanted and MEMORY not in wanted):
            return trained, best.scores, why
        others, before = list(self.tried), self.clock.spent
        row = self.add_row(MEMORY)
        answers = PartAnswers(best.answers.splits, {WHOLE: best.answers}, seen=False)
        graph = GraphOptions(targets="shrunk", seed=self.recipe.seed)
        found = add_memory(trained.model, self.splits, answers, MemoryOptions(graph=graph, reader=READER))
        chosen = found.trials[0]
        row.weight, row.seconds = chosen.weight, self.clock.spent - before
        if not chosen.weight:
            row.note = "adds nothing to the others"
            return trained, best.scores, why
        for other in others:
            other.weight *= 1 - chosen.weight
        row.note, gain = f"read by {READER}", why_memory(chosen, best.scores)
        self.tell(f"memory: {gain}, {row.seconds:,.0f} s")
        trained = replace(trained, model=found.model, memory=found.as_dict())
        return trained, chosen.fitted.scores, f"{why}; {gain}"

    def result(
        self, trained: Trained, baselines: Sequence[Baseline], scores: Scores | None, why: str
    ) -> SearchResult:
        """Return the chosen model with everything that was tried."""
        behind = None if scores is None else note_if_behind(scores, baselines)
        if behind:
            self.note_once(behind)
        return SearchResult(trained, self.tried, baselines, scores, why, self.minutes, tuple(self.notes))
