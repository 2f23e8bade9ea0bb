"""Define an encoder of a pre-trained transformer: the mean vector of a text's tokens (NGAME, Renee)."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from gandalf.errors import DataError
from gandalf.nets.encoder import EncoderKind, EncoderSettings, TextEncoder, evenly
from gandalf.text.pretrained import CONFIG, model_folder, need_transformers
from gandalf.text.stored import read_text
from gandalf.text.subwords import Subwords
from gandalf.text.tokens import Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Model types that turn ids and a mask into a vector for each token, and load nothing else when they are
# built.
FAMILIES = (
    *("albert", "bert", "camembert", "distilbert", "electra", "modernbert", "mpnet", "roberta"),
    "xlm-roberta",
)
# Config keys that do not describe the network's shape: its origin, its own code, number types, and kernels,
# which could be downloaded and run by their names.
_LEFT_OUT = ("architectures", "auto_map", "transformers_version", "torch_dtype", "dtype", "use_kernels")
_LEFT_OUT_ENDS = ("_implementation", "quantization_config", "name_or_path")
WEIGHTS = "model.safetensors"
MEASURED = 256  # texts whose vectors are measured
# Tokens encoded at once without a gradient: enough to fit a CPU cache, or to fill a GPU.
PART = {"cpu": 1 << 12, "cuda": 1 << 16}
REMEDY = "use a folder as transformers' save_pretrained writes it"


@dataclass(frozen=True)
class TransformerOptions:
    """The shape of a transformer, as in its `config.json`, and the dropout of its vectors."""

    config: Mapping[str, Any]
    dropout: float = 0.0


class Transformer(TextEncoder):
    """The mean of the last layer over the tokens without padding, scaled to length of about 1.

    `tokenizer_ids` maps our token ids, of which 0 is always padding, to rows of the model's table.
    """

    tokenizer_ids: Tensor  # shape: (vocabulary,)
    scale: Tensor  # shape: ()

    def __init__(self, vocabulary: int, options: TransformerOptions) -> None:
        super().__init__()
        self.model = _build({"vocab_size": vocabulary, **options.config})
        self.dim: int = self.model.config.hidden_size
        self.longest = _longest(self.model)
        rows = self.model.config.vocab_size
        if vocabulary > rows + 1:  # our vocabulary may have an additional padding token
            raise DataError(f"the texts have {vocabulary:,} tokens, but the transformer has {rows:,}")
        self.register_buffer("tokenizer_ids", torch.arange(vocabulary).clamp(max=rows - 1))
        self.register_buffer("scale", torch.tensor(self.dim**-0.5))
        self.dropout = nn.Dropout(options.dropout)
        self._remembered: dict[bytes, Tensor] | None = None  # vectors by token ids; None: no cache

    def remember(self) -> None:
        """Cache the vector of every text from now on; the weights must not change any more."""
        self._remembered = {}

    def forget(self) -> None:
        """Drop the cache of vectors."""
        self._remembered = None

    def set_dropout(self, share: float) -> None:
        """Drop this share of a text's vector from now on; what the transformer drops inside stays."""
        self.dropout.p = share

    def start(self, settings: EncoderSettings, tokens: Tokens) -> None:
        """Take the weights of the pre-trained transformer, and its numbers of the tokens."""
        assert isinstance(tokens, Subwords)  # by `check_recipe`
        self.load_pretrained(model_folder(settings.model), tokens)

    def load_pretrained(self, folder: Path, tokens: Subwords) -> None:
        """Take the weights in a Hugging Face folder, and its numbers of the tokens."""
        self.start_from(folder)
        self.renumber(tokens.tokenizer_ids)

    def renumber(self, tokenizer_ids: npt.NDArray[np.int64]) -> None:
        """Set the model's id of each of our tokens; -1 for an additional padding token."""
        rows = self.model.config.vocab_size
        if tokenizer_ids.max(initial=0) >= rows:
            known = int(tokenizer_ids.max()) + 1
            raise DataError(f"the tokenizer has {known:,} tokens, but its transformer has {rows:,}")
        padding = self.model.config.pad_token_id or 0
        self.tokenizer_ids.copy_(torch.from_numpy(np.where(tokenizer_ids < 0, padding, tokenizer_ids)))

    @torch.no_grad()
    def fit_to_texts(self, ids: Tensor) -> None:
        """Choose the constant factor that gives some of these texts vectors of length 1 on average."""
        ids = ids[torch.from_numpy(evenly(len(ids), MEASURED)).to(ids.device)]
        was_training = self.training
        length = self.eval()(ids).norm(dim=1).mean()
        self.train(was_training)
        self.scale /= length.clamp_min(1e-6)

    def forward(self, ids: Tensor) -> Tensor:
        """Encode a batch of texts."""  # shape: (B, T) -> (B, dim)
        if self.longest is not None and ids.shape[1] > self.longest:
            what = f"the transformer reads texts of at most {self.longest:,} tokens, not {ids.shape[1]:,}"
            raise DataError(what, remedy=f"set text.max_length to {self.longest} or less")
        # In training keep the order of the texts, because dropout is drawn in this order.
        whole = torch.is_grad_enabled() or self.training
        pooled = self._pooled(ids) if whole else self._recalled(ids)
        encoded: Tensor = self.dropout(pooled) * self.scale
        return encoded

    def _pooled(self, ids: Tensor) -> Tensor:
        is_token = ids != 0
        mask = is_token.clone()
        mask[:, 0] = True  # attention needs at least one token, also in a text without tokens
        output = self.model(input_ids=self.tokenizer_ids[ids], attention_mask=mask.long())
        weight = is_token.float() / is_token.sum(dim=1, keepdim=True).clamp_min(1)  # shape: (B, T)
        pooled: Tensor = (output.last_hidden_state.float() * weight[:, :, None]).sum(dim=1)
        return pooled  # shape: (B, dim)

    def _recalled(self, ids: Tensor) -> Tensor:
        """Return the vectors of texts, from the cache if it is on."""
        if self._remembered is None:
            return self._in_parts(ids)
        known = self._remembered
        rows = np.ascontiguousarray(ids.cpu().numpy(), dtype=np.int32)  # the same key for any integer type
        keys = [row.rstrip(b"\0") for row in map(bytes, rows.view(np.uint8))]
        new = [at for at, key in enumerate(keys) if key not in known]
        if new:
            for at, vector in zip(new, self._in_parts(ids[new]).unbind(), strict=True):
                known[keys[at]] = vector.clone()
        return torch.stack([known[key] for key in keys])

    def _in_parts(self, ids: Tensor) -> Tensor:
        """Call `_pooled` for few texts of similar length at a time, since padding costs as much as words."""
        places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        lengths = ((ids != 0) * places).amax(dim=1).clamp_min(1)  # shape: (B,)
        pooled = torch.empty(len(ids), self.dim, device=ids.device)
        texts = max(1, PART.get(ids.device.type, 1 << 12) // ids.shape[1])
        for rows in torch.split(lengths.argsort(), texts) if len(ids) else ():
            pooled[rows] = self._pooled(ids[rows, : int(lengths[rows[-1]])])
        return pooled

    @torch.no_grad()
    def start_from(self, folder: Path) -> None:
        """Load the weights of a Hugging Face folder as float32."""
        weights = {self._own_name(name): tensor for name, tensor in _read_weights(folder).items()}
        places = dict(self.model.named_parameters())
        parts = {name.split(".")[0] for name in places}
        unknown = (name for name in weights.keys() - places.keys() if name.split(".")[0] in parts)
        strange = min((name for name in unknown if not _is_unused(name)), default=None)
        if strange is not None:
            raise DataError(f"has {strange}, which does not belong to {CONFIG}", file=folder, remedy=REMEDY)
        for name, place in places.items():
            found = None if name not in weights else tuple(weights[name].shape)
            if found != tuple(place.shape):
                has = f"has no {name}" if found is None else f"has {name} in the shape {found}"
                what = f"{has}, but {CONFIG} needs {tuple(place.shape)}"
                raise DataError(what, file=folder, remedy=REMEDY)
            place.copy_(weights[name])

    def _own_name(self, name: str) -> str:
        name = name.removeprefix(f"{self.model.base_model_prefix}.")  # present if saved with a head
        # Names of early releases:
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def read_config(folder: Path) -> dict[str, Any]:
    """Return the shape of the transformer in a Hugging Face folder, for `TransformerOptions`."""
    path = folder / CONFIG
    try:
        found = json.loads(read_text(path, REMEDY))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("is not JSON, or is cut short", file=path, remedy=REMEDY) from error
    if not isinstance(found, dict) or "model_type" not in found:
        raise DataError("does not describe a transformer", file=path, remedy=REMEDY)
    _check_family(found["model_type"])
    return _shape_of(found)


def longest_text(config: Mapping[str, Any]) -> int | None:
    """Return a number of tokens of a text that surely fits such a transformer; None: any number."""
    places, padding = config.get("max_position_embeddings"), config.get("pad_token_id") or 0
    # Some model types number positions after the padding id; for the others the result is too small by one.
    return max(1, places - padding - 1) if isinstance(places, int) else None


def _check_family(family: object) -> None:
    if family not in FAMILIES:
        what = f"there is no transformer encoder of the kind {str(family)[:40]!r}"
        raise DataError(what, remedy=f"choose from {', '.join(FAMILIES)}")


def _shape_of(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in config.items()
        if not name.startswith("_") and name not in _LEFT_OUT and not name.endswith(_LEFT_OUT_ENDS)
    }


def _build(config: Mapping[str, Any]) -> PreTrainedModel:
    """Return a network of this shape with random weights."""
    shape = _shape_of(config)
    family = shape.pop("model_type", None)
    _check_family(family)
    need_transformers()
    from transformers import MODEL_MAPPING, AutoConfig, AutoModel

    try:
        built = AutoConfig.for_model(family, **shape)
        takes = inspect.signature(MODEL_MAPPING[type(built)].__init__).parameters
        pooler = {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}
        model: PreTrainedModel = AutoModel.from_config(built, trust_remote_code=False, **pooler)
    except (RuntimeError, MemoryError):  # callers handle a lack of memory
        raise
    except Exception as error:  # the library may raise anything for an edited config
        what = f"no transformer can be built by its config ({_reason(error)})"
        raise DataError(what, remedy=REMEDY) from error
    return model.float().train()


def _longest(model: nn.Module) -> int | None:
    """Return the number of positions for tokens of a text; None: any number."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if not isinstance(table, nn.Embedding):
        return None
    # Some model types number positions after the padding id.
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def _is_unused(name: str) -> bool:
    return name.endswith("_ids") or name.startswith("pooler.")


def _read_weights(folder: Path) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    if not path.is_file():
        raise DataError(f"has no {WEIGHTS}", file=folder, remedy=REMEDY, kind="missing-file")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise DataError(f"cannot be read ({_reason(error)})", file=path, remedy=REMEDY) from error


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def pretrained_encoder(folder: Path, tokens: Subwords) -> Transformer:
    """Return the transformer of a Hugging Face folder, for these tokens of its own."""
    encoder = Transformer(tokens.size, TransformerOptions(read_config(folder)))
    encoder.load_pretrained(folder, tokens)
    return encoder


def _choose(settings: EncoderSettings, max_length: int) -> TransformerOptions:
    return TransformerOptions(read_config(model_folder(settings.model)), settings.dropout)


def _require(settings: EncoderSettings) -> None:
    need_transformers()
    model_folder(settings.model)


def _longest_by_config(settings: EncoderSettings) -> int | None:
    return longest_text(read_config(model_folder(settings.model)))


KIND = EncoderKind(Transformer, TransformerOptions, _choose, _require, _longest_by_config, pretrained=True)
