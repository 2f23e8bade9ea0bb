"""Rows made of label texts, by definition; blocks and mixes of DECAF and ECLARE; heads as tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from torch import nn

from gandalf.nets.blocks import LABEL_BLOCKS, POINT_BLOCKS, Document, Gated, Residual, Scaled
from gandalf.nets.head_kind import head_kind
from gandalf.nets.heads import Composed, Encoded, Table
from gandalf.nets.label_text import Attention, Frozen, GatedSum, LabelText
from gandalf.nets.word_table import WordTable

LABELS, WORDS, DIM = 7, 30, 8
every_block = pytest.mark.parametrize("block", sorted(LABEL_BLOCKS))


def bags(seed=0, labels=LABELS):
    generator = np.random.default_rng(seed)
    dense = generator.random((labels, WORDS)) * (generator.random((labels, WORDS)) < 0.2)
    dense[:, 0] = 0  # padding
    dense[3] = 0  # a text without a known word
    return csr_array(dense.astype(np.float32))


def part(block="eclare", dim=DIM, seed=0, given=None, length=1.0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        words = WordTable(WORDS, DIM, length)
        return LabelText(words, bags() if given is None else given, dim, block), words


def head(mix="attention", block="eclare", frozen=False, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        words = WordTable(WORDS, DIM)
        parts = [LabelText(words, bags(each), DIM, block) for each in range(1 if mix == "gated" else 2)]
        mixes = {"gated": GatedSum, "attention": Attention}
        kept = [Frozen(each) for each in parts] if frozen else parts
        return Composed(Table(LABELS, DIM), kept, mixes[mix](DIM, 1 + len(parts))), words


# ---- blocks


@pytest.mark.parametrize("build", [Residual, Gated, Scaled])
def test_linear_maps_start_at_the_identity_and_keep_spectral_norm_one(build):
    block = build(DIM, 0.2).eval()
    torch.testing.assert_close(block.linear.weight, torch.eye(DIM), rtol=0, atol=1e-5)
    with torch.no_grad():
        block.linear.parametrizations.weight.original.normal_(0, 3)
    block.train()
    for _ in range(50):
        _ = block.linear.weight
    assert torch.linalg.matrix_norm(block.linear.weight, 2).item() == pytest.approx(1, abs=1e-2)


def test_decafs_block_starts_half_open():
    x = torch.randn(5, DIM, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Gated(DIM, 0.2).eval()(x), 0.5 * x.relu() + 0.5 * x)


def test_eclares_block_starts_with_a_scale_of_one():
    x = torch.randn(5, DIM, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Scaled(DIM, 0.2).eval()(x), x.relu() + x)


def test_astecs_block_starts_at_twice_what_is_positive():
    x = torch.randn(5, DIM, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Residual(DIM, 0.2).eval()(x), 2 * x.relu())


def test_points_and_labels_have_the_same_kinds_of_block():
    assert POINT_BLOCKS.keys() == LABEL_BLOCKS.keys()
    assert isinstance(POINT_BLOCKS["decaf"](DIM, 0.2).block, Gated)
    assert isinstance(POINT_BLOCKS["eclare"](DIM, 0.2), Document)


# ---- rows of label texts


@every_block
def test_rows_are_the_block_of_weighted_sums_of_word_vectors(block):
    made, words = part(block)
    made.eval()
    expected = made.block(torch.from_numpy(bags().toarray()) @ words.weight)
    torch.testing.assert_close(made(slice(0, LABELS)), expected)


@pytest.mark.parametrize("ids", [[0], [6, 2, 2], [3], [1, 3, 5], list(range(LABELS))])
def test_any_labels_give_their_rows(ids):
    made, _ = part()
    made.eval()
    torch.testing.assert_close(made(torch.tensor(ids)), made(slice(0, LABELS))[ids])
    torch.testing.assert_close(made(slice(2, 5)), made(torch.tensor([2, 3, 4])))


def test_a_graph_of_bags_is_a_graph_of_word_sums():
    graph = csr_array(np.random.default_rng(1).random((LABELS, LABELS)).astype(np.float32))
    own, words = part()
    averaged = LabelText(words, csr_array(graph @ bags()), DIM, "eclare").eval()
    sums = torch.from_numpy(bags().toarray()) @ words.weight
    torch.testing.assert_close(
        averaged(slice(0, LABELS)), averaged.block(torch.from_numpy(graph.toarray()) @ sums)
    )
    assert not torch.allclose(averaged(slice(0, LABELS)), own.eval()(slice(0, LABELS)))


def test_rows_may_be_longer_than_word_vectors():
    made, words = part(dim=12, length=4.0)
    sums = torch.from_numpy(bags().toarray()) @ words.weight / 4
    expected = made.eval().block(sums @ made.project.weight.T)
    assert made(slice(0, LABELS)).shape == (LABELS, 12)
    torch.testing.assert_close(made(slice(0, LABELS)), expected)


def test_the_word_table_is_shared_and_not_owned():
    made, words = part()
    assert not any(each is words.weight for each in made.parameters())
    before = made.eval()(slice(0, LABELS))
    with torch.no_grad():
        words.weight.mul_(2)
    assert not torch.allclose(made(slice(0, LABELS)), before)


def test_words_taken_out_of_the_table_give_the_same_rows_and_get_the_gradient():
    made, words = part()
    made.eval()
    expected = made(slice(0, LABELS))
    met = torch.from_numpy(np.union1d([0], bags().indices).astype(np.int64))
    taken = words.narrow(met)
    found = made(slice(0, LABELS))
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert taken.grad is not None and words.weight.grad is None
    words.widen()


# ---- mixes


def test_decafs_mix_is_half_of_each_part_at_first():
    parts = [torch.randn(4, DIM, generator=torch.Generator().manual_seed(n)) for n in range(2)]
    torch.testing.assert_close(GatedSum(DIM, 2)(parts), 0.5 * parts[0] + 0.5 * parts[1])


def test_attention_weighs_each_labels_parts_by_numbers_that_sum_to_one():
    parts = [torch.randn(4, DIM, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    mix = Attention(DIM, 3).eval()
    weights = mix.weights(parts)
    assert weights.shape == (4, 3) and bool((weights > 0).all())
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(4))
    assert not torch.allclose(weights[0], weights[1])  # a label's own
    expected = sum(weights[:, [n]] * each for n, each in enumerate(parts))
    torch.testing.assert_close(mix(parts), expected)


# ---- heads


@pytest.mark.parametrize("mix", ["gated", "attention"])
@every_block
def test_a_composed_head_is_one_plain_table_at_prediction(mix, block):
    made, _ = head(mix, block)
    made.train()
    plain = made.plain()
    assert made.training
    made.eval()
    torch.testing.assert_close(plain.rows, made.mixed(made.table.rows, slice(0, LABELS)))
    assert torch.equal(plain.bias, made.table.bias) and plain.rows is not made.table.rows
    ids = torch.tensor([4, 0])
    torch.testing.assert_close(plain.rows[ids], made.mixed(made.table.rows[ids], ids))


def test_a_table_is_its_own_plain_table():
    table = Table(LABELS, DIM)
    assert table.plain() is table and list(table.learnt()) == []


def test_every_part_of_a_head_counts():
    made, _ = head()
    before = made.plain().rows
    for each in made.parts:
        with torch.no_grad():
            each.weights.mul_(0)  # a label without words
        after = made.plain().rows
        assert not torch.allclose(after, before)
        before = after


def test_what_learns_with_the_encoder_is_everything_but_the_table():
    made, words = head()
    learnt = {id(each) for module in made.learnt() for each in module.parameters()}
    every = {id(each) for each in made.parameters()}
    assert every - learnt == {id(made.table.rows), id(made.table.bias)} and id(words.weight) not in every


def test_frozen_rows_stay_until_they_are_refreshed():
    made, words = head(frozen=True)
    before = made.plain().rows
    with torch.no_grad():
        words.weight.mul_(3)
    torch.testing.assert_close(made.plain().rows, before)
    made.refresh()
    assert not torch.allclose(made.plain().rows, before)
    live, other = head()
    with torch.no_grad():
        other.weight.mul_(3)
    torch.testing.assert_close(made.plain().rows, live.plain().rows)


def test_frozen_rows_have_no_gradient():
    made, words = head(frozen=True)
    free = made.table.rows.detach().clone().requires_grad_()
    made.mixed(free, slice(0, LABELS)).sum().backward()
    assert free.grad is not None and words.weight.grad is None


@pytest.mark.parametrize("mix", ["gated", "attention"])
def test_the_memory_plan_knows_what_rows_keep_for_the_way_back(mix):
    """Counted on labels of a few words each, as real ones are."""
    labels, words, dim = 2000, 500, 64
    given = csr_array(random_array((labels, words), density=5 / words, rng=np.random.default_rng(0)))
    table = WordTable(words, dim)
    parts = [LabelText(table, given, dim, "eclare") for _ in range(1 if mix == "gated" else 2)]
    mixes = {"gated": GatedSum, "attention": Attention}
    made = Composed(Table(labels, dim), parts, mixes[mix](dim, 1 + len(parts)))
    free = made.table.rows.detach().clone().requires_grad_()
    own = {each.untyped_storage()._cdata for each in (*made.parameters(), *made.buffers(), table.weight)}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        rows = made.mixed(free, slice(0, labels))
    assert rows.shape == (labels, dim)
    counted = head_kind(mix).row_values
    assert 0.75 * counted < sum(kept.values()) / labels / dim <= counted


class Mean(nn.Module):
    """A small encoder: the mean of word vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, DIM)
        self.dropout = nn.Dropout(0.5)

    def forward(self, ids):
        return self.dropout((self.words(ids) * (ids != 0)[..., None]).mean(dim=1))


def test_encoded_label_texts_are_unit_vectors_of_the_encoder():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = Mean()
        tokens = torch.randint(1, WORDS, (LABELS, 5))
        tokens[2, 3:] = 0
        made = Encoded(encoder, tokens.int(), DIM)
        encoder.train()
        plain = made.plain()
        assert encoder.training
        encoder.eval()
        torch.testing.assert_close(plain.rows.norm(dim=1), torch.ones(LABELS))
        torch.testing.assert_close(plain.rows, torch.nn.functional.normalize(encoder(tokens), dim=1))
        assert not plain.bias.any()
        ids = torch.tensor([5, 2])
        torch.testing.assert_close(made.at(ids), plain.rows[ids], rtol=1e-4, atol=1e-5)
    assert not list(made.parameters())  # the encoder is not its own
