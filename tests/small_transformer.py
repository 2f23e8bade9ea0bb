"""A transformer that is quick to train, and a Hugging Face folder with one, weights drawn at random."""

from __future__ import annotations

import json

import torch
from safetensors.torch import save_file

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *("a", "file", "folder", "disk", "zip", "gzip", "compress", "list", "open", "##s", "##ed"),
]


def small_bert(**more):
    """The config of a BERT of two layers of 32 numbers; the vocabulary's size is left to who builds it."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return {"model_type": "bert", **sizes, "max_position_embeddings": 40, **more}


def word_pieces(words=WORDS, padding="[PAD]"):
    """The text of a BERT's tokenizer.json, which, as many real ones, asks for padding and a cut."""
    places = {word: place for place, word in enumerate(words)}
    special = {name: {"id": name, "ids": [places[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    single = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    strategy = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": {
                "direction": "Right",
                "max_length": 64,
                "strategy": "LongestFirst",
                "stride": 0,
            },
            "padding": {**strategy, "pad_id": places[padding], "pad_type_id": 0, "pad_token": padding},
            "added_tokens": [
                {
                    "id": places[name],
                    "content": name,
                    "special": True,
                    **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
                }
                for name in sorted({"[CLS]", "[SEP]", padding}, key=places.__getitem__)
            ],
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": single,
                "pair": single,
                "special_tokens": special,
            },
            "model": {
                "type": "WordPiece",
                "unk_token": "[UNK]",
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": places,
            },
        }
    )


def reference(config, seed=0):
    """The library's own model of that config, pooler and all, and its weights by name."""
    from transformers import AutoConfig, AutoModel

    config = dict(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModel.from_config(AutoConfig.for_model(config.pop("model_type"), **config)).eval()
        with torch.no_grad():
            for each in model.parameters():  # as after training: no bias is 0, and no norm's weight is 1
                each.add_(0.1 * torch.randn(each.shape))
    return model


def write_transformer(folder, words=WORDS, *, padding="[PAD]", prefix="", dtype=torch.float32, **more):
    """Write such a folder, and return the model that it holds."""
    config = small_bert(vocab_size=len(words), pad_token_id=words.index(padding), **more)
    model = reference(config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": str(dtype)[6:]}), "utf-8")
    (folder / "tokenizer.json").write_text(word_pieces(words, padding), "utf-8")
    tensors = {prefix + name: each.to(dtype).contiguous() for name, each in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    return model.to(dtype).float()
