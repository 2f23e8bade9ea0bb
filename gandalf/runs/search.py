"""`--system auto`: train what data and machine allow, and mix what held-out points speak for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gandalf.data.dataset import Splits
from gandalf.data.files import written
from gandalf.data.matching import text_groups
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions
from gandalf.metrics.evaluate import Scores
from gandalf.model import Calibration, Mix, Part, load_model, save_model
from gandalf.predict.calibration import fit_calibration
from gandalf.recipe import Memory, Recipe
from gandalf.runs.budget import Clock, Size, fitted, patience, speed
from gandalf.runs.hardware import resolved_device
from gandalf.runs.limits import check_encoder, check_points, check_recipe
from gandalf.runs.material import cut
from gandalf.runs.mix_models import Asked
from gandalf.runs.mixing import Fitted, fit_mix
from gandalf.runs.place import CHECKPOINTS, Place
from gandalf.runs.remember import MODEL as WHOLE
from gandalf.runs.remember import MemoryOptions, Remembered, Trial, add_memory, forget_texts
from gandalf.runs.repeats import repeated_answers
from gandalf.runs.run import train
from gandalf.runs.trained import HeldAnswers, Trained
from gandalf.runs.validation import PLACES
from gandalf.runs.yardsticks import FIGURES, Yardstick, beaten, yardsticks
from gandalf.settings import to_dict
from gandalf.systems import AUTO, frozen, linear
from gandalf.systems import recipe as recipe_of

MARK = "search.json"  # beside the checkpoints while a search goes on
HELD, FACTS, MODEL = "held.npz", "trained.json", "model"  # what is kept of a candidate that is trained
FEW = 50  # held-out points: with fewer the weights are fitted by repeated trials
FEWEST = 15  # held-out points of all trials together: with fewer nothing can be told
STRETCH = 0.15  # of a network's updates: the held-out points come back
MATCHED = 0.1  # share of label texts that are training texts, from which the graph is worth a trial
FIRST_SHARE = 0.7  # of the time that is left, for each network but the last, where that is enough for it
VALIDATIONS = 3  # of a network: each costs as much as predicting all held-out points
FIRST = "linear"  # the candidate that is trained first and left on disk at once
READER = "frozen"  # whose vectors a memory looks up: it never learns, so held-out points are new to it
MEMORY = "memory"
# What is mixed where too few points can be held out, and how if nothing can be told. So few are left if
# hardly a label has two points, and there the transformer knows more: on 300 training points of library
# titles P@1 and PSP@5 were 3 and 4 higher with 70 % than with half.
UNCHOSEN = {FIRST: 0.3, READER: 0.7}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Candidate:
    """A model to try."""

    name: str
    recipe: Recipe
    rival: str | None = None  # of two rivals only the better may be part of a mix


@dataclass
class Tried:
    """What came of a candidate: figures on the held-out points, or why there are none."""

    name: str
    scores: Scores | None = None
    seconds: float = 0.0
    weight: float = 0.0
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        figures = {} if self.scores is None else {name: self.scores[name] for name in FIGURES}
        return {
            "name": self.name,
            **figures,
            "seconds": round(self.seconds, 3),
            "weight": self.weight,
            "note": self.note,
        }


@dataclass
class Found:
    """What a search gives: the model, how it was chosen, and what it is measured against."""

    trained: Trained
    tried: list[Tried]
    yardsticks: list[Yardstick]
    scores: Scores | None  # of the chosen model on the held-out points
    why: str
    minutes: float
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> dict[str, Any]:
        """Return everything that was looked at, for `metrics.json`."""
        chosen = {} if self.scores is None else {name: self.scores[name] for name in FIGURES}
        return {
            "chosen": chosen,
            "why": self.why,
            "minutes": self.minutes,
            "held_out_points": 0 if self.scores is None else self.scores.filtered.points,
            "tried": [each.as_dict() for each in self.tried],
            "baselines": [each.as_dict() for each in self.yardsticks],
            "notes": list(self.notes),
        }


@dataclass
class Teller:
    """Who is told of a search while it goes on."""

    say: Say = lambda line: None
    first: Callable[[Part], None] = lambda part: None  # is given the first usable model


def search(splits: Splits, recipe: Recipe, place: Place | None = None, teller: Teller | None = None) -> Found:
    """Find the best model for the training points by held-out ones; the test split is not looked at."""
    check_recipe(recipe)
    check_points(splits.train)
    return _Search(splits, recipe, place or Place(), teller or Teller()).go()


class _Search:
    def __init__(self, splits: Splits, recipe: Recipe, place: Place, teller: Teller) -> None:
        self.splits = Splits(train=splits.train, name=splits.name)  # without its test split
        self.recipe, self.place, self.teller = recipe, place, teller
        self.size = Size.of(splits.train)
        self.device = resolved_device(recipe.device)
        self.minutes = recipe.search.minutes or self.size.minutes * patience(self._speed)
        self.clock = Clock(self.minutes)
        self.tried: list[Tried] = []
        self.trained: dict[str, Trained] = {}
        self.notes: list[str] = []

    def go(self) -> Found:
        say = self.teller.say
        held = self._held_points()
        names = [each.name for each in self.candidates]
        say(
            f"searching for at most {self.minutes:.2g} minutes ({self.size.points:,} points, "
            f"{self.size.labels:,} labels, {self.device}): {', '.join(names)}"
        )
        if held < FEW:
            return self._too_few(held)
        for candidate in self.candidates:
            self._try(candidate)
        if not self.trained:
            raise DataError("no model could be trained", remedy="; ".join(self.notes) or "try a --system")
        rivals, notes = yardsticks(self._answers()[0].splits, self.recipe.seed)
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
        reads = replace(frozen(), memory=Memory(kind="fitted"))
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
                self._leave_out(row, f"{self.clock.left:,.0f} s of the budget are too few for it")
                return
            recipe = fits
        elif self.trained and self.clock.left < 2 * self.tried[0].seconds:
            self._leave_out(row, "the budget is spent")
            return
        self._train(candidate, recipe, row)

    def _fitted(self, recipe: Recipe, *, last: bool) -> Recipe | None:
        """Return the recipe with the epochs that the budget has for it, or None if those are too few.

        A network leaves time for those after it, unless it needs all there is.
        """
        left = self.clock.left
        shares = (1.0,) if last else (FIRST_SHARE, 1.0)
        found = (fitted(recipe, self.size, share * left, self._speed) for share in shares)
        return next((each for each in found if each is not None), None)

    def _train(self, candidate: Candidate, recipe: Recipe, row: Tried) -> None:
        before = self.clock.spent
        try:
            trained = self._kept(candidate.name, recipe)
        except DataError as error:
            if not self.trained and candidate.name not in (FIRST,):
                raise
            self._leave_out(row, str(error))
            return
        self.trained[candidate.name] = trained
        assert trained.held is not None
        row.scores, row.seconds = trained.held.evaluated(), self.clock.spent - before
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
        if note not in self.notes:
            self.notes.append(note)

    @cached_property
    def _speed(self) -> float:
        """Return the speed of the machine."""
        return speed(self.device)

    # ---- what is kept on disk

    def _kept(self, name: str, recipe: Recipe) -> Trained:
        """Return the candidate as an earlier try of this search trained it, or train it."""
        if self.place.folder is None:
            return train(self.splits, recipe)
        folder = self.place.folder / CHECKPOINTS / name
        before = _stored(folder, recipe, self.splits) if self.place.resume else None
        if before is not None:
            return before
        folder.mkdir(parents=True, exist_ok=True)
        own = replace(self.place, folder=folder, resume=self.place.resume, title=name)
        trained = train(self.splits, recipe, own)
        _store(folder, recipe, trained)
        return trained

    # ---- what is chosen

    def _too_few(self, held: int) -> Found:
        """Return a mix of models that learn in seconds, from all points; repeated trials fit its weights."""
        usual = [each for each in self.candidates if each.name in UNCHOSEN] or self.candidates[:1]
        for candidate in usual:
            self._train_on_all(candidate)
        if not self.trained:
            raise DataError("no model could be trained", remedy="; ".join(self.notes) or "try a --system")
        names = tuple(self.trained)
        fitted = self._fitted_by_repeats([each for each in usual if each.name in names])
        if fitted is None:
            shares = [UNCHOSEN.get(name, 1.0) for name in names]
            weights, calibration = tuple(share / sum(shares) for share in shares), None
            why = f"on all points: only {held} could be held out, too few to choose by"
        else:
            names, weights, calibration = fitted.names, fitted.weights, fitted.calibration
            points = len(fitted.answers.held)
            why = f"on all points: only {held} could be held out, so repeated trials with {points} chose"
        for row in self.tried:
            row.weight = dict(zip(names, weights, strict=True)).get(row.name, 0.0)
        mix = ", ".join(f"{name} {weight:.0%}" for name, weight in zip(names, weights, strict=True))
        self.teller.say(f"{mix}, {why}")
        scores = None if fitted is None else fitted.scores
        trained = self._mixed(names, weights, calibration)
        return Found(trained, self.tried, [], scores, f"{mix}, {why}", self.minutes, tuple(self.notes))

    def _fitted_by_repeats(self, candidates: list[Candidate]) -> Fitted | None:
        """Return weights by several trials with other held points each, or None if even those are too few."""
        if len(candidates) < 2:
            return None
        recipes = {each.name: replace(self._shared(each.recipe), memory=Memory()) for each in candidates}
        recipes = {name: _without_stretch(recipe) for name, recipe in recipes.items()}
        answers = repeated_answers(self.splits, recipes, self.clock)
        if not answers or len(answers[candidates[0].name].held) < FEWEST:
            return None
        return fit_mix(answers)

    def _train_on_all(self, candidate: Candidate) -> None:
        row, before = Tried(candidate.name), self.clock.spent
        self.tried.append(row)
        recipe = replace(candidate.recipe, memory=Memory(), seed=self.recipe.seed, device=self.recipe.device)
        recipe = replace(recipe, validation=replace(self.recipe.validation, share=0.0))
        try:
            self.trained[candidate.name] = train(self.splits, recipe)
        except DataError as error:
            self._leave_out(row, str(error))
            return
        row.seconds = self.clock.spent - before
        if len(self.trained) == 1:
            self.teller.first(self.trained[candidate.name].model)

    def _chosen(self, rivals: list[Yardstick]) -> Found:
        answers = {name: each.held for name, each in self._without_rivals().items() if each.held is not None}
        best = fit_mix(answers)
        for row in self.tried:
            if row.name in best.names:
                row.weight = best.weights[best.names.index(row.name)]
            elif not row.note and row.name in answers:
                row.note = "adds nothing to the others"
            elif not row.note:
                row.note = "its rival is ahead"
        why = _why(best, self.tried)
        trained, scores = self._assembled(best), best.scores
        remembered = self._remembered(trained.model, best)
        if remembered is not None:
            chosen = remembered.trials[0]
            trained = replace(trained, model=remembered.model, memory=remembered.as_dict())
            scores, why = chosen.fitted.scores, f"{why}; {_why_memory(chosen, best.scores)}"
        for each in self.trained.values():
            forget_texts(each.model)
        behind = beaten(scores, rivals)
        if behind:
            self._note_once(behind)
        return Found(trained, self.tried, rivals, scores, why, self.minutes, tuple(self.notes))

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
        self.teller.say(f"memory: {_why_memory(chosen, best.scores)}, {row.seconds:,.0f} s")
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
        """Return the chosen part, or the mix of several, each having learnt from all points by now."""
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


def _why(best: Fitted, tried: list[Tried]) -> str:
    """Return the reason in a sentence."""
    single = {row.name: row.scores for row in tried if row.scores is not None}
    alone = max(single, key=lambda name: single[name]["P@1"] + single[name]["PSP@5"])
    figures = {name: best.scores[name] - single[alone][name] for name in FIGURES[:2]}
    if len(best.names) == 1:
        return f"{best.names[0]} alone: no mix is better on held-out points by more than a fifth of a point"
    mix = ", ".join(f"{name} {weight:.0%}" for name, weight in zip(best.names, best.weights, strict=True))
    gains = ", ".join(f"{name} {gain:+.1f}" for name, gain in figures.items())
    return f"a mix of {mix}: {gains} against {alone} alone, on held-out points"


def _why_memory(chosen: Trial, before: Scores) -> str:
    """Return what a memory adds in a phrase."""
    after = chosen.fitted.scores
    gains = ", ".join(f"{name} {after[name] - before[name]:+.1f}" for name in FIGURES[:2])
    return f"a memory of {chosen.weight:.0%} adds {gains}"


def _matched(splits: Splits) -> float:
    """Return the share of label texts that are also training texts: there the graph can be checked."""
    texts, label_texts = splits.train.need_texts("training")
    of_points, of_labels = text_groups(texts, label_texts)
    return float(np.isin(of_labels, of_points).mean()) if len(of_labels) else 0.0


def _store(folder: Path, recipe: Recipe, trained: Trained) -> None:
    """Keep a trained candidate, so that a search that is killed need not train it again."""
    assert trained.held is not None
    save_model(trained.model, folder / MODEL, overwrite=True)
    with written(folder / HELD, "wb") as file:
        np.savez(file, ids=trained.held.ids, scores=trained.held.scores)
    facts = {
        "recipe": to_dict(recipe),
        "seconds": trained.seconds,
        "steps": trained.steps,
        "details": trained.details,
        "points": trained.points,
        "label_points": trained.label_points,
    }
    with written(folder / FACTS) as file:
        json.dump(facts, file)


def _stored(folder: Path, recipe: Recipe, splits: Splits) -> Trained | None:
    """Return what `_store` kept of the same recipe; epochs may differ, since the budget chose them."""
    if not (folder / FACTS).is_file():
        return None
    facts = json.loads((folder / FACTS).read_text("utf-8"))
    asked = json.loads(json.dumps(to_dict(recipe)))
    asked["training"]["epochs"] = facts["recipe"]["training"]["epochs"]
    if facts["recipe"] != asked:
        return None
    parts = cut(splits.train, recipe)
    assert parts.held is not None
    with np.load(folder / HELD) as arrays:
        ids, scores = arrays["ids"], arrays["scores"]
    held = parts.held
    calibration = fit_calibration(ids[:, :PLACES], scores[:, :PLACES], held.targets, held.exclude)
    answers = HeldAnswers(Splits(train=parts.rest, test=held, name=splits.name), ids, scores, calibration)
    return Trained(
        load_model(folder / MODEL),
        [],
        facts["seconds"],
        facts["steps"],
        facts["details"],
        facts["points"],
        facts["label_points"],
        held=answers,
    )
