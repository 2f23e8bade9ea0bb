"""Write and read the weights of a network; every tensor is checked against what `config.json` describes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gandalf.data.files import moved_in
from gandalf.errors import DataError
from gandalf.model.facts import Facts
from gandalf.model_folder import CONFIG, WEIGHTS, damaged, need_file
from gandalf.nets.encoder import TextEncoder
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Table
from gandalf.text.pretrained import MISSING_LIBRARY
from gandalf.train.parallel.shards import separate_memory

TELL_OPTIONS = "set config['encoder'] to what build_encoder was given"


def write_weights(encoder: nn.Module, head: nn.Module, folder: Path) -> None:
    """Write the weights and buffers of encoder and head into an existing folder."""
    path = folder / WEIGHTS
    tensors = {name: tensor.detach().cpu() for name, tensor in _state(encoder, head).items()}
    try:
        with moved_in(folder, WEIGHTS) as inner:
            save_file(separate_memory(tensors), inner / WEIGHTS)
        # safetensors writes files that only their owner may read. Copy the mode of another file.
        others = (each for each in folder.iterdir() if each != path and each.is_file())
        path.chmod(next(others).stat().st_mode)
    except (OSError, SafetensorError) as error:  # a full disk raises either
        raise DataError(f"cannot be written ({error})", file=path) from error


def check_options(options: dict[str, Any], encoder: nn.Module, vocabulary: int) -> None:
    """Raise a DataError unless the options describe the encoder."""
    try:
        with torch.device("meta"):  # compares shapes, takes no memory
            described = build_encoder(options, vocabulary)
    except (DataError, TypeError) as error:
        what = f"the model's config does not say how its encoder is built ({error})"
        raise DataError(what, remedy=TELL_OPTIONS) from error
    expected, found = (
        {name: value.shape for name, value in each.state_dict().items()} for each in (described, encoder)
    )
    if expected != found:
        what = "the encoder is not the one that the model's config and tokens describe"
        raise DataError(what, remedy=TELL_OPTIONS)


def read_weights(folder: Path, facts: Facts, vocabulary: int) -> tuple[TextEncoder, Table]:
    """Return the encoder and the head that the facts describe, with the tensors of the folder."""
    tensors = _read_tensors(folder / WEIGHTS)
    _refuse_deep(facts.encoder, len(tensors), folder / CONFIG)
    if _asks_for_larger([facts.encoder, facts.dim], tensors):
        with torch.device("meta"):  # compares shapes before any memory is taken
            _check_shapes(_state(*_build(folder, facts, vocabulary)), tensors, folder / WEIGHTS)
    encoder, head = _build(folder, facts, vocabulary)
    _check_shapes(_state(encoder, head), tensors, folder / WEIGHTS)
    for prefix, module in (("encoder", encoder), ("head", head)):
        state = {name: tensors[f"{prefix}.{name}"] for name in module.state_dict()}
        module.load_state_dict(state, assign=True)  # each tensor keeps its type of number
    _check_descriptions(encoder, facts, folder / CONFIG)
    return encoder, head


def _state(encoder: nn.Module, head: nn.Module) -> dict[str, Tensor]:
    """Return all weights and buffers by their names in the file."""
    parts = (("encoder", encoder), ("head", head))
    return {f"{part}.{name}": value for part, each in parts for name, value in each.state_dict().items()}


def _read_tensors(path: Path) -> dict[str, Tensor]:
    need_file(path)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise damaged(f"cannot be read as safetensors ({_reason(error)})", path) from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            what = f"{name} holds values that are no numbers"
            raise DataError(what, remedy="train the model again", file=path)
    return tensors


def _refuse_deep(options: Mapping[str, Any], tensors: int, path: Path) -> None:
    """Refuse more layers than there are tensors; building them takes long, even on the device "meta"."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            _refuse_deep(value, tensors, path)
        elif "layer" in name and isinstance(value, int) and value > tensors:
            what = f"no encoder can be built as it says ({name} is {value:,}, of {tensors:,} tensors)"
            raise damaged(what, path)


def _asks_for_larger(options: Any, tensors: Mapping[str, Tensor]) -> bool:  # noqa: ANN401  JSON
    """Return True if a number in the options is larger than every dimension of the tensors.

    Only then are shapes compared on the device "meta" first. That takes a second, since PyTorch imports its
    compiler.
    """
    if isinstance(options, Mapping):
        return any(_asks_for_larger(value, tensors) for value in options.values())
    if isinstance(options, list):
        return any(_asks_for_larger(value, tensors) for value in options)
    if not isinstance(options, int):
        return False
    return options > max((max(tensor.shape, default=0) for tensor in tensors.values()), default=0)


def _build(folder: Path, facts: Facts, vocabulary: int) -> tuple[TextEncoder, Table]:
    """Build the encoder and the head that the facts describe; their values are not set yet."""
    try:
        with torch.random.fork_rng(devices=[]):  # the caller's random state must not change
            encoder = build_encoder(facts.encoder, vocabulary)
    except (DataError, TypeError, ValueError, RuntimeError, MemoryError, ArithmeticError) as error:
        if isinstance(error, DataError) and error.problem.kind == MISSING_LIBRARY:
            raise  # the environment is wrong, not the folder
        raise damaged(f"no encoder can be built as it says ({_reason(error)})", folder / CONFIG) from error
    with torch.device("meta"):  # saves drawing millions of rows that are replaced
        return encoder, Table(facts.labels, facts.dim)


def _check_shapes(needed: Mapping[str, Tensor], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors whose names or shapes differ from the state that the modules need."""
    for name in sorted({*needed, *tensors}):
        if name not in tensors:
            raise damaged(f"has no {name}, which {CONFIG} calls for", path)
        if name not in needed:
            raise damaged(f"holds {name}, which {CONFIG} does not call for", path)
        found, expected = tuple(tensors[name].shape), tuple(needed[name].shape)
        if found != expected:
            raise damaged(f"{name} has the shape {found}, and {CONFIG} calls for {expected}", path)


def _check_descriptions(encoder: nn.Module, facts: Facts, path: Path) -> None:
    """Refuse facts whose head does not fit the encoder, and facts that describe two encoders."""
    dim = getattr(encoder, "dim", None)
    if dim != facts.dim:
        raise damaged(f"the encoder gives {dim} numbers and the head takes {facts.dim}", path)
    if facts.config.get("encoder") != facts.encoder:
        raise damaged("describes two encoders, that of the recipe and another one", path)


def _reason(error: BaseException) -> str:
    """Return the beginning of an error's text, or its type if it has no text."""
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
