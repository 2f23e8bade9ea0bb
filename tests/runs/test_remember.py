"""A memory for a trained model: fitted on held-out training points, kept only if it helps."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import command_line
import numpy as np
import pytest
from scipy.sparse import csr_array
from small_parts import needs_omikuji, small_part
from small_runs import small, small_splits
from small_transformer import WORDS, write_transformer

import gandalf
from gandalf.data.dataset import Splits
from gandalf.data.new_examples import Example
from gandalf.errors import DataError
from gandalf.memory.memory import LABEL, POINT
from gandalf.model import Mix, ModelWithMemory, load_model, save_model
from gandalf.model.examples import with_examples
from gandalf.runs import remember as remember_module
from gandalf.runs.mix import mix_models
from gandalf.runs.remember import MemoryOptions, remember

done, fails = partial(command_line.done, "remember"), partial(command_line.fails, "remember")


@pytest.fixture(scope="module")
def network():
    """A network without label points that held points out of its training."""
    return gandalf.train(small_splits(), small("validation.share=0.2", "targets.targets=none")).model


def forgetful_splits() -> Splits:
    """Points in pairs of one text and one label: what the nearest point has is always right."""
    splits = small_splits()
    texts = [f"{text} {at % 2}" for at, text in enumerate(np.repeat(splits.train.texts, 2))]
    targets = csr_array(splits.train.targets[np.repeat(np.arange(len(splits.train)), 2)])
    return replace(splits, train=replace(splits.train, texts=texts, targets=targets, ids=None))


def test_a_memory_of_near_copies_helps_a_model_that_has_learnt_nothing():
    splits = forgetful_splits()
    model = gandalf.train(splits, small("validation.share=0.2", "training.steps=1")).model
    found = remember(model, splits)
    assert isinstance(found.model, ModelWithMemory) and not found.seen
    assert found.trials[0].value > (found.alone["P@1"] + found.alone["PSP@5"]) / 2 + 5
    assert len(found.model.memory) >= len(splits.train)  # held-out points are remembered in the end


def test_the_best_trial_is_first_and_no_memory_is_kept_for_nothing(network, monkeypatch):
    found = remember(network, small_splits())
    values = [trial.value for trial in found.trials]
    assert values == sorted(values, reverse=True) and len(found.trials) == 12
    monkeypatch.setattr(remember_module, "fit_mix", only_the_model(remember_module.fit_mix))
    nothing = remember(network, small_splits())
    assert nothing.model is network and nothing.trials[0].weight == 0.0


def only_the_model(fit):
    return lambda answers: fit({"model": answers["model"]})


def test_held_out_points_are_no_keys_while_the_memory_is_fitted(network, monkeypatch):
    """A point that finds itself would make any memory look perfect."""
    met = []
    block = remember_module._Vectors.block

    def watched(self, *given, **more):
        made = block(self, *given, **more)
        met.append(
            (more.get("every", False), {record.text for record in made.records if record.kind == POINT})
        )
        return made

    monkeypatch.setattr(remember_module._Vectors, "block", watched)
    found = remember(network, small_splits())
    every = set(small_splits().train.texts)
    assert all(len(texts) < len(every) for kept, texts in met if not kept)
    if isinstance(found.model, ModelWithMemory):
        assert any(texts == every for kept, texts in met if kept)


def test_label_keys_stand_for_nothing_their_label_or_their_row(network):
    points = small_splits()
    for values in ("none", "own", "graph"):
        options = MemoryOptions(label_values=(values,), temperatures=(0.1,))
        found = remember(network, points, options).model
        if not isinstance(found, ModelWithMemory):
            continue
        (group,) = found.memory.groups
        labels = [at for at, record in enumerate(group.records) if record.kind == LABEL]
        assert len(labels) == (0 if values == "none" else points.train.num_labels)
        if values == "own":
            assert (group.values[labels].toarray() == np.eye(points.train.num_labels)).all()
        if values == "graph":
            assert group.values[labels].nnz > points.train.num_labels


def test_the_test_split_has_no_say(network):
    splits = small_splits()
    shuffled = replace(splits, test=splits.test[np.arange(len(splits.test))[::-1]])
    one, other = (remember(network, each).as_dict() for each in (splits, shuffled))
    assert one == other
    assert remember(network, Splits(train=splits.train, name=splits.name)).as_dict() == one


@needs_omikuji
@pytest.mark.parametrize("kind", ["trees", "mix", "network with memory"])
def test_every_kind_of_model_can_have_one(kind, tmp_path):
    model = small_part(kind)
    found = remember(model, small_splits()).model
    if isinstance(found, ModelWithMemory):
        assert not isinstance(found.model, ModelWithMemory)
        save_model(found, tmp_path / "model")
        again = load_model(tmp_path / "model")
        texts = small_splits().test.texts[:5]
        np.testing.assert_allclose(again.best(texts, 5)[1], found.best(texts, 5)[1], atol=1e-4)


def test_examples_are_kept_when_a_memory_is_fitted(network):
    told = with_examples(network, [Example(small_splits().test.texts[0], [3], id="mine")])
    found = remember(told, small_splits()).model
    assert isinstance(found, ModelWithMemory) and list(found.memory.examples) == ["mine"]


def test_a_mix_does_not_call_points_held_out_that_a_memory_holds(network):
    remembering = small_part("network with memory")
    assert mix_models({"one": network, "two": remembering}, small_splits()).seen


@needs_omikuji
def test_a_part_of_a_mix_reads_for_the_memory():
    mix = small_part("mix")
    remembering = small_part("mix with memory")
    assert isinstance(mix, Mix) and remembering.reader == mix.lead_name == "deep"
    texts = small_splits().test.texts[:4]
    own = remembering.model.part("deep").unit_vectors(texts)
    np.testing.assert_allclose(remembering.unit_vectors(texts).numpy(), own.numpy(), atol=1e-6)
    with pytest.raises(DataError, match="does not have"):
        replace(remembering, reader="nobody")


# ---- the recipe


def test_a_recipe_can_ask_for_a_memory(tmp_path):
    splits = forgetful_splits()
    asked = small("validation.share=0.2", "training.steps=1", "memory.kind=fitted", "memory.neighbours=7")
    trained = gandalf.train(splits, asked, out=tmp_path / "out")
    assert isinstance(trained.model, ModelWithMemory) and trained.model.memory.voting.neighbours == 7
    kept = json.loads((tmp_path / "out" / "metrics.json").read_bytes())["memory"]
    assert kept["chosen"]["weight"] == trained.model.weight
    again = load_model(tmp_path / "out")
    assert isinstance(again, ModelWithMemory) and len(again.memory) == len(trained.model.memory)
    assert gandalf.train(splits, asked, out=tmp_path / "out", overwrite=True).memory is not None


def test_without_held_out_points_there_is_nothing_to_fit_by():
    asked = small("validation.share=0", "memory.kind=fitted")
    with pytest.raises(DataError, match="fitted on held-out points"):
        gandalf.train(small_splits(), asked)


def test_the_system_memory_trains_nothing(tmp_path):
    """By any Hugging Face folder: here a tiny one."""
    pytest.importorskip("transformers", reason="transformers is an optional library: extra [transformers]")
    words = {word for text in small_splits().train.texts for word in text.split()}
    write_transformer(tmp_path / "encoder", [*WORDS, *sorted(words - {*WORDS})])
    trained = gandalf.train(small_splits(), "memory", f"encoder.model={tmp_path / 'encoder'}")
    assert trained.steps == 0 and trained.memory is not None
    before = trained.memory["alone"]["P@1"] + trained.memory["alone"]["PSP@5"]
    chosen = trained.memory["chosen"]
    assert chosen["weight"] == 0 or chosen["P@1"] + chosen["PSP@5"] > before


def test_the_system_memory_takes_static_word_vectors(tmp_path):
    """Texts that share words are near each other by the mean of their vectors, and nothing is learnt."""
    splits = forgetful_splits()
    words = sorted({word for text in splits.train.texts for word in text.split()})
    rows = np.random.default_rng(0).normal(size=(len(words), 16))
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, rows, strict=True)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n", "utf-8")
    words_of = ("text.kind=words", "text.min_count=1", f"text.vectors={tmp_path / 'vectors.txt'}")
    trained = gandalf.train(splits, "memory", "encoder.kind=bag-of-words", "encoder.dim=16", *words_of)
    assert trained.steps == 0 and isinstance(trained.model, ModelWithMemory)
    assert trained.memory["chosen"]["P@1"] > trained.memory["alone"]["P@1"]
    network = trained.model.model
    found = network.encoder.words.weight.detach().numpy()[network.tokens.encode(words)[:, 0]]
    cosines = (found * rows).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-5)  # they are the file's


# ---- the command


@pytest.fixture
def folder(network, tmp_path):
    save_model(network, tmp_path / "model", metrics={"kept": 1})
    return tmp_path / "model"


@pytest.fixture
def data(tmp_path):
    gandalf.export(small_splits(), tmp_path / "data", "renee")
    return tmp_path / "data"


def test_the_command_writes_a_model_and_says_what_it_tried(folder, data, tmp_path):
    out = tmp_path / "with-memory"
    said = done(folder, data, "-o", out)
    assert "the model alone" in said and ("a memory of weight" in said or "no memory helps" in said)
    metrics = json.loads((out / "metrics.json").read_bytes())
    assert metrics["kept"] == 1 and metrics["memory"]["held_out_points"] > 0
    load_model(out)
    assert "not empty" in fails(folder, data, "-o", out)
    done(folder, data, "-o", out, "--overwrite", "--json")


def test_the_command_never_writes_over_what_it_reads(folder, data):
    assert "is the model itself" in fails(folder, data, "-o", folder, "--overwrite")
    assert "part of the data" in fails(folder, data, "-o", data, "--overwrite")


def test_other_labels_are_refused(folder, tmp_path):
    gandalf.export(gandalf.synthetic(100, 30, seed=5).splits, tmp_path / "other", "renee")
    assert "labels" in fails(folder, tmp_path / "other", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
