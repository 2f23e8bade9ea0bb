"""A pre-trained transformer as an encoder: the mean vector of a text's tokens (NGAME, Renee)."""

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
from gandalf.text.pretrained import CONFIG, need_transformers
from gandalf.text.stored import read_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Families that turn ids and a mask into a vector for each token, and load nothing else when they are built.
FAMILIES = (
    *("albert", "bert", "camembert", "distilbert", "electra", "modernbert", "mpnet", "roberta"),
    "xlm-roberta",
)
# Not of the network's shape: where it came from, code of its own, kinds of number, and kernels, which by
# their names could be fetched and run.
_LEFT_OUT = ("architectures", "auto_map", "transformers_version", "torch_dtype", "dtype", "use_kernels")
_LEFT_OUT_ENDS = ("_implementation", "quantization_config", "name_or_path")
WEIGHTS = "model.safetensors"
# Tokens encoded at once where no gradient is wanted: what fits a cache, or fills a card.
PART = {"cpu": 1 << 12, "cuda": 1 << 16}
REMEDY = "use a folder as transformers' save_pretrained writes it"


@dataclass(frozen=True)
class TransformerOptions:
    """A transformer's shape, as its `config.json` says it, and the dropout of its vectors."""

    config: Mapping[str, Any]
    dropout: float = 0.0


class Transformer(nn.Module):
    """Mean of the last layer over the tokens that are not padding, at a length of about 1.

    `tokenizer_ids` are the rows of the model's own table for our token ids, of which 0 is always padding.
    """

    tokenizer_ids: Tensor  # shape: (vocabulary,)
    scale: Tensor  # shape: ()

    def __init__(self, vocabulary: int, options: TransformerOptions) -> None:
        super().__init__()
        self.model = _build({"vocab_size": vocabulary, **options.config})
        self.dim: int = self.model.config.hidden_size
        self.longest = _longest(self.model)
        rows = self.model.config.vocab_size
        if vocabulary > rows + 1:  # one more may be padding of our own
            raise DataError(f"the texts have {vocabulary:,} tokens, and the transformer knows {rows:,}")
        self.register_buffer("tokenizer_ids", torch.arange(vocabulary).clamp(max=rows - 1))
        self.register_buffer("scale", torch.tensor(self.dim**-0.5))
        self.dropout = nn.Dropout(options.dropout)
        self._remembered: dict[bytes, Tensor] | None = None  # by token ids; None: nothing is remembered

    def remember(self) -> None:
        """Keep the vector of every text that is read from now on: for weights that stay as they are."""
        self._remembered = {}

    def forget(self) -> None:
        """Read every text anew from now on."""
        self._remembered = None

    def renumber(self, tokenizer_ids: npt.NDArray[np.int64]) -> None:
        """Say which of the model's own ids each of our tokens has; -1 for padding of our own."""
        rows = self.model.config.vocab_size
        if tokenizer_ids.max(initial=0) >= rows:
            known = int(tokenizer_ids.max()) + 1
            raise DataError(f"the tokenizer has {known:,} tokens, and its transformer {rows:,}")
        padding = self.model.config.pad_token_id or 0
        self.tokenizer_ids.copy_(torch.from_numpy(np.where(tokenizer_ids < 0, padding, tokenizer_ids)))

    @torch.no_grad()
    def settle(self, ids: Tensor) -> None:
        """Choose the constant factor that gives these texts vectors of length 1 on average."""
        was_training = self.training
        length = self.eval()(ids).norm(dim=1).mean()
        self.train(was_training)
        self.scale /= length.clamp_min(1e-6)

    def forward(self, ids: Tensor) -> Tensor:
        """Encode a batch of texts."""  # shape: (B, T) -> (B, dim)
        if self.longest is not None and ids.shape[1] > self.longest:
            what = f"the transformer reads texts of at most {self.longest:,} tokens, not {ids.shape[1]:,}"
            raise DataError(what, remedy=f"set text.max_length to {self.longest} or less")
        # Dropout is drawn text by text, so that in training they are met in the order they come in.
        whole = torch.is_grad_enabled() or self.training
        pooled = self._pooled(ids) if whole else self._recalled(ids)
        encoded: Tensor = self.dropout(pooled) * self.scale
        return encoded

    def _pooled(self, ids: Tensor) -> Tensor:
        kept = ids != 0
        seen = kept.clone()
        seen[:, 0] = True  # a text without tokens has something to look at, too
        found = self.model(input_ids=self.tokenizer_ids[ids], attention_mask=seen.long())
        weight = kept.float() / kept.sum(dim=1, keepdim=True).clamp_min(1)  # shape: (B, T)
        pooled: Tensor = (found.last_hidden_state.float() * weight[:, :, None]).sum(dim=1)
        return pooled  # shape: (B, dim)

    def _recalled(self, ids: Tensor) -> Tensor:
        """Return the vectors of texts, those of known ones from memory."""
        if self._remembered is None:
            return self._in_parts(ids)
        known = self._remembered
        rows = np.ascontiguousarray(ids.cpu().numpy(), dtype=np.int32)  # whatever whole numbers they came as
        keys = [row.rstrip(b"\0") for row in map(bytes, rows.view(np.uint8))]
        new = [at for at, key in enumerate(keys) if key not in known]
        if new:
            for at, vector in zip(new, self._in_parts(ids[new]).unbind(), strict=True):
                known[keys[at]] = vector.clone()
        return torch.stack([known[key] for key in keys])

    def _in_parts(self, ids: Tensor) -> Tensor:
        """The same with texts of like length together, few at a time: padding costs as much as words do."""
        places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        lengths = ((ids != 0) * places).amax(dim=1).clamp_min(1)  # shape: (B,)
        pooled = torch.empty(len(ids), self.dim, device=ids.device)
        texts = max(1, PART.get(ids.device.type, 1 << 12) // ids.shape[1])
        for rows in torch.split(lengths.argsort(), texts) if len(ids) else ():
            pooled[rows] = self._pooled(ids[rows, : int(lengths[rows[-1]])])
        return pooled

    @torch.no_grad()
    def start_from(self, folder: Path) -> None:
        """Take the weights of a Hugging Face folder, as float32 whatever they are stored as."""
        weights = {self._own_name(name): tensor for name, tensor in _read_weights(folder).items()}
        places = dict(self.model.named_parameters())
        parts = {name.split(".")[0] for name in places}
        unknown = (name for name in weights.keys() - places.keys() if name.split(".")[0] in parts)
        strange = min((name for name in unknown if not _is_unused(name)), default=None)
        if strange is not None:
            raise DataError(f"holds {strange}, which {CONFIG} does not call for", file=folder, remedy=REMEDY)
        for name, place in places.items():
            found = None if name not in weights else tuple(weights[name].shape)
            if found != tuple(place.shape):
                has = f"has no {name}" if found is None else f"has {name} in the shape {found}"
                what = f"{has}, and {CONFIG} calls for {tuple(place.shape)}"
                raise DataError(what, file=folder, remedy=REMEDY)
            place.copy_(weights[name])

    def _own_name(self, name: str) -> str:
        name = name.removeprefix(f"{self.model.base_model_prefix}.")  # saved with a head on top
        # Early releases called them so.
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def read_config(folder: Path) -> dict[str, Any]:
    """The shape of the transformer in a Hugging Face folder, for `TransformerOptions`."""
    path = folder / CONFIG
    try:
        found = json.loads(read_text(path, REMEDY))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("is not JSON, or is cut short", file=path, remedy=REMEDY) from error
    if not isinstance(found, dict) or "model_type" not in found:
        raise DataError("describes no transformer", file=path, remedy=REMEDY)
    _check_family(found["model_type"])
    return _shape_of(found)


def longest_text(config: Mapping[str, Any]) -> int | None:
    """Return how many tokens of a text surely have a place in such a transformer; None: any number."""
    places, padding = config.get("max_position_embeddings"), config.get("pad_token_id") or 0
    # Some families count places from behind the one of padding; for the others this is one too few.
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
    """The network of that shape, its weights drawn at random."""
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
    except (RuntimeError, MemoryError):  # a lack of memory has an answer of its own
        raise
    except Exception as error:  # whatever a library makes of settings that somebody may have edited
        what = f"no transformer can be built by its config ({_reason(error)})"
        raise DataError(what, remedy=REMEDY) from error
    return model.float().train()


def _longest(model: nn.Module) -> int | None:
    """Tokens of a text that there are places for; None: any number."""
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if not isinstance(table, nn.Embedding):
        return None
    # Some families count places from behind the one of padding.
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
