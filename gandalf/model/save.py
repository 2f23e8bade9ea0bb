"""Writing a model folder, wholly or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from gandalf.data.files import new_folder, written
from gandalf.errors import DataError
from gandalf.model.card import model_card
from gandalf.model.layout import (
    CARD,
    CONFIG,
    FORMAT,
    INDEX,
    INDEX_FACTS,
    LABELS,
    LOCK,
    METRICS,
    VERSION,
    WEIGHTS,
    Facts,
    instead_of,
    read_json,
)
from gandalf.model.model import Model
from gandalf.model.trees import Trees
from gandalf.nets.encoders import build_encoder


def save_model(
    model: Model | Trees,
    folder: str | Path,
    *,
    metrics: Mapping[str, Any] | None = None,
    card: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write the model into a new folder, wholly or not at all; `overwrite` replaces another model's."""
    with _replaced(Path(folder), overwrite) as temporary:
        write_model(model, temporary, metrics=metrics, card=card)


def save_derived(model: Model, source: Path, folder: Path, *, overwrite: bool = False) -> None:
    """The same for a model made from one in a folder, whose figures, recipe and log go along.

    The folder may be that very one: it is replaced at the end, if all went well.
    """
    metrics = read_json(source / METRICS) if (source / METRICS).is_file() else None
    with _replaced(folder, overwrite) as temporary:
        for name in read_json(source / CONFIG).get("files", []):
            if name not in (CONFIG, WEIGHTS, LABELS, CARD, INDEX, INDEX_FACTS) and (source / name).is_file():
                shutil.copyfile(source / name, temporary / name)
        write_model(model, temporary, metrics=metrics)


@contextmanager
def _replaced(folder: Path, overwrite: bool) -> Iterator[Path]:
    """A folder to fill, which may take the place of a model's and of nothing else."""
    foreign = foreign_files(folder) if overwrite and folder.is_dir() else []
    if foreign:
        what = f"holds {foreign[0]}, which is not part of a model, and is not replaced"
        raise DataError(what, remedy=instead_of("choose another name", foreign[0]), file=folder)
    with new_folder(folder, overwrite=overwrite) as temporary:
        yield temporary


def write_model(
    model: Model | Trees, folder: Path, *, metrics: Mapping[str, Any] | None = None, card: str | None = None
) -> None:
    """Write the model's files into a folder that is there; `config.json` comes last and makes it a model."""
    facts = model.facts() if isinstance(model, Trees) else _facts_of(model)
    with written(folder / LABELS) as file:
        file.writelines(_label_lines(model))
    if isinstance(model, Trees):
        model.write(folder)
    else:
        model.tokens.save(folder)
        _write_weights(model, folder / WEIGHTS)
        # safetensors makes files that only their owner may read.
        (folder / WEIGHTS).chmod((folder / LABELS).stat().st_mode)
    if metrics is not None:
        _write_json(metrics, folder / METRICS)
    with written(folder / CARD) as file:
        file.write(model_card(model, metrics) if card is None else card)
    files = sorted({CONFIG, *(path.name for path in folder.iterdir() if path.is_file())} - {LOCK})
    about = {"format": FORMAT, "version": VERSION, "made_by": f"gandalf {_release()}", "files": files}
    _write_json(about | asdict(facts), folder / CONFIG)


def list_files(folder: Path, *names: str) -> None:
    """Say in a model's `config.json` that these files, which are there, are part of it too."""
    found = read_json(folder / CONFIG)
    found["files"] = sorted({*found.get("files", []), *names})
    _write_json(found, folder / CONFIG)


def foreign_files(folder: Path) -> list[str]:
    """Names in the folder that no `config.json` of ours lists: all of them where there is none."""
    try:
        found = read_json(folder / CONFIG)
    except DataError:
        found = {}
    ours = found.get("files", []) if found.get("format") == FORMAT else []
    return sorted(path.name for path in folder.iterdir() if path.name not in ours)


def _facts_of(model: Model) -> Facts:
    """What `config.json` will say, once it is sure that the encoder can be built again from it."""
    options = model.config.get("encoder")
    try:
        with torch.device("meta"):  # shapes without numbers
            again = build_encoder(options or {}, model.tokens.size)
    except (DataError, TypeError) as error:
        what = f"the model's config does not say how its encoder is built ({error})"
        raise DataError(what, remedy="set config['encoder'] to what build_encoder was given") from error
    expected, found = (
        {name: value.shape for name, value in each.state_dict().items()} for each in (again, model.encoder)
    )
    if expected != found:
        what = "the encoder is not the one that the model's config and tokens describe"
        raise DataError(what, remedy="set config['encoder'] to what build_encoder was given")
    return Facts(dict(options or {}), model.num_labels, model.head.dim, model.config, model.calibration)


def _label_lines(model: Model | Trees) -> Iterator[str]:
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


def _write_weights(model: Model, path: Path) -> None:
    try:
        save_file(_tensors_of(model), path)
    except (OSError, SafetensorError) as error:  # a full disk is either
        raise DataError(f"cannot be written ({error})", file=path) from error


def _write_json(value: Mapping[str, Any], path: Path) -> None:
    with written(path) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def _release() -> str:
    try:
        return metadata.version("gandalf-xmc")
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return "(not installed)"
