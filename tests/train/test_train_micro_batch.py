"""Batches that a transformer reads a part at a time: the same gradient, in less memory."""

from __future__ import annotations

import json

import pytest
import torch
from small_runs import same, small, small_splits
from small_systems import begun, small_system, write_pretrained

from gandalf.errors import DataError
from gandalf.runs.plan import run_shape
from gandalf.runs.session import run_training
from gandalf.settings import override
from gandalf.train.run_memory import memory_plan


@pytest.fixture
def splits():
    return small_splits()


@pytest.fixture
def folder(splits, tmp_path):
    return write_pretrained(tmp_path / "t", splits)


def gradients(splits, asked, stage):
    """Of every parameter of the encoder after one step that moves nothing."""
    running, _ = begun(splits, asked, stage)
    training = running.training
    kept = {}

    def keep(factor):
        kept.update(
            {name: p.grad.clone() for name, p in training.encoder.named_parameters() if p.grad is not None}
        )

    training.encoder_update.step = keep
    (batch,) = training._batches(range(0, 1))
    training._train_batch(batch, with_loss=True)
    return kept, training.loss


@pytest.mark.parametrize("stage", ["siamese", "classifier"])
@pytest.mark.parametrize("size", [1, 7, 32, 1000])
def test_parts_give_the_gradient_of_the_whole(stage, size, splits, folder):
    """Without dropout; the labels' texts of a pair stage are among the parts."""
    still = ("encoder.dropout=0", "siamese.pair_dropout=0", "head.rate=0")
    asked = small_system("renee", folder, *still)
    no_dropout(folder)
    whole, loss = gradients(splits, asked, stage)
    parts, told = gradients(splits, override(asked, [f"training.micro_batch={size}"]), stage)
    assert told == pytest.approx(loss, rel=1e-5) and whole.keys() == parts.keys() and whole
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-3, atol=1e-6, msg=name)


def no_dropout(folder):
    config = folder / "config.json"
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config.write_text(json.dumps(json.loads(config.read_text()) | still))


def test_dropout_is_the_same_on_the_way_back(splits, folder):
    """What the head saw is what the gradient goes through: both passes of a part draw the same numbers."""
    asked = small_system("renee", folder, "training.micro_batch=8", "encoder.dropout=0.5")
    running, _ = begun(splits, asked, "classifier")
    training, seen = running.training, []
    whole = training.encoder.forward
    training.encoder.forward = lambda ids: seen.append(whole(ids)) or seen[-1]
    (batch,) = training._batches(range(0, 1))
    training._train_batch(batch, with_loss=False)
    number = len(seen) // 2
    assert number == -(-len(batch.tokens) // 8) and len(seen) == 2 * number
    for first, again in zip(seen[:number], seen[number:], strict=True):
        assert not first.requires_grad and again.requires_grad
        torch.testing.assert_close(first, again.detach())
    assert not torch.equal(seen[0][0], seen[1][0])


def test_a_part_as_large_as_the_batch_is_the_batch(splits, folder):
    asked = small_system("renee", folder, "training.steps=3", "encoder.dropout=0")
    one, other = (run_training(splits, override(asked, [f"training.micro_batch={n}"])) for n in (1000, 500))
    same(one, other)


def test_a_frozen_encoder_reads_in_parts_too(splits, folder):
    asked = small_system("ngame", folder, "training.steps=3")
    one = run_training(splits, asked)
    other = run_training(splits, override(asked, ["training.micro_batch=5"]))
    torch.testing.assert_close(one.model.head.rows, other.model.head.rows, rtol=0.2, atol=0.2)


def test_the_plan_counts_one_part(folder):
    asked = small_system("renee", folder, "training.batch=64")
    shapes = [run_shape(override(asked, [f"training.micro_batch={size}"]), 50, 120) for size in (0, 16)]
    whole, parts = map(memory_plan, shapes)
    assert shapes[0].activations > 0
    assert whole.activations - parts.activations == 4 * (64 - 16) * shapes[0].activations
    assert (whole.parameters, whole.scores) == (parts.parameters, parts.scores)


def test_other_encoders_read_a_batch_at_once(splits):
    with pytest.raises(
        DataError, match="micro_batch is for transformers, and an encoder of the kind bag-of-words"
    ):
        run_training(splits, small("training.micro_batch=8"))
