"""One contract for every encoder, and what the word table and the table of labels promise."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from small_transformer import small_bert
from torch.nn import functional as F
from torch.nn.utils import parametrize

from gandalf.errors import DataError
from gandalf.nets.bag_of_words import BagOfWords, BagOfWordsOptions
from gandalf.nets.blocks import drop_parametrizations
from gandalf.nets.encoders import ENCODERS, build_encoder
from gandalf.nets.heads import Table
from gandalf.nets.inception import GatedAttention
from gandalf.nets.word_table import WordTable
from gandalf.train.encoder_update import EncoderOptions, EncoderUpdate

VOCABULARY, LENGTH = 200, 12
SMALL = {
    "bag-of-words": {"dim": 64},
    "inception": {"words": LENGTH, "word_dim": 128},
    "transformer": {"config": small_bert(), "dropout": 0.2},
}
DEFAULT = {"transformer": {"config": {"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 2}}}
WITH_WORDS = [kind for kind in ENCODERS if kind != "transformer"]  # which has a table of its own making
every_encoder = pytest.mark.parametrize("kind", ENCODERS)
every_word_table = pytest.mark.parametrize("kind", WITH_WORDS)


def build(kind, seed=0, **more):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_encoder({"kind": kind, **SMALL[kind], **more}, VOCABULARY)


def texts(number, seed=0, length=LENGTH):
    """Token ids of texts of different lengths; none is empty."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCABULARY, (number, length), generator=generator)
    lengths = torch.randint(1, length + 1, (number, 1), generator=generator)
    return ids * (torch.arange(length) < lengths)


def train(encoder, steps=3, batch=32):
    """Some steps towards random vectors, with every random draw fixed."""
    update = EncoderUpdate(encoder, EncoderOptions(rate=1e-2, words_rate=1e-2), clip=1.0)
    encoder.train()
    with torch.random.fork_rng(devices=[]):
        for step in range(steps):
            torch.manual_seed(step)
            ids = texts(batch, seed=step)
            update.begin(torch.cat([ids.flatten(), torch.zeros(1, dtype=torch.int64)]).unique())
            x = encoder(ids)
            x.backward(torch.randn_like(x) / batch)
            update.step(1.0)


def test_every_encoder_is_checked_here():
    assert set(SMALL) == set(ENCODERS)


@every_encoder
@pytest.mark.parametrize("batch", [1, 2, 9])
@pytest.mark.parametrize("length", [1, 5, LENGTH])
def test_any_batch_gives_vectors_of_dim_numbers(kind, batch, length):
    encoder = build(kind).eval()
    x = encoder(texts(batch, length=length))
    assert x.shape == (batch, encoder.dim)
    assert x.dtype == torch.float32
    assert x.isfinite().all()


@every_encoder
def test_padding_changes_nothing(kind):
    encoder = build(kind)
    train(encoder)
    encoder.eval()
    ids = texts(6, length=4)
    for extra in (1, 3, LENGTH - 4):
        torch.testing.assert_close(encoder(F.pad(ids, (0, extra))), encoder(ids))


@every_encoder
def test_a_text_is_encoded_the_same_alone_and_among_others(kind):
    encoder = build(kind)
    train(encoder)
    encoder.eval()
    ids = texts(6)
    alone = torch.cat([encoder(row[None]) for row in ids])
    torch.testing.assert_close(encoder(ids), alone, rtol=1e-4, atol=1e-5)


@every_encoder
def test_a_text_without_tokens_gives_a_finite_vector_and_gradient(kind):
    encoder = build(kind).train()
    ids = texts(4)
    ids[1] = 0
    x = encoder(ids)
    assert x.isfinite().all()
    x.sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad.isfinite().all(), name


@every_encoder
@pytest.mark.parametrize("size", ["small", "default"])
def test_vectors_and_scores_are_of_order_one_at_the_start(kind, size):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        options = SMALL[kind] if size == "small" else DEFAULT.get(kind, {})
        encoder = build_encoder({"kind": kind, **options}, VOCABULARY).train()
        head = Table(1000, encoder.dim)
        length = encoder(texts(64)).norm(dim=1)
        encoder.eval()
        scores = encoder(texts(64)) @ head.rows.T + head.bias
    assert 0.5 < length.mean() < 4
    assert abs(scores.mean() + math.log(1000)) < 0.5
    assert (scores + math.log(1000)).abs().max() < 3


@every_encoder
def test_the_same_seed_gives_the_same_encoder_and_another_another(kind):
    ids = texts(5)
    first, again, other = build(kind).eval()(ids), build(kind).eval()(ids), build(kind, seed=1).eval()(ids)
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


@every_encoder
def test_the_gradient_reaches_every_parameter(kind):
    """After a few steps, since gates that start closed let nothing through before."""
    encoder = build(kind, dropout=0.0)
    train(encoder)
    x = encoder(texts(32))
    x.backward(torch.randn(x.shape, generator=torch.Generator().manual_seed(1)))
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        gradient = parameter.grad.to_dense()
        if name.endswith("key.bias"):
            continue  # adds the same to every score of a softmax, which changes nothing
        assert gradient.abs().max() > 1e-7, name


@every_word_table
def test_training_moves_only_the_words_it_meets_and_never_the_padding(kind):
    encoder = build(kind)
    before = encoder.words.weight.detach().clone()
    assert not before[0].any()
    train(encoder, steps=2)
    met = torch.unique(torch.cat([texts(32, seed=0), texts(32, seed=1)]))
    moved = (encoder.words.weight.detach() != before).any(dim=1)
    assert torch.equal(moved.nonzero()[:, 0], met[met != 0])
    assert not encoder.words.weight[0].any()


@every_encoder
def test_a_saved_state_gives_the_same_encoder_back(kind):
    encoder, other = build(kind), build(kind, seed=1)
    train(encoder)
    other.load_state_dict(copy.deepcopy(encoder.state_dict()))
    assert torch.equal(encoder.eval()(texts(5)), other.eval()(texts(5)))


@every_encoder
def test_a_settled_encoder_gives_the_same_without_computing_its_weights(kind):
    encoder, ids = build(kind), texts(5)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(1.5)  # so that a norm has something to do
        encoder(ids)
        expected = encoder.eval()(ids)
        drop_parametrizations(encoder)
        assert torch.equal(encoder(ids), expected)
    assert not any(parametrize.is_parametrized(part) for part in encoder.modules())


@every_encoder
def test_dropout_acts_in_training_and_not_in_evaluation(kind):
    ids = texts(8)
    dropping = build(kind, dropout=0.5)
    assert torch.equal(dropping.eval()(ids), build(kind, dropout=0.0).eval()(ids))
    assert torch.equal(dropping.eval()(ids), dropping.eval()(ids))
    torch.manual_seed(0)
    dropping.train()
    assert not torch.equal(dropping(ids), dropping(ids))


@every_encoder
def test_low_precision_is_near(kind):
    encoder = build(kind).eval()
    ids = texts(16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = encoder(ids).float()
    high = encoder(ids)
    assert torch.norm(low - high) < 0.05 * torch.norm(high)


@every_word_table
def test_start_vectors_keep_their_directions_and_take_our_length(kind):
    encoder = build(kind)
    before = encoder.words.weight.detach().clone()
    generator = torch.Generator().manual_seed(0)
    vectors = 5 * torch.rand(before.shape, generator=generator)
    found = torch.rand(VOCABULARY, generator=generator) < 0.5
    found[0] = True  # padding stays padding, whatever a file says
    encoder.words.start_from(vectors, found)
    now = encoder.words.weight.detach()
    assert torch.equal(now[~found], before[~found])
    assert not now[0].any()
    taken = found.clone()
    taken[0] = False
    alike = F.cosine_similarity(now[taken], vectors[taken])
    torch.testing.assert_close(alike, torch.ones_like(alike))
    mean, ours = now[taken].norm(dim=1).mean(), before[1:].norm(dim=1).mean()
    torch.testing.assert_close(mean, ours, rtol=0.1, atol=0.0)
    ratio = now[taken].norm(dim=1) / vectors[taken].norm(dim=1)
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))  # one factor for all of them


@every_word_table
def test_no_start_vectors_change_nothing(kind):
    encoder = build(kind)
    before = encoder.words.weight.detach().clone()
    encoder.words.start_from(torch.zeros_like(before), torch.zeros(VOCABULARY, dtype=torch.bool))
    assert torch.equal(encoder.words.weight, before)


def test_a_bag_of_words_by_hand():
    encoder = BagOfWords(5, BagOfWordsOptions(dim=3, dropout=0.0)).eval()
    encoder.weigh(torch.tensor([9.0, 1.0, 2.0, 3.0, 4.0]))
    for row, times in zip(torch.tensor([[3, 1, 3, 0], [2, 0, 0, 0]]), [{3: 2, 1: 1}, {2: 1}], strict=True):
        weights = [3.0, 1.0, 3.0] if len(times) > 1 else [2.0]
        length = math.sqrt(sum(weight**2 for weight in weights))
        total = torch.zeros(3)
        for token, weight in zip(row[row != 0].tolist(), weights, strict=True):
            total += weight / length * encoder.words.weight[token].detach()
        expected = 2 * total.clamp_min(0)  # the residual block starts as the identity
        torch.testing.assert_close(encoder(row[None])[0].detach(), expected)


def test_word_vectors_have_length_one():
    words = WordTable(50, 400)
    torch.testing.assert_close(words.weight[1:].norm(dim=1).mean().item(), 1.0, rtol=0.05, atol=0.0)


@every_word_table
def test_a_narrowed_table_gives_the_same_vectors_and_the_gradient_of_its_words_alone(kind):
    encoder, ids = build(kind).eval(), texts(5)
    whole = encoder(ids)
    whole.sum().backward()
    words = torch.cat([torch.zeros(1, dtype=torch.int64), ids.flatten()]).unique()
    taken = encoder.words.narrow(words)
    narrow = encoder(ids)
    torch.testing.assert_close(narrow, whole)
    narrow.sum().backward()
    torch.testing.assert_close(taken.grad, encoder.words.weight.grad[words])
    assert not encoder.words.weight.grad[[i for i in range(VOCABULARY) if i not in words]].any()
    encoder.words.widen()
    assert torch.equal(encoder(ids), whole)


def test_inceptionxml_has_the_published_size():
    assert build_encoder({"kind": "inception"}, 10).dim == 480


def test_attention_by_hand():
    """Rows of X ask those of Y: X Y^T is (1, 4), (1, 1), and times Y it is (9, 4, 1), (3, 1, 1).

    With the identity as the map, 0.3 / 3 of it is added to X. Turned, the other square is made.
    """
    x = torch.tensor([[[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]])
    of = torch.tensor([[[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]])
    found = [asking(2, 0.3)(x, each) for each in (of, x)]
    torch.testing.assert_close(found[0], torch.tensor([[[1.9, 2.4, 0.1], [0.3, 1.1, 1.1]]]))
    torch.testing.assert_close(found[1], torch.tensor([[[1.5, 3.2, 0.2], [0.2, 1.6, 1.2]]]))
    # Turned, X Y^T is (1, 0, 1), (4, 1, 2), (2, 1, 0), and times Y it is (2, 2), (6, 9), (2, 5).
    turned = asking(3, 0.2)(x.transpose(1, 2), of.transpose(1, 2))
    torch.testing.assert_close(turned, torch.tensor([[[1.2, 0.2], [2.6, 1.9], [0.2, 1.5]]]))


def asking(size, gate):
    """Attention whose map is the identity, with its gate open."""
    attention = GatedAttention(size)  # not in eval(), where the norm of the map would be that of another
    with torch.no_grad():
        attention.project.weight = torch.eye(size)[:, :, None]
        attention.gate.fill_(gate)
    return attention


FILLED = {
    "self": (0.2320827991, -0.0942240506, -0.0644773766, 0.1958543956, 0.2692919075, -0.2480780035),
    "cross": (0.2324507236, -0.0941317677, -0.0647131801, 0.19512555, 0.2461721748, -0.2046647966),
}


@pytest.mark.parametrize("attention", [None, "self", "cross"])
def test_inceptionxml_without_a_kind_of_attention_is_that_of_before_there_were_two(attention):
    """The numbers of `self` were written down at commit 0f17dd6, whose model folders name no kind."""
    shape = {"words": 6, "word_dim": 64, "dropout": 0.0, "last_dropout": 0.0}
    named = {} if attention is None else {"attention": attention}
    encoder = build_encoder({"kind": "inception", **shape, **named}, 20).double().eval()
    with torch.no_grad():
        for name, each in encoder.state_dict().items():
            wave = torch.cos(torch.arange(each.numel(), dtype=torch.float64) * 1.3).view(each.shape) * 0.3
            if name.endswith(("._u", "._v")):
                each.copy_(F.normalize(torch.cos(torch.arange(len(each), dtype=torch.float64)), dim=0))
            elif "running" not in name and "tracked" not in name:
                each.copy_(torch.full_like(each, 0.7) if name.endswith("gate") else wave)
        found = encoder(torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 0, 0, 0]]))
    expected = FILLED[attention or "self"]
    assert found[:, ::8].flatten()[:6].tolist() == pytest.approx(expected, abs=1e-9)


def test_an_unknown_attention_is_named():
    with pytest.raises(DataError, match="there is no attention 'crossed'; choose from self, cross"):
        build("inception", attention="crossed")


def by_convolutions(encoder, ids):
    """InceptionXML's encoder as it is told: its own convolutions, and attention as it is written."""

    def attended(attention, x, of):
        asked = torch.einsum("bin,bjn,bjm->bim", x, of, attention.project(of))
        return x + attention.gate / x.shape[2] * asked

    embedded = encoder.words(ids)
    x = attended(encoder.over_words, embedded, embedded)
    of = embedded if encoder.crosses else x
    x = attended(encoder.over_embedding, x.transpose(1, 2), of.transpose(1, 2)).transpose(1, 2)
    x = encoder.mix(x)
    x = encoder.after(torch.cat([convolve(x) for convolve in encoder.parallel], dim=1))
    x = encoder.last(x).flatten(1)
    return (x + encoder.residual(x)).float() * encoder.scale


@pytest.mark.parametrize("attention", ["self", "cross"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("word_dim", [128, 130, 64])  # 130: no multiple of the step
@pytest.mark.parametrize("words", [LENGTH, 70])  # more words than numbers: the other square
def test_inceptionxmls_products_are_its_convolutions(words, word_dim, training, attention):
    shape = {"words": words, "word_dim": word_dim, "attention": attention}
    one = build("inception", **shape, dropout=0.0, last_dropout=0.0).double()
    for name, parameter in one.named_parameters():
        if name.endswith("gate"):
            parameter.data.fill_(0.7)
    other = copy.deepcopy(one)
    one.train(training)
    other.train(training)
    ids = texts(16, length=words)
    found, wanted = one(ids), by_convolutions(other, ids)
    torch.testing.assert_close(found, wanted)
    slopes = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    (one(ids) * slopes).sum().backward()
    (by_convolutions(other, ids) * slopes).sum().backward()
    for (name, parameter), reference in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, reference.grad, msg=name)


def test_an_unknown_encoder_is_named():
    with pytest.raises(DataError, match=r"there is no encoder 'lstm'.*bag-of-words, inception"):
        build_encoder({"kind": "lstm"}, 10)


def test_a_table_shows_blocks_as_views_and_labels_as_copies():
    table = Table(10, 4)
    rows, bias = table.block(3, 7)
    assert rows.shape == (4, 4) and bias.shape == (4,)
    assert rows.data_ptr() == table.rows[3].data_ptr()
    some, its_bias = table.at(torch.tensor([5, 2]))
    assert torch.equal(some, table.rows[[5, 2]]) and torch.equal(its_bias, table.bias[[5, 2]])
    assert some.untyped_storage().data_ptr() != table.rows.untyped_storage().data_ptr()


@pytest.mark.parametrize("num_labels", [1, 2, 1000])
def test_at_the_start_a_label_is_as_likely_as_one_in_all(num_labels):
    bias = Table(num_labels, 3).bias
    assert torch.equal(bias, torch.full_like(bias, -math.log(max(num_labels, 2))))
