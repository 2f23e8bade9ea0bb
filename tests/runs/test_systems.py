"""What holds for every system: it is kept, is repeatable, learns, and gains on the tail by label points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_runs import same, small_splits
from small_systems import small_system, write_pretrained

import gandalf
from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.predict.predictor import Predictor
from gandalf.runs.session import run_training
from gandalf.runs.validation import Trained
from gandalf.settings import override
from gandalf.systems import NETWORKS, SYSTEMS, recipe

every_system = pytest.mark.parametrize("system", NETWORKS)


@pytest.fixture(scope="module")
def small_run(small_pretrained):
    """A run of a few steps by a system's recipe, made once."""
    kept: dict[str, Trained] = {}

    def of(system):
        if system not in kept:
            kept[system] = run_training(
                small_splits(), small_system(system, small_pretrained, "training.steps=5")
            )
        return kept[system]

    return of


@every_system
def test_a_model_comes_back_from_its_folder_and_predicts_the_same(system, small_run, tmp_path):
    model = small_run(system).model
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    texts = small_splits().test.texts
    for part, other in ((model.encoder, again.encoder), (model.head, again.head)):
        found = other.state_dict()
        assert all(torch.equal(each, found[name]) for name, each in part.state_dict().items())
    scores, other_scores = (Predictor(each).predict(texts, 7)[1] for each in (model, again))
    # Weights that lie elsewhere in memory may be summed in another order; a steep calibration shows it.
    np.testing.assert_allclose(scores, other_scores, rtol=1e-4)
    assert np.isfinite(scores).all() and (np.diff(scores, axis=1) <= 0).all()
    assert again.config["system"] == system


@every_system
def test_whatever_the_head_a_folder_holds_one_plain_table(system, small_run, tmp_path):
    model = small_run(system).model
    save_model(model, tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    head = {name: tuple(each.shape) for name, each in stored.items() if not name.startswith("encoder.")}
    assert head == {"head.rows": (120, model.head.dim), "head.bias": (120,)}


@every_system
def test_the_same_seed_gives_the_same_model_and_another_seed_another(system, small_run, small_pretrained):
    first = small_run(system)
    same(first, run_training(small_splits(), small_system(system, small_pretrained, "training.steps=5")))
    other = run_training(small_splits(), small_system(system, small_pretrained, "training.steps=5", "seed=1"))
    assert not torch.equal(first.model.head.rows, other.model.head.rows)
    if system != "ngame":
        name = "model.embeddings.word_embeddings.weight" if system == "renee" else "words.weight"
        one, two = (dict(each.model.encoder.named_parameters())[name] for each in (first, other))
        assert not torch.equal(one, two)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_system
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gpu_trains_what_a_cpu_trains(system, precision, small_pretrained):
    """Rows in the same directions, from the same start by the same points; dropout's dice differ."""
    asked = small_system(system, small_pretrained, "training.steps=5", f"training.precision={precision}")
    one = run_training(small_splits(), asked).model
    other = run_training(small_splits(), override(asked, ["device=cuda"])).model
    assert other.device.type == "cuda"
    rows = (torch.nn.functional.normalize(each.head.rows.float().cpu(), dim=1) for each in (one, other))
    alike = (next(rows) * next(rows)).sum(dim=1)
    assert alike.mean() > 0.5  # of others it would be near 0


@every_system
def test_what_is_said_of_a_system(system):
    about = SYSTEMS[system]
    for said in (about.paper, about.parts, about.departs):
        assert len(said.split()) >= 3 and said == said.strip()
    assert about.departs.endswith(".") and about.paper.endswith(")")
    assert recipe(system) == about.recipe() and recipe(system).system == system


def test_unknown_systems():
    with pytest.raises(DataError, match=r"there is no system 'aste'; did you mean astec\?"):
        recipe("aste")
    with pytest.raises(
        DataError, match=r"there is no system 'bert'; choose from auto, astec, decaf, .*, renee, .*"
    ):
        recipe("bert")


# ---- learning

# Few texts and two epochs want higher rates than the thousands of points that the recipes are meant for, and
# no dropout.
FAST = (
    *("training.epochs=2", "training.batch=16", "validation.share=0", "text.max_length=8"),
    *("encoder.dropout=0", "encoder.last_dropout=0"),
)
WORDS = ("encoder.dim=64", "encoder.words_rate=0.02", "head.rate=0.02")
PAIRS = ("siamese.pair_epochs=2", "siamese.pair_batch=32")
CONVOLUTIONS = ("encoder.dim=64",)
TRANSFORMER = (*PAIRS, "siamese.pair_rate=1e-3", "encoder.rate=1e-3")
RATES = {
    **dict.fromkeys(("astec", "decaf", "eclare"), WORDS),
    **dict.fromkeys(("inceptionxml", "inceptionxml-lf"), CONVOLUTIONS),
    "siamesexml": (*WORDS, *PAIRS),
    "ngame": (*TRANSFORMER, "head.rate=5e-3"),
    "renee": (*TRANSFORMER, "head.rate=2"),
}


@dataclass(frozen=True)
class Figures:
    """In percent, on the test points: precision, what the tail adds to it, and the propensity-scored one."""

    p1: float
    p5: float
    psp5: float
    tail5: float  # what labels of at most median frequency add to P@5
    steps: int


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """What a system learns of a made-up set by two epochs, with the targets given; made once."""
    points = gandalf.synthetic(2000, 200, seed=1).splits.train
    splits = Splits(points[:600], points[600:], name="synthetic")
    folder = write_pretrained(tmp_path_factory.mktemp("learnt"), splits, size=64)
    kept: dict[tuple[str, str], Figures] = {}

    def of(system, targets):
        if (system, targets) not in kept:
            asked = small_system(system, folder, *FAST, *RATES[system], f"targets.targets={targets}")
            trained = run_training(splits, asked)
            found = Predictor(trained.model).predict(splits.test.texts, 5)
            kept[system, targets] = figures(found, splits, trained.steps)
        return kept[system, targets]

    return of, splits


def figures(found, splits, steps):
    scores, frequency = gandalf.evaluate(found, splits), splits.train.label_frequencies
    tail = frequency <= np.median(frequency)
    ids = found[0]
    right = np.take_along_axis(splits.test.targets.toarray() > 0, ids, axis=1) & tail[ids]
    return Figures(scores["P@1"], scores["P@5"], scores["PSP@5"], 20 * right.sum() / len(ids), steps)


@every_system
def test_two_epochs_beat_the_most_frequent_labels(system, learnt):
    of, splits = learnt
    popular = np.argsort(-splits.train.label_frequencies, kind="stable")[:5]
    number = len(splits.test)
    baseline = (np.tile(popular, (number, 1)), np.tile(np.linspace(1, 0.5, 5, dtype=np.float32), (number, 1)))
    least, found = figures(baseline, splits, 0), of(system, "ratio")
    assert least.p1 > 2 and least.p5 > 2  # a baseline that knows something
    assert found.p1 > 4 * least.p1 and found.p5 > 3 * least.p5


# Renee's own baseline trains on label texts already, each with its own label.
BASELINES = {system: "self" if recipe(system).targets.targets == "self" else "none" for system in NETWORKS}


@every_system
def test_label_points_gain_on_tail_labels_at_equal_steps(system, learnt):
    """On another set of this size (seed 0) both figures rise for every system but one: InceptionXML's PSP@5.

    There it falls from 37.1 to 36.0, while what its tail adds to P@5 rises from 0.07 to 0.21. On sets of
    1,000 points and 300 labels (seeds 0 and 1) its PSP@5 rises, too: by 2.5 and 1.1.
    """
    of, _ = learnt
    without, with_points = of(system, BASELINES[system]), of(system, "ratio")
    assert with_points.steps == without.steps
    if BASELINES[system] == "none":
        assert with_points.psp5 > without.psp5 + 0.5
    else:  # rare labels have their own texts without the graph; here P@1 rises by 3.5 and PSP@5 falls by 0.5
        assert with_points.p1 > without.p1 + 1 and with_points.psp5 > without.psp5 - 1
    # Renee's baseline has points of the same texts: what its tail adds was 0.86 with either targets, and 0.90
    # against 0.81 with the points of a batch in another order. It may not fall by more than such chance.
    least = 0.1 if BASELINES[system] == "none" else -0.2
    assert with_points.tail5 >= without.tail5 + least


def test_renees_baseline_is_label_texts_with_their_own_label():
    assert [system for system, targets in BASELINES.items() if targets == "self"] == ["renee"]
