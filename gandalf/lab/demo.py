"""Train the same model with and without label texts at equal steps, and keep it all in one folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy.sparse import csr_array

from gandalf.data.claim import is_leftover
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import new_folder, written
from gandalf.errors import DataError
from gandalf.graph.postulate import diagnose
from gandalf.lab.comparison import OURS, Answer, Questions, SideBySide, TrainedTreatment, Treatment
from gandalf.lab.sets import query_rows
from gandalf.lab.variants import VARIANTS
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import Scores
from gandalf.metrics.predictions import need_test_points
from gandalf.model import Part
from gandalf.model_folder import read_json
from gandalf.predict.files import predict_chunks, write_predictions
from gandalf.predict.inputs import texts_of_test_split
from gandalf.predict.predictor import Predictor
from gandalf.recipe import Recipe, Targets, Validation
from gandalf.runs.checks import check_run
from gandalf.runs.folder import RunPlace
from gandalf.runs.folder import refuse_to_lose as refuse_to_lose_model
from gandalf.runs.prepare import split_holdout
from gandalf.runs.start import changed, train_to_folder
from gandalf.runs.validation import TOP, Judge, test_scores
from gandalf.settings import to_dict
from gandalf.systems import recipe as recipe_of

MODEL, BASELINE, PREDICTIONS = "model", "baseline", "predictions"  # folders that are left
DIM, EPOCHS = 300, 12.0  # less than the recipe: four models in some three minutes on two cores
QUERIES, PLACES = 5, 3
PLAIN = "D"
OF_PAPER = {
    PLAIN: "training points alone",
    "Z1": "and each label's text, with that label alone",
    "G": "the paper's Gandalf: and each label's text, with ratios of counts as targets",
}
AGAINST = (PLAIN, "G")  # what ours is compared with

Tell = Callable[[Treatment], None]


def demo_recipe(system: str, *, seed: int = 0, steps: int | None = None) -> Recipe:
    """Return the system's recipe at the demonstration's size."""
    return changed(recipe_of(system), dim=DIM, epochs=EPOCHS, seed=seed, steps=steps)


def treatments(recipe: Recipe) -> tuple[Treatment, ...]:
    """Return what is done with label texts: nothing, least, what the paper does, and what the recipe says."""
    return (
        *(Treatment(name, what, VARIANTS[name].as_settings()) for name, what in OF_PAPER.items()),
        Treatment(OURS, _in_words(recipe.targets)),
    )


def _in_words(targets: Targets) -> str:
    when = (
        "" if targets.label_epochs == 1 else f", in the first {100 * targets.label_epochs:g} % of the updates"
    )
    return f"and each label's text, with {targets.targets} targets{when}"


def demo(
    splits: Splits, recipe: Recipe, folder: Path, queries: Sequence[str] = (), tell: Tell = lambda _: None
) -> SideBySide:
    """Train every treatment; leave the best model, the plain one and all predictions in the folder.

    An epoch is as many points as training points and labels together, so all take equal steps. All hold out
    the same validation share: it draws the curves, turns scores into probabilities and says which is best.
    """
    check_demo(splits, recipe)
    test = need_test_points(splits)
    recipe, held_out = _what_can_be_held(splits.train, recipe)
    (folder / PREDICTIONS).mkdir()
    asked = _Queries(test, queries)
    entries = []
    for variant in treatments(recipe):
        tell(variant)
        entries.append(_trained(splits, changed(recipe, *variant.settings), variant, folder, asked))
    scores = {entry.name: entry.scores for entry in entries}
    saved, why = best({entry.name: entry.held for entry in entries}, recipe.validation)
    (folder / "models" / saved).rename(folder / MODEL)
    if saved != PLAIN:
        (folder / "models" / PLAIN).rename(folder / BASELINE)  # to compare with, on the page of a server
    shutil.rmtree(folder / "models")
    return SideBySide(
        data=splits.name,
        points=len(splits.train),
        held_out=held_out,
        labels=splits.train.num_labels,
        recipe=to_dict(recipe),
        entries=tuple(entries),
        questions=asked.questions,
        differences={name: compare(scores[OURS], scores[name]) for name in AGAINST},
        saved=saved,
        why=why,
        diagnosis=diagnose(splits.train, delta=recipe.targets.delta, seed=recipe.seed),
    )


def check_demo(splits: Splits, recipe: Recipe) -> None:
    """Refuse what no demonstration can be made of, before any work is done or anything replaced."""
    check_run(recipe, splits.train)
    need_test_points(splits).need_texts("the demo")


def _what_can_be_held(points: Dataset, recipe: Recipe) -> tuple[Recipe, int]:
    """Return the recipe and its number of held-out points; with too few points nothing is held out."""
    try:
        return recipe, len(points) - len(split_holdout(points, recipe)[0])
    except DataError:
        return replace(recipe, validation=replace(recipe.validation, share=0.0)), 0


def _trained(
    splits: Splits, recipe: Recipe, variant: Treatment, folder: Path, asked: _Queries
) -> TrainedTreatment:
    outcome = train_to_folder(splits, recipe, RunPlace(folder / "models" / variant.name))
    model, scores = outcome.trained.model, outcome.scores
    if scores is None:
        raise DataError(outcome.notes[0])
    predicted = predict_chunks(Predictor(model), texts_of_test_split(splits, model), TOP)
    write_predictions(folder / PREDICTIONS / f"{variant.name}.npz", predicted, model)
    history, training = outcome.trained.history, outcome.metrics["training"]
    held = _held_scores(model, splits, recipe)
    return TrainedTreatment(variant, scores, held, history, training, asked.answers(model))


def _held_scores(model: Part, splits: Splits, recipe: Recipe) -> Scores | None:
    rest, held = split_holdout(splits.train, recipe)
    return test_scores(model, Splits(train=rest, test=held, name=splits.name))


def best(held: dict[str, Scores | None], options: Validation) -> tuple[str, str]:
    """Return the treatment to save, and why: ours, unless another is better by more than noise.

    The test split has no say.
    """
    ours = held[OURS]
    if ours is None:
        return OURS, "no points could be held out to choose by"
    judge = Judge.of(ours, options)
    scores = {name: found for name, found in held.items() if found is not None}
    saved = judge.best(scores, OURS)
    by = f"{judge.by}, {judge.points:,} held out of training"
    if saved == OURS:
        return OURS, f"no other is better by more than noise ({by})"
    lead = judge.difference(scores[saved], ours).difference
    return saved, f"it is better by {lead:.1f}, which is more than noise ({by})"


class _Queries:
    """The queries: given texts, or texts of the test split, whose right labels are known."""

    def __init__(self, test: Dataset, texts: Sequence[str]) -> None:
        self.truth: csr_array | None = None
        self.exclude: csr_array | None = None
        if texts:
            self.questions = Questions(
                tuple(texts), "what a person might type; which labels are right is not known"
            )
            return
        rows, only_new = query_rows(test, QUERIES)
        picked = test[rows]
        self.truth, self.exclude = picked.targets, picked.exclude
        which = "new texts" if only_new else "texts"
        rule = f"{which} of the test split, at equal distances from its first to its last"
        self.questions = Questions(tuple(picked.texts or ()), rule)

    def answers(self, model: Part) -> tuple[tuple[Answer, ...], ...]:
        """Return the model's best labels of each query."""
        k = min(PLACES, model.num_labels)
        ids, scores = Predictor(model).predict(self.questions.texts, k, self.exclude)
        return tuple(
            tuple(
                Answer(model.label_texts[label], score, self._right(row, label))
                for label, score in zip(labels, of_row, strict=True)
                if label >= 0
            )
            for row, (labels, of_row) in enumerate(zip(ids.tolist(), scores.tolist(), strict=True))
        )

    def _right(self, row: int, label: int) -> bool | None:
        return None if self.truth is None else bool(self.truth[row, label] > 0)


PAGE, RESULTS = "index.html", "results.json"
FORMAT = "gandalf demo"  # in the results: what tells the folder from anyone else's


@contextmanager
def demo_folder(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a folder that takes its name when the body succeeds; `overwrite` then removes a demo."""
    refuse_to_lose(out, overwrite=overwrite)
    with new_folder(out, overwrite=overwrite, inner=(MODEL, BASELINE, PREDICTIONS)) as folder:
        yield folder


def write_results(results: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write all figures, and return the content of the file."""
    found = {"format": FORMAT, **results}
    with written(folder / RESULTS) as file:
        json.dump(found, file, ensure_ascii=False, indent=1, allow_nan=False)
    return found


def refuse_to_lose(out: Path, *, overwrite: bool) -> None:
    """Never write over what another command or a person put there, nor over a demo unless told to."""
    if not out.is_dir() or not _names(out):
        return  # what else may be wrong with it, `new_folder` says
    foreign = _foreign(out)
    if foreign is not None:
        what = f"holds {foreign}, which is not part of a demo, and is not replaced"
        raise DataError(what, remedy="choose another OUT, or move that away", file=out)
    if not overwrite:
        remedy = "choose another OUT, or replace it with --overwrite"
        raise DataError("holds a demo already", remedy=remedy, file=out)
    for name in (MODEL, BASELINE):
        if (out / name).exists():
            refuse_to_lose_model(out / name, resume=False, overwrite=True)


def _foreign(out: Path) -> str | None:
    """Return a name in the folder that no demo put there, or None."""
    names = _names(out)
    others = [name for name in names if name not in (PAGE, RESULTS, MODEL, BASELINE, PREDICTIONS)]
    if others or RESULTS not in names or read_json(out / RESULTS).get("format") != FORMAT:
        return (others or names)[0]
    inside = _names(out / PREDICTIONS) if PREDICTIONS in names else []
    return next((f"{PREDICTIONS}/{name}" for name in inside if not name.endswith(".npz")), None)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not is_leftover(path.name))
