"""A model as a folder: JSON, safetensors and text, nothing that could run code when it is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gandalf.data.files import new_folder, read_lines, written
from gandalf.errors import DataError, Findings
from gandalf.model.calibration import Calibration
from gandalf.model.card import model_card
from gandalf.model.model import Model
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Table
from gandalf.text.tokens import load_tokens

CONFIG, WEIGHTS, LABELS = "config.json", "model.safetensors", "labels.jsonl"
METRICS, CARD = "metrics.json", "README.md"
FORMAT, VERSION = "gandalf model", 1

AGAIN = "copy the folder again, or train the model again"


@dataclass(frozen=True)
class Facts:
    """What `config.json` says of the other files, so that each can be checked against it."""

    encoder: dict[str, Any]  # its kind and its options
    labels: int
    dim: int
    config: dict[str, Any]
    calibration: Calibration | None


# ---- writing


def save_model(
    model: Model,
    folder: str | Path,
    *,
    metrics: Mapping[str, Any] | None = None,
    card: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write the model into a new folder, wholly or not at all; `overwrite` replaces another model's."""
    folder = Path(folder)
    foreign = foreign_files(folder) if overwrite and folder.is_dir() else []
    if foreign:
        what = f"holds {foreign[0]}, which is not part of a model, and is not replaced"
        raise DataError(what, remedy="choose another name, or move that away", file=folder)
    with new_folder(folder, overwrite=overwrite) as temporary:
        write_model(model, temporary, metrics=metrics, card=card)


def write_model(
    model: Model, folder: Path, *, metrics: Mapping[str, Any] | None = None, card: str | None = None
) -> None:
    """Write the model's files into a folder that is there; `config.json` comes last and makes it a model."""
    facts = _facts_of(model)
    with written(folder / LABELS) as file:
        file.writelines(_label_lines(model))
    model.tokens.save(folder)
    save_file(_tensors_of(model), folder / WEIGHTS)
    if metrics is not None:
        _write_json(metrics, folder / METRICS)
    with written(folder / CARD) as file:
        file.write(model_card(model, metrics) if card is None else card)
    files = sorted({CONFIG, *(path.name for path in folder.iterdir())})
    about = {"format": FORMAT, "version": VERSION, "made_by": f"gandalf {_release()}", "files": files}
    _write_json(about | asdict(facts), folder / CONFIG)


def foreign_files(folder: Path) -> list[str]:
    """Names in the folder that no `config.json` of ours lists: all of them where there is none."""
    try:
        found = _read_json(folder / CONFIG)
    except DataError:
        found = {}
    ours = found.get("files", []) if found.get("format") == FORMAT else []
    return sorted(path.name for path in folder.iterdir() if path.name not in ours)


def _facts_of(model: Model) -> Facts:
    encoder = model.config.get("encoder")
    if not isinstance(encoder, Mapping):
        raise DataError(
            "the model's config does not say how its encoder is built", remedy="set config['encoder']"
        )
    return Facts(dict(encoder), model.num_labels, model.head.dim, model.config, model.calibration)


def _label_lines(model: Model) -> Iterator[str]:
    for index, text in enumerate(model.label_texts):
        record = {"text": text} if model.label_ids is None else {"id": model.label_ids[index], "text": text}
        yield json.dumps(record, ensure_ascii=False) + "\n"


def _tensors_of(model: Model) -> dict[str, Tensor]:
    """All weights and buffers by name, each with memory of its own, as safetensors asks."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for part, module in (("encoder", model.encoder), ("head", model.head)):
        for name, tensor in module.state_dict().items():
            tensor = tensor.detach().cpu().contiguous()
            place = tensor.untyped_storage().data_ptr()
            tensors[f"{part}.{name}"] = tensor.clone() if place in seen else tensor
            seen.add(place)
    return tensors


def _write_json(value: Mapping[str, Any], path: Path) -> None:
    with written(path) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def _release() -> str:
    try:
        return metadata.version("gandalf-xmc")
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return "(not installed)"


# ---- reading


def load_model(path: str | Path, device: str | torch.device = "cpu") -> Model:
    """Read a model folder that `save_model` wrote, ready to predict."""
    folder = Path(path)
    facts = _read_facts(folder)
    ids, texts = _read_labels(folder / LABELS, facts.labels)
    tokens = load_tokens(folder)
    tensors = _read_tensors(folder / WEIGHTS)
    encoder = _built(facts.encoder, tokens.size, folder / CONFIG)
    with torch.device("meta"):  # every one of its numbers is about to be replaced
        head = Table(facts.labels, facts.dim)
    _fill({"encoder": encoder, "head": head}, tensors, folder / WEIGHTS)
    if getattr(encoder, "dim", None) != facts.dim:
        what = f"the encoder gives {getattr(encoder, 'dim', None)} numbers and the head takes {facts.dim}"
        raise DataError(what, remedy=AGAIN, file=folder / CONFIG)
    model = Model(tokens, encoder, head, texts, ids, facts.config, facts.calibration)
    model.encoder.to(device).eval()
    model.head.to(device).eval()
    return model


def _read_facts(folder: Path) -> Facts:
    if not folder.is_dir():
        what = (
            "is a file where a model folder is expected"
            if folder.exists()
            else "there is no such model folder"
        )
        raise DataError(what, remedy="give the folder that gandalf train wrote", file=folder)
    path = folder / CONFIG
    found = _read_json(path)
    if found.get("format") != FORMAT:
        raise DataError(
            "does not describe a gandalf model", remedy="give the folder that gandalf train wrote", file=path
        )
    if found.get("version") != VERSION:
        raise DataError(
            f"is in version {found.get('version')!r} of the format, and this release reads version {VERSION}",
            remedy="pip install --upgrade gandalf-xmc",
            file=path,
        )
    try:
        calibration = found["calibration"]
        return Facts(
            _typed(found, "encoder", dict),
            _typed(found, "labels", int),
            _typed(found, "dim", int),
            _typed(found, "config", dict),
            None if calibration is None else Calibration(**calibration),
        )
    except (KeyError, TypeError, ValueError) as error:  # DataError is a ValueError
        raise DataError(f"lacks or garbles a setting ({error})", remedy=AGAIN, file=path) from error


def _typed(found: Mapping[str, Any], name: str, kind: type) -> Any:  # noqa: ANN401  JSON
    value: Any = found[name]
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if not fits or (kind is int and value < 1):
        raise TypeError(f"{name} is {str(value)[:40]!r}")
    return value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error
    except (ValueError, RecursionError) as error:
        raise DataError("is not JSON, or is cut short", remedy=AGAIN, file=path) from error
    if not isinstance(found, dict):
        raise DataError("is not a JSON object", remedy=AGAIN, file=path)
    return found


def _missing(path: Path) -> DataError:
    return DataError(f"is no complete model folder: it has no {path.name}", remedy=AGAIN, file=path.parent)


def _read_labels(path: Path, expected: int) -> tuple[list[str] | None, list[str]]:
    if not path.is_file():
        raise _missing(path)
    ids, texts = list[str](), list[str]()
    for line, text in read_lines(path, Findings()):
        try:
            record = json.loads(text)
            texts.append(record["text"])
            if "id" in record:
                ids.append(record["id"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError("is no label", remedy=AGAIN, file=path, line=line) from error
    if (
        len(texts) != expected
        or len(ids) not in (0, expected)
        or {*map(type, texts), *map(type, ids)} != {str}
    ):
        what = (
            f"does not hold the texts of the {expected:,} labels that {CONFIG} speaks of, but {len(texts):,}"
        )
        raise DataError(what, remedy=AGAIN, file=path)
    return ids or None, texts


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise _missing(path)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise DataError(
            f"cannot be read as safetensors ({str(error).splitlines()[0][:120]})", remedy=AGAIN, file=path
        ) from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise DataError(
                f"{name} holds values that are no numbers", remedy="train the model again", file=path
            )
    return tensors


def _built(options: dict[str, Any], vocabulary: int, path: Path) -> nn.Module:
    try:
        with torch.random.fork_rng(devices=[]):  # the start it draws is replaced; the caller's dice stay
            return build_encoder(options, vocabulary)
    except (DataError, TypeError, ValueError, RuntimeError, MemoryError, ArithmeticError) as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise DataError(f"no encoder can be built as it says ({reason})", remedy=AGAIN, file=path) from error


def _fill(parts: dict[str, nn.Module], tensors: dict[str, Tensor], path: Path) -> None:
    """Put the tensors in their places, with the kind of number they have."""
    places = {f"{part}.{name}": value for part in parts for name, value in parts[part].state_dict().items()}
    for name in sorted({*places, *tensors}):
        if name not in tensors:
            raise DataError(f"has no {name}, which {CONFIG} calls for", remedy=AGAIN, file=path)
        if name not in places:
            raise DataError(f"holds {name}, which {CONFIG} does not call for", remedy=AGAIN, file=path)
        found, expected = tuple(tensors[name].shape), tuple(places[name].shape)
        if found != expected:
            what = f"{name} has the shape {found}, and {CONFIG} calls for {expected}"
            raise DataError(what, remedy=AGAIN, file=path)
    for part, module in parts.items():
        own = {name: tensors[f"{part}.{name}"] for name in module.state_dict()}
        module.load_state_dict(own, assign=True)
