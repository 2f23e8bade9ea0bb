"""Runs with a transformer: trained from a folder, which may then be gone, kept, resumed, refused."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from command_line import done, fails
from safetensors.torch import load_file
from small_transformer import WORDS, small_bert, write_transformer

import gandalf
from bench.copy_encoder import main as copy_encoder
from gandalf.errors import DataError
from gandalf.nets.encoders import build_encoder, encode_tokens
from gandalf.recipe import Targets
from gandalf.runs import session as hooks
from gandalf.runs import session as run_module
from gandalf.runs.build import assemble_encoder, assemble_head, encoder_options, some_texts
from gandalf.runs.checks import check_recipe
from gandalf.runs.plan import run_shape
from gandalf.runs.prepare import fit_tokens, points_for_loop, with_label_points
from gandalf.runs.start import changed
from gandalf.runs.watch import Interrupted
from gandalf.systems import recipe as recipe_of
from gandalf.train.encoder_update import EncoderOptions, EncoderUpdate
from gandalf.train.run_memory import activation_values

SHORT = ("training.steps=6", "training.batch=32", "device=cpu", "targets.targets=self")


@pytest.fixture(scope="module")
def splits():
    found = gandalf.load("man")
    return replace(found, train=found.train[:300], test=found.test[:40])


@pytest.fixture
def folder(splits, tmp_path):
    """A pre-trained transformer whose words are the commonest of the texts."""
    counts = Counter(word for text in splits.train.texts for word in text.lower().split() if word.isalpha())
    words = WORDS + [word for word, _ in counts.most_common(300) if word not in WORDS]
    write_transformer(tmp_path / "pretrained", words, padding="[PAD]")
    return tmp_path / "pretrained"


def by(folder, *more):
    settings = ("encoder.kind=transformer", "text.kind=pretrained", f"encoder.model={folder}")
    return changed(recipe_of("astec"), *settings, "encoder.dropout=0.1", *SHORT, *more)


def test_a_run_leaves_a_model_that_needs_nothing_else(splits, folder, tmp_path, monkeypatch):
    at_first = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"]
    whole = run_module.assemble_encoder

    def assembled_and_gone(*given):
        made = whole(*given)
        shutil.rmtree(folder)
        return made

    monkeypatch.setattr(run_module, "assemble_encoder", assembled_and_gone)
    trained = gandalf.train(splits, by(folder, "validation.share=0"), out=tmp_path / "m")
    assert trained.steps == 6 and not folder.exists()
    model = gandalf.load_model(tmp_path / "m")
    moved = model.encoder.model.embeddings.word_embeddings.weight - at_first
    assert 0 < moved.abs().max() < 0.1
    texts = splits.test.texts[:9]
    torch.testing.assert_close(model.vectors(texts), trained.model.vectors(texts))
    ids, scores = gandalf.Predictor(model).predict(texts, 3)
    again, same = gandalf.Predictor(trained.model).predict(texts, 3)
    assert (ids == again).all()
    np.testing.assert_allclose(scores, same, rtol=1e-5)
    assert splits.train.label_texts[ids[0, 0]] in done("predict", tmp_path / "m", texts[0], "--top", "1")


def test_the_start_is_the_folders_model_at_length_one_and_rows_of_points(splits, folder):
    recipe = by(folder, "training.precision=float32")
    tokens = fit_tokens(splits.train, recipe.text, recipe.encoder)
    assert tokens.num_texts == 0  # nobody asks for idf
    made = with_label_points(splits.train, recipe.targets, 0)
    points = points_for_loop(made, tokens, Targets())
    encoder = assemble_encoder(recipe, tokens, some_texts(points, made.is_label))
    head = assemble_head(recipe, encoder, points, None)
    stored = load_file(folder / "model.safetensors")
    for name, each in encoder.model.named_parameters():
        assert torch.equal(each, stored[name]), name
    vectors = encode_tokens(encoder, points.tokens)
    assert vectors.norm(dim=1).mean() == pytest.approx(1.0, abs=0.05)
    mean = torch.from_numpy(points.targets.T @ vectors.numpy())
    held = torch.from_numpy(np.diff(points.targets.tocsc().indptr) > 0)
    expected = torch.nn.functional.normalize(mean)[held]
    torch.testing.assert_close(head.rows.detach()[held], expected, rtol=1e-4, atol=1e-5)


def test_other_encoders_read_a_models_tokens_with_weights_of_their_own(splits, folder):
    recipe = changed(recipe_of("astec"), "text.kind=pretrained", f"encoder.model={folder}")
    tokens = fit_tokens(splits.train, recipe.text, recipe.encoder)
    assert tokens.num_texts == len(splits.train) + splits.train.num_labels
    assert len(np.unique(tokens.idf())) > 10


def test_a_resumed_run_ends_as_an_unbroken_one(splits, folder, tmp_path, monkeypatch):
    recipe = by(folder, "encoder.weight_decay=0.1")
    unbroken = gandalf.train(splits, recipe, out=tmp_path / "unbroken").model

    class Stopping(hooks.AfterEachStep):
        def __call__(self, training):
            self.stop.asked = training.step >= 4
            return super().__call__(training)

    with monkeypatch.context() as patch:
        patch.setattr(hooks, "AfterEachStep", Stopping)
        with pytest.raises(Interrupted):
            gandalf.train(splits, recipe, out=tmp_path / "broken")
    resumed = gandalf.train(splits, recipe, out=tmp_path / "broken", resume=True).model
    for name, each in unbroken.encoder.state_dict().items():
        assert torch.equal(each, resumed.encoder.state_dict()[name]), name
    assert torch.equal(unbroken.head.rows, resumed.head.rows)


def test_memory_is_planned_by_what_the_transformer_keeps(folder):
    recipe = by(folder, "text.max_length=20", "labels.block=10")
    shape = run_shape(recipe, 100, 50)
    options = encoder_options(recipe.encoder, 20)
    encoder = build_encoder(options, 100)
    assert shape.dim == 32
    assert shape.encoder_parameters == sum(each.numel() for each in encoder.parameters())
    assert shape.activations == activation_values(encoder, torch.ones(8, 20, dtype=torch.int64))
    # Of every token and layer at least the input of each product: three of 32 numbers and one of 64.
    assert shape.activations > 20 * 2 * (3 * 32 + 64)
    longer = run_shape(by(folder, "text.max_length=40", "labels.block=10"), 100, 50)
    assert longer.activations > 1.9 * shape.activations


def test_biases_and_norms_do_not_decay():
    encoder = build_encoder({"kind": "transformer", "config": small_bert()}, 50)
    with torch.no_grad():
        for each in encoder.parameters():
            each.fill_(1.0)
    update = EncoderUpdate(encoder, EncoderOptions(rate=0.1, weight_decay=0.5), clip=0.0)
    for each in encoder.parameters():
        each.grad = torch.zeros_like(each)
    update.step(1.0)
    for name, each in encoder.named_parameters():
        matrix = not name.endswith("bias") and "LayerNorm" not in name
        assert torch.equal(each, torch.full_like(each, 0.95 if matrix else 1.0)), name


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ("text.kind=words",),
            "reads the tokens that it was trained with, not words.*; set text.kind=pretra",
        ),
        (("text.vectors=glove.txt",), "has vectors of its own, and text.vectors would go unused"),
    ],
)
def test_settings_that_do_not_go_together(folder, settings, sentence):
    with pytest.raises(DataError, match=sentence):
        check_recipe(by(folder, *settings))


def test_what_is_missing_is_said_before_any_work(splits, folder, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="pip install no-such-model"):
        gandalf.train(splits, by("no-such-model"), out=tmp_path / "m")
    gandalf.train(splits, by(folder), out=tmp_path / "there")
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(run_module, "prepare_material", None)
    extra = r"a transformer needs transformers; pip install 'gandalf-xmc\[transformers\]'$"
    with pytest.raises(DataError, match=extra):
        gandalf.train(splits, by(folder), out=tmp_path / "m")
    assert not (tmp_path / "m").exists()
    with pytest.raises(DataError, match=extra):  # and not that the folder is damaged
        gandalf.load_model(tmp_path / "there")


def test_too_long_texts_are_refused(splits, folder, tmp_path):
    with pytest.raises(DataError, match=r"at most 40 tokens, not 64; set text.max_length to 40 or less"):
        gandalf.train(splits, by(folder, "text.max_length=64"), out=tmp_path / "m")


def test_a_copy_in_half_precision_is_a_folder_to_start_from(folder, tmp_path):
    copy_encoder([str(folder), str(tmp_path / "half"), "--half"])
    assert {path.name for path in (tmp_path / "half").iterdir()} == {
        *("config.json", "tokenizer.json", "model.safetensors")
    }
    before, after = (load_file(each / "model.safetensors") for each in (folder, tmp_path / "half"))
    assert before.keys() == after.keys()
    for name, each in after.items():
        assert each.dtype == (torch.float16 if before[name].is_floating_point() else before[name].dtype)
        torch.testing.assert_close(each.float(), before[name].float(), rtol=1e-3, atol=1e-6)
    options = encoder_options(by(tmp_path / "half").encoder, 32)
    assert options == encoder_options(by(folder).encoder, 32)
    build_encoder(options, options["config"]["vocab_size"]).start_from(tmp_path / "half")


def test_the_command_line_says_what_is_missing(tmp_path):
    settings = ("encoder.kind=transformer", "text.kind=pretrained", "encoder.model=no-such-model")
    sets = [part for each in settings for part in ("--set", each)]
    assert "pip install no-such-model" in fails("train", "man", tmp_path / "m", *sets, "--steps", "1")
