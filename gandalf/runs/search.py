"""`--system auto`: train what data and machine allow, and mix what held-out points speak for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from gandalf.data.dataset import Splits
from gandalf.data.matching import text_groups
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions
from gandalf.model import Calibration, Mix, Part
from gandalf.model_folder import CHECKPOINTS
from gandalf.nets.encoders import encoder_kind
from gandalf.recipe import MemorySettings, Recipe
from gandalf.runs.candidates import (
    Candidate,
    SearchResult,
    Teller,
    Tried,
    store_trained,
    stored_trained,
    why_chosen,
    why_memory,
    why_of_few,
)
from gandalf.runs.checks import check_encoder, check_run
from gandalf.runs.cost import Clock, Size, fit_epochs, search_minutes, speed
from gandalf.runs.folder import RunPlace
from gandalf.runs.mix import Asked, Fitted, fit_mix
from gandalf.runs.plan import resolved_device
from gandalf.runs.prepare import cut
from gandalf.runs.remember import MODEL as WHOLE
from gandalf.runs.remember import MemoryOptions, Remembered, add_memory, forget_texts
from gandalf.runs.session import train
from gandalf.runs.trees import FIGURES, Yardstick, beaten, trees_of_all_points, trial_trees, yardsticks
from gandalf.runs.validation import HeldAnswers, Trained, pooled
from gandalf.settings import to_dict
from gandalf.systems import AUTO, frozen, linear
from gandalf.systems import recipe as recipe_of

FEW = 50  # held-out points: with fewer the weights are fitted by repeated trials
FEWEST = 15  # held-out points of all trials together: with fewer nothing can be told
STRETCH = 0.15  # of a network's updates: the held-out points come back
MATCHED = 0.1  # share of label texts that are training texts, from which the graph is worth a trial
# Of the time that is left, for each network but the last; more, or all of it, only where it needs so much.
FIRST_SHARE, MORE = 0.7, 0.85
BEGINNINGS = (64, 32)  # tokens that a transformer reads of a text where time is too short for more
LATE = 1.5  # times the seconds that are left: a network that would take longer is shortened on the way
VALIDATIONS = 3  # of a network: each costs as much as predicting all held-out points
AGAIN = 1.25  # times what a linear model took without the held-out points
FIRST = "linear"  # the candidate that is trained first and left on disk at once
READER = "frozen"  # whose vectors a memory looks up: it never learns, so held-out points are new to it
MEMORY = "memory"
# What is mixed where too few points can be held out, and how if nothing can be told. So few are left if
# hardly a label has two points, and there the transformer knows more: on 300 training points of library
# titles P@1 and PSP@5 were 3 and 4 higher with 70 % than with half.
UNCHOSEN = {FIRST: 0.3, READER: 0.7}


def search(
    splits: Splits, recipe: Recipe, place: RunPlace | None = None, teller: Teller | None = None
) -> SearchResult:
    """Find the best model for the training points by held-out ones; the test split is not looked at."""
    check_run(recipe, splits.train)
    return _Search(splits, recipe, place or RunPlace(), teller or Teller()).go()


class _Search:
    def __init__(self, splits: Splits, recipe: Recipe, place: RunPlace, teller: Teller) -> None:
        self.splits = Splits(train=splits.train, name=splits.name)  # without its test split
        self.recipe, self.place, self.teller = recipe, place, teller
        self.size = Size.of(splits.train)
        self.device = resolved_device(recipe.device)
        self.minutes = search_minutes(recipe.search.minutes, self.size, self._speed)
        self.clock = Clock(self.minutes)
        self.tried: list[Tried] = []
        self.trained: dict[str, Trained] = {}
        self.asked: dict[str, Recipe] = {}  # of what is trained
        self.notes: list[str] = []

    def go(self) -> SearchResult:
        say = self.teller.say
        held = self._held_points()
        names = [each.name for each in self.candidates]
        say(
            f"searching for at most {self.minutes:.2g} minutes ({counted(self.size.points, 'point')}, "
            f"{counted(self.size.labels, 'label')}, {self.device}): {', '.join(names)}"
        )
        if held < FEW:
            return self._too_few(held)
        for candidate in self.candidates:
            self._try(candidate)
        if not self.trained:
            raise DataError("no model could be trained", remedy="; ".join(self.notes) or "try a --system")
        rivals, notes = yardsticks([self._answers()[0].splits], self.recipe.seed)
        self.notes += [note for note in notes if not any("omikuji" in each for each in self.notes)]
        return self._chosen(rivals)

    def _held_points(self) -> int:
        """Return the number of held-out points; 0 where none can be cut."""
        try:
            held = cut(self.splits.train, self._shared(self.recipe)).held
        except DataError:
            return 0
        return 0 if held is None else len(held)

    def _answers(self) -> list[HeldAnswers]:
        return [each.held for each in self.trained.values() if each.held is not None]

    # ---- what is tried

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Return the models to try, the quickest first."""
        found = [Candidate(FIRST, linear())]
        if _matched(self.splits) >= MATCHED:
            graph = linear()
            graph = replace(graph, targets=replace(graph.targets, targets="calibrated"))
            found.append(Candidate("linear+graph", graph, rival=FIRST))
        reads = replace(frozen(), memory=MemorySettings(kind="fitted"))
        found += [Candidate(READER, reads), Candidate("words", self._words())]
        if self.device == "cuda":
            found.append(Candidate("renee", recipe_of("renee")))
        wanted = self.recipe.search.parts
        known = [*(each.name for each in found), MEMORY]
        unknown = [name for name in wanted if name not in known]
        if unknown:
            names = ", ".join(known)
            raise DataError(f"there is no part {unknown[0]!r} to try", remedy=f"choose from {names}")
        return [each for each in found if not wanted or each.name in wanted]

    def _words(self) -> Recipe:
        """Return a network of words that reads label texts, as far as the machine can bear it."""
        many = self.device == "cpu" and self.size.labels > 20_000
        made = recipe_of("astec" if many else "decaf")
        made = replace(made, text=replace(made.text, vectors="distilled"))
        if not many and self.device == "cpu":
            made = replace(made, head=replace(made.head, rows="frozen"))
        return made

    def _shared(self, recipe: Recipe) -> Recipe:
        """Return a candidate's recipe with what all candidates share: seed, device, held-out points."""
        own = self.recipe
        training, validation = recipe.training, own.validation
        if recipe.trees.kind == "none" and recipe.system != AUTO:
            training = replace(training, last_stretch=STRETCH)
            validation = replace(validation, every=training.epochs / VALIDATIONS)
        return replace(recipe, seed=own.seed, device=own.device, validation=validation, training=training)

    def _try(self, candidate: Candidate) -> None:
        row = Tried(candidate.name)
        self.tried.append(row)
        recipe = self._shared(candidate.recipe)
        if recipe.trees.kind == "none":
            try:
                recipe = self._with_vectors(recipe)
                check_encoder(recipe.encoder)
            except DataError as error:
                self._leave_out(row, str(error))
                return
            fits = self._fitted(recipe, last=candidate is self.candidates[-1])
            if fits is None:
                self._leave_out(row, f"{self._left:,.0f} s of the budget are too few for it")
                return
            recipe = fits
        elif self.trained and self.clock.left < 2 * self.tried[0].seconds:
            self._leave_out(row, "the budget is spent")
            return
        self._train(candidate, recipe, row)

    @property
    def _left(self) -> float:
        """Return the seconds for networks: a linear model needs its own again, to learn from all points."""
        trials = [row.seconds for row in self.tried if self._is_trial(row.name)]
        return max(self.clock.left - AGAIN * max(trials, default=0.0), 0.0)

    def _is_trial(self, name: str) -> bool:
        return name in self.asked and self.asked[name].trees.kind != "none"

    def _fitted(self, recipe: Recipe, *, last: bool) -> Recipe | None:
        """Return the recipe with the epochs that the budget has for it, or None if those are too few.

        A network leaves time for those after it, unless it needs all there is. A transformer reads only the
        beginning of long texts where there is no time for more.
        """
        left = self._left
        shares = (1.0,) if last else (FIRST_SHARE, MORE, 1.0)
        pretrained = encoder_kind(recipe.encoder.kind).pretrained
        shorter = BEGINNINGS if pretrained and not recipe.text.max_length else ()
        recipes = [recipe, *(replace(recipe, text=replace(recipe.text, max_length=each)) for each in shorter)]
        found = (
            fit_epochs(each, self.size, share * left, self._speed) for share in shares for each in recipes
        )
        chosen = next((each for each in found if each is not None), None)
        if chosen is not None and chosen.text.max_length != recipe.text.max_length:
            read = (
                f"reads the first {chosen.text.max_length} tokens of a text: the budget is too short for more"
            )
            self._note_once(f"{recipe.system} {read}")
        return chosen

    def _train(self, candidate: Candidate, recipe: Recipe, row: Tried) -> None:
        before = self.clock.spent
        try:
            trained = self._kept(candidate.name, recipe)
        except DataError as error:
            if not self.trained and candidate.name not in (FIRST,):
                raise
            self._leave_out(row, str(error))
            return
        self.trained[candidate.name], self.asked[candidate.name] = trained, recipe
        assert trained.held is not None
        row.scores, row.seconds = trained.held.evaluated(), self.clock.spent - before
        if trained.shortened:
            row.note = "shortened on the way: the machine became slower than was planned for"
            self._note_once(f"{row.name} was {row.note}")
        figures = ", ".join(f"{name} {row.scores[name]:.1f}" for name in FIGURES)
        self.teller.say(f"{row.name}: {figures} on held-out points, {row.seconds:,.0f} s")
        if len(self.trained) == 1:
            self.teller.first(trained.model)

    def _with_vectors(self, recipe: Recipe) -> Recipe:
        """Return the recipe without word vectors where nothing is installed to read them off."""
        if recipe.text.vectors is None:
            return recipe
        try:
            check_encoder(frozen().encoder)
        except DataError as error:
            self._note_once(str(error))
            return replace(recipe, text=replace(recipe.text, vectors=None))
        return recipe

    def _leave_out(self, row: Tried, why: str) -> None:
        row.note = f"left out: {why}"
        self.teller.say(f"{row.name}: {row.note}")
        self._note_once(f"{row.name} {row.note}")

    def _note_once(self, note: str) -> None:
        if not any(note in each for each in self.notes):  # a missing library is named once
            self.notes.append(note)

    @cached_property
    def _speed(self) -> float:
        """Return the speed of the machine."""
        return speed(self.device)

    # ---- what is kept on disk

    def _kept(self, name: str, recipe: Recipe) -> Trained:
        """Return the candidate as an earlier try of this search trained it, or train it."""
        place = replace(self.place, until=time.monotonic() + LATE * self._left)
        if self.place.folder is None:
            return self._trial(recipe, place)
        folder = self.place.folder / CHECKPOINTS / name
        before = stored_trained(folder, recipe, self.splits) if self.place.resume else None
        if before is not None:
            return before
        folder.mkdir(parents=True, exist_ok=True)
        own = replace(place, folder=folder, title=name)
        trained = self._trial(recipe, own)
        store_trained(folder, recipe, trained)
        return trained

    def _trial(self, recipe: Recipe, place: RunPlace) -> Trained:
        """Train a candidate; a linear model learns from all points once it is chosen."""
        if recipe.trees.kind != "none":
            return trial_trees(self.splits, recipe)
        return train(self.splits, recipe, place)

    # ---- what is chosen

    def _too_few(self, held: int) -> SearchResult:
        """Return a mix of models that learn in seconds, from all points; repeated trials fit its weights."""
        self.teller.say(
            f"only {counted(held, 'point')} can be held out at once: the weights rest on repeated trials"
        )
        for candidate in self.candidates:
            if candidate.name in UNCHOSEN or len(self.candidates) == 1:
                self._train_on_all(candidate)
            else:
                note = f"left out: it needs {FEW} held-out points at once, and there are {held}"
                self.tried.append(Tried(candidate.name, note=note))
        if not self.trained:
            raise DataError("no model could be trained", remedy="; ".join(self.notes) or "try a --system")
        trials = self._trials()
        answers = {name: pooled([each[name] for each in trials]) for name in self.trained if trials}
        points = len(next(iter(answers.values())).held) if answers else 0
        fitted = fit_mix(answers) if points >= FEWEST else None
        rivals: list[Yardstick] = []
        if fitted is not None:
            rivals, notes = yardsticks(
                [next(iter(each.values())).splits for each in trials], self.recipe.seed
            )
            self.notes += notes
        return self._of_few(held, fitted, answers, rivals)

    def _of_few(
        self, held: int, fitted: Fitted | None, answers: dict[str, HeldAnswers], rivals: list[Yardstick]
    ) -> SearchResult:
        """Return the mix of parts that have learnt from all points, by fitted weights or the usual ones."""
        if fitted is None:
            names, scores, calibration = tuple(self.trained), None, None
            shares = [UNCHOSEN.get(name, 1.0) for name in names]
            weights = tuple(share / sum(shares) for share in shares)
        else:
            names, scores, calibration = fitted.names, fitted.scores, fitted.calibration
            weights = fitted.weights
        for row in self.tried:
            row.weight = dict(zip(names, weights, strict=True)).get(row.name, 0.0)
            if fitted is not None and row.name in answers:
                row.scores = answers[row.name].evaluated()
                row.note = row.note or ("" if row.weight else "adds nothing to the others")
        why = why_of_few(names, weights, held, None if scores is None else scores.filtered.points)
        self.teller.say(why)
        trained = self._mixed(names, weights, calibration)
        behind = None if scores is None else beaten(scores, rivals)
        if behind:
            self._note_once(behind)
        return SearchResult(trained, self.tried, rivals, scores, why, self.minutes, tuple(self.notes))

    def _trials(self) -> list[dict[str, HeldAnswers]]:
        """Return the answers of the trained candidates in several trials with other held points each."""
        recipes = {name: _without_stretch(self._shared(recipe)) for name, recipe in self.asked.items()}
        return repeated_answers(self.splits, recipes, self.clock)

    def _train_on_all(self, candidate: Candidate) -> None:
        row, before = Tried(candidate.name), self.clock.spent
        self.tried.append(row)
        recipe = replace(
            candidate.recipe, memory=MemorySettings(), seed=self.recipe.seed, device=self.recipe.device
        )
        recipe = replace(recipe, validation=replace(self.recipe.validation, share=0.0))
        try:
            if recipe.trees.kind == "none":
                check_encoder(recipe.encoder)
                fits = self._fitted(recipe, last=False)
                if fits is None:
                    self._leave_out(row, f"{self.clock.left:,.0f} s of the budget are too few for it")
                    return
                recipe = replace(recipe, text=fits.text)
            self.trained[candidate.name] = train(self.splits, recipe)
            self.asked[candidate.name] = recipe
        except DataError as error:
            self._leave_out(row, str(error))
            return
        row.seconds = self.clock.spent - before
        if len(self.trained) == 1:
            self.teller.first(self.trained[candidate.name].model)

    def _chosen(self, rivals: list[Yardstick]) -> SearchResult:
        answers = {name: each.held for name, each in self._without_rivals().items() if each.held is not None}
        best = fit_mix(answers)
        for row in self.tried:
            if row.name in best.names:
                row.weight = best.weights[best.names.index(row.name)]
            elif not row.note and row.name in answers:
                row.note = "adds nothing to the others"
            elif not row.note:
                row.note = "its rival is ahead"
        why = why_chosen(best, self.tried)
        trained, scores = self._assembled(best), best.scores
        remembered = self._remembered(trained.model, best)
        if remembered is not None:
            chosen = remembered.trials[0]
            trained = replace(trained, model=remembered.model, memory=remembered.as_dict())
            scores, why = chosen.fitted.scores, f"{why}; {why_memory(chosen, best.scores)}"
        for each in self.trained.values():
            forget_texts(each.model)
        behind = beaten(scores, rivals)
        if behind:
            self._note_once(behind)
        return SearchResult(trained, self.tried, rivals, scores, why, self.minutes, tuple(self.notes))

    def _remembered(self, model: Part, best: Fitted) -> Remembered | None:
        """Return the chosen model with a memory if there is a part to read for it and it helps."""
        wanted = self.recipe.search.parts
        if READER not in best.names or (wanted and MEMORY not in wanted):
            return None
        row, before = Tried(MEMORY), self.clock.spent
        self.tried.append(row)
        asked = Asked(best.answers.splits, {WHOLE: best.answers}, seen=False)
        graph = GraphOptions(targets="shrunk", seed=self.recipe.seed)
        found = add_memory(model, self.splits, asked, MemoryOptions(graph=graph, reader=READER))
        chosen = found.trials[0]
        row.weight, row.seconds = chosen.weight, self.clock.spent - before
        if not chosen.weight:
            row.note = "adds nothing to the others"
            return None
        for each in self.tried[:-1]:
            each.weight *= 1 - chosen.weight
        row.note = f"read by {READER}"
        self.teller.say(f"memory: {why_memory(chosen, best.scores)}, {row.seconds:,.0f} s")
        return found

    def _without_rivals(self) -> dict[str, Trained]:
        """Return the trained candidates, of rivals only the better."""
        rivals = {each.name: each.rival for each in self.candidates if each.rival in self.trained}
        dropped = set()
        for name, other in rivals.items():
            if name in self.trained and other is not None:
                dropped.add(min((name, other), key=self._objective))
        return {name: each for name, each in self.trained.items() if name not in dropped}

    def _objective(self, name: str) -> float:
        held = self.trained[name].held
        assert held is not None
        scores = held.evaluated()
        return scores["P@1"] + scores["PSP@5"]

    def _assembled(self, best: Fitted) -> Trained:
        """Return the chosen part, or the mix of several, and let each learn from all points."""
        for name in best.names:
            if self._is_trial(name):
                before = self.clock.spent
                trained = trees_of_all_points(self.trained[name], self.splits, self.asked[name])
                self.trained[name] = trained
                next(row for row in self.tried if row.name == name).seconds += self.clock.spent - before
        return self._mixed(best.names, best.weights, best.calibration)

    def _mixed(
        self, names: tuple[str, ...], weights: tuple[float, ...], calibration: Calibration | None
    ) -> Trained:
        parts = [self.trained[name] for name in names]
        first = parts[0]
        seconds, steps = self.clock.spent, sum(each.steps for each in parts)
        if len(parts) == 1:
            return replace(first, seconds=seconds)
        label_points = max(each.label_points for each in parts)
        config = to_dict(self.recipe) | {
            "recipe": to_dict(self.recipe),
            "data": first.model.config.get("data"),
            "parts": {name: each.model.config.get("recipe") for name, each in zip(names, parts, strict=True)},
        }
        model = Mix(
            names,
            tuple(each.model for each in parts),
            weights,
            first.model.label_texts,
            first.model.label_ids,
            config,
            calibration,
        )
        return Trained(model, [], seconds, steps, {}, len(self.splits.train), label_points, held=first.held)


def _without_stretch(recipe: Recipe) -> Recipe:
    """Return the recipe of a trial: its model is not kept, so its held-out points need not come back."""
    return replace(recipe, training=replace(recipe.training, last_stretch=0.0))


def _matched(splits: Splits) -> float:
    """Return the share of label texts that are also training texts: there the graph can be checked."""
    texts, label_texts = splits.train.need_texts("training")
    of_points, of_labels = text_groups(texts, label_texts)
    return float(np.isin(of_labels, of_points).mean()) if len(of_labels) else 0.0


REPEATS = 5


def repeated_answers(
    splits: Splits, recipes: Mapping[str, Recipe], clock: Clock
) -> list[dict[str, HeldAnswers]]:
    """Return the answers of each recipe in each trial; an empty list if no point can be held out.

    A trial is only begun if the clock leaves the time that the trial before it took.
    """
    trials: list[dict[str, HeldAnswers]] = []
    took = 0.0
    for number in range(REPEATS):
        if clock.left < took:
            break
        before = time.perf_counter()
        try:
            answers = {
                name: train(splits, replace(recipe, seed=recipe.seed + number)).held
                for name, recipe in recipes.items()
            }
        except DataError:  # of other points none could be held out, or a label had none left
            continue
        took = time.perf_counter() - before
        found = {name: held for name, held in answers.items() if held is not None}
        if len(found) == len(recipes):
            trials.append(found)
    return trials
