"""Export a model so that it predicts without PyTorch.

A network becomes one ONNX graph from tokens to all scores; label trees are copied.
"""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gandalf.data.files import new_folder, written
from gandalf.errors import DataError
from gandalf.memory.files import INNER, write_memory
from gandalf.model import Mix, Model, ModelWithMemory, Part, Trees
from gandalf.model.part import sample_label_texts
from gandalf.model_folder import LABELS, PARTS, SLIM_FACTS, with_hashes
from gandalf.nets.blocks import drop_parametrizations
from gandalf.nets.encoders import build_encoder
from gandalf.slim import (
    FORMAT,
    GRAPH,
    NETWORK,
    SCORES,
    TOKENS,
    VECTORS,
    VERSION,
    SlimPredictor,
    read_facts,
)

MOST_TEXTS = 65_536  # texts in a batch
CHECKED = 64  # label texts whose scores must agree
TOLERANCE = 1e-3  # largest difference of scores before the sigmoid, relative to scores above 1
EXPORTERS = ("torch.onnx", "onnxscript", "onnx_ir")  # loggers that are silenced during the export


class _EncoderAndHead(nn.Module):
    """Encoder and head as one module, for the ONNX exporter."""

    def __init__(self, encoder: nn.Module, rows: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.rows, self.bias = nn.Parameter(rows), nn.Parameter(bias)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of all labels, and the vectors."""  # shape: (B, T) -> (B, L), (B, dim)
        vectors: Tensor = self.encoder(tokens)
        return vectors @ self.rows.T + self.bias, vectors


def export_model(model: Part, source: Path, folder: Path, *, overwrite: bool = False) -> float:
    """Write an exported model into a new folder; return the largest difference of its scores.

    The exported model is run without PyTorch before the folder takes its name. A model with other scores is
    refused.
    """
    if overwrite and folder.is_dir() and any(folder.iterdir()):
        read_facts(folder / SLIM_FACTS)  # raises an error if the folder is no exported model
    with new_folder(folder, overwrite=overwrite, inner=(PARTS,)) as temporary:
        shutil.copyfile(source / LABELS, temporary / LABELS)
        _write_slim(model, temporary)
        _add_hashes(temporary)
        return _largest_difference(model, temporary)


def _write_slim(model: Part, folder: Path) -> None:
    """Write a model, or a part of a mix, into an existing folder, without the labels."""
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "labels": model.num_labels,
        "calibration": None if model.calibration is None else asdict(model.calibration),
        "system": model.config.get("system"),
        **_write_files(model, folder),
    }
    with written(folder / SLIM_FACTS) as file:
        file.write(json.dumps(facts, indent=2) + "\n")


def _add_hashes(folder: Path) -> None:
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    facts = with_hashes(read_facts(folder / SLIM_FACTS), folder / SLIM_FACTS, names)
    with written(folder / SLIM_FACTS) as file:
        file.write(json.dumps(facts, indent=2) + "\n")


@singledispatch
def _write_files(model: Part, folder: Path) -> dict[str, Any]:
    """Write the files that predict, and return their facts for `slim.json`."""
    raise DataError(f"a model of the kind {type(model).__name__} cannot be exported")


@_write_files.register
def _(model: Model, folder: Path) -> dict[str, Any]:
    _write_graph(model, folder / GRAPH)
    model.tokens.save(folder)
    return {"kind": NETWORK}


@_write_files.register
def _(model: Trees, folder: Path) -> dict[str, Any]:
    model.write(folder)
    return {**model.wide.facts(), "size": model.wide.size}


@_write_files.register
def _(model: Mix, folder: Path) -> dict[str, Any]:
    for name, part in zip(model.names, model.parts, strict=True):
        (folder / PARTS / name).mkdir(parents=True)
        _write_slim(part, folder / PARTS / name)
    return model.facts().encoder


@_write_files.register
def _(model: ModelWithMemory, folder: Path) -> dict[str, Any]:
    write_memory(model.memory, folder)
    (folder / PARTS / INNER).mkdir(parents=True)
    _write_slim(model.model, folder / PARTS / INNER)
    return model.facts().encoder


def _write_graph(model: Model, path: Path) -> None:
    try:
        import onnx
        import onnxscript
    except ImportError as error:
        raise DataError(f"an export needs {error.name}", remedy="pip install 'gandalf-xmc[onnx]'") from error
    del onnx, onnxscript
    rows, bias = (part.detach().float().cpu() for part in model.head.block(0, model.num_labels))
    whole = _EncoderAndHead(_inference_encoder(model), rows, bias).eval()
    tokens = torch.from_numpy(model.tokens.encode(["one text", "another one"])).long()
    texts = torch.export.Dim("texts", min=1, max=MOST_TEXTS)
    try:
        with _silent_exporter():
            torch.onnx.export(
                whole,
                (tokens,),
                str(path),
                input_names=[TOKENS],
                output_names=[SCORES, VECTORS],
                dynamic_shapes=({0: texts},),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # the exporter may raise anything for an unusual transformer
        if (full := _disk_error(error)) is not None:
            raise DataError(f"cannot be written ({full.strerror or full})", file=path) from error
        reason = str(error).strip().splitlines()[0][:120] if str(error).strip() else type(error).__name__
        what = f"this encoder cannot be written as ONNX ({reason})"
        raise DataError(what, remedy="export a model with another encoder") from error


def _disk_error(error: BaseException | None) -> OSError | None:
    """Return the first OSError among the causes of an error, or None."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


@contextmanager
def _silent_exporter() -> Iterator[None]:
    """Silence the exporter's warnings: they are about optimisations, which do not change the scores."""
    loggers = [logging.getLogger(name) for name in EXPORTERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _inference_encoder(model: Model) -> nn.Module:
    """Return a copy of the encoder without the parts that only training needs."""
    # Built again: a deep copy shares the class, from which `drop_parametrizations` removes parametrizations.
    found = build_encoder(model.config["encoder"], model.tokens.size)
    found.load_state_dict(model.encoder.state_dict())
    drop_parametrizations(found)
    return found.for_export()


def _largest_difference(model: Part, folder: Path) -> float:
    """Return the largest difference of scores on some label texts; raise a DataError if it is too large."""
    texts = sample_label_texts(model, CHECKED)
    ids = np.maximum(model.best(texts, min(10, model.num_labels))[0], 0)
    scores = model.score(texts, ids)
    found = np.take_along_axis(SlimPredictor(folder).scores(texts), ids, axis=1)
    difference = float(np.abs(found - scores).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(scores).max())):
        raise DataError(f"the exported model gives other scores, by up to {difference:.3g}")
    return difference
