"""Read a model folder, and check every file against the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from gandalf.errors import DataError
from gandalf.memory.files import INNER, MEMORY, check_memory, read_memory
from gandalf.model.facts import Facts, read_facts, read_labels
from gandalf.model.mix import Mix
from gandalf.model.model import Model
from gandalf.model.part import Part
from gandalf.model.trees import Trees, load_trees
from gandalf.model.with_memory import ModelWithMemory, as_queries
from gandalf.model_folder import CONFIG, LABELS, PARTS, WEIGHTS, check_hashes, damaged, need_file
from gandalf.nets.encoder import TextEncoder
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Table
from gandalf.text.pretrained import MISSING_LIBRARY
from gandalf.text.tokens import load_tokens
from gandalf.wide.mixing import MIX, read_composition
from gandalf.wide.wide_model import TREES

# Describes in a message what a folder holds if it is not one network.
KINDS: dict[type[Part], str] = {
    Mix: "a mix of several models",
    Trees: "label trees, which have no encoder",
    ModelWithMemory: "a model with a memory",
}


def load_model(path: str | Path, device: str | torch.device = "cpu", *, verify: bool = True) -> Part:
    """Read a model folder that `save_model` wrote, ready to predict.

    The files are compared with their stored hashes, which takes a second for one or two GB. Without `verify`
    the files are only checked against one another.
    """
    folder = Path(path)
    facts = read_facts(folder)
    if verify:
        check_hashes(folder / CONFIG)
    ids, texts = read_labels(folder / LABELS, facts.labels)
    return _load(folder, facts, ids, texts, device)


def load_network(path: str | Path, device: str | torch.device = "cpu") -> Model:
    """Read a model folder; raise a DataError if it is not one encoder with one table of rows."""
    return need_network(load_model(path, device), path)


def need_network(
    model: Part,
    path: str | Path,
    need: str = "a single network is needed here",
    remedy: str = "give a model of one system, such as gandalf train ... --system astec makes",
) -> Model:
    """Return the model if it is a network; otherwise raise a DataError that names its kind."""
    if not isinstance(model, Model):
        raise DataError(f"holds {KINDS[type(model)]}, and {need}", remedy=remedy, file=path)
    return model


def _load(
    folder: Path, facts: Facts, ids: list[str] | None, texts: list[str], device: str | torch.device
) -> Part:
    kind = facts.encoder.get("kind")
    if kind == TREES:
        return load_trees(folder, facts, ids, texts)
    if kind == MIX:
        return _load_mix(folder, facts, ids, texts, device)
    if kind == MEMORY:
        return _load_with_memory(folder, facts, ids, texts, device)
    return _load_network(folder, facts, ids, texts, device)


def _load_mix(
    folder: Path, facts: Facts, ids: list[str] | None, texts: list[str], device: str | torch.device
) -> Mix:
    names, weights = read_composition(
        facts.encoder.get("parts"), facts.encoder.get("weights"), folder / CONFIG
    )
    parts = []
    for name in names:
        about = read_facts(folder / PARTS / name)
        if about.encoder.get("kind") == MIX or about.labels != facts.labels:
            what = f"is no part of this mix of {facts.labels:,} labels"
            raise damaged(what, folder / PARTS / name)
        parts.append(_load(folder / PARTS / name, about, ids, texts, device))
    return Mix(names, tuple(parts), weights, texts, ids, facts.config, facts.calibration)


def _load_with_memory(
    folder: Path, facts: Facts, ids: list[str] | None, texts: list[str], device: str | torch.device
) -> ModelWithMemory:
    about = read_facts(folder / PARTS / INNER)
    if about.encoder.get("kind") == MEMORY or about.labels != facts.labels:
        what = f"is no model of {facts.labels:,} labels behind a memory"
        raise damaged(what, folder / PARTS / INNER)
    memory, weight = read_memory(folder, facts.encoder, facts.labels)
    model = _load(folder / PARTS / INNER, about, ids, texts, device)
    reader = facts.encoder.get("reader")
    if isinstance(model, Mix) and reader not in model.names:
        raise damaged(f"has no part {str(reader)[:40]!r}", folder / PARTS / INNER)
    found = ModelWithMemory(model, memory, weight, facts.calibration, reader)
    check_memory(memory, as_queries(found.unit_vectors(texts[:1])), folder)
    return found


def _load_network(
    folder: Path, facts: Facts, ids: list[str] | None, texts: list[str], device: str | torch.device
) -> Model:
    tokens = load_tokens(folder)
    tensors = _read_tensors(folder / WEIGHTS)
    _refuse_deep(facts.encoder, len(tensors), folder / CONFIG)
    if _asks_for_larger(facts.encoder | {"dim": facts.dim}, tensors):
        with torch.device("meta"):  # compares shapes before any memory is taken
            _check_shapes(_build_modules(folder, facts, tokens.size), tensors, folder / WEIGHTS)
    modules = _build_modules(folder, facts, tokens.size)
    _check_shapes(modules, tensors, folder / WEIGHTS)
    _set_tensors(modules, tensors)
    encoder, head = modules["encoder"], modules["head"]
    assert isinstance(encoder, TextEncoder) and isinstance(head, Table)
    if getattr(encoder, "dim", None) != facts.dim:
        what = f"the encoder gives {getattr(encoder, 'dim', None)} numbers and the head takes {facts.dim}"
        raise damaged(what, folder / CONFIG)
    if facts.config.get("encoder") != facts.encoder:
        what = "describes two encoders, that of the recipe and another one"
        raise damaged(what, folder / CONFIG)
    model = Model(tokens, encoder, head, texts, ids, facts.config, facts.calibration)
    model.encoder.to(device).eval()
    model.head.to(device).eval()
    return model


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


def _build_modules(folder: Path, facts: Facts, vocabulary: int) -> dict[str, nn.Module]:
    """Build the encoder and the head that the facts describe; their values are not set yet."""
    with torch.random.fork_rng(devices=[]):  # the caller's random state must not change
        encoder = _built_encoder(facts.encoder, vocabulary, folder / CONFIG)
    with torch.device("meta"):  # saves drawing millions of rows that are replaced
        head = Table(facts.labels, facts.dim)
    return {"encoder": encoder, "head": head}


def _read_tensors(path: Path) -> dict[str, Tensor]:
    need_file(path)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise damaged(
            f"cannot be read as safetensors ({str(error).splitlines()[0][:120]})",
            path,
        ) from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise DataError(
                f"{name} holds values that are no numbers", remedy="train the model again", file=path
            )
    return tensors


def _built_encoder(options: dict[str, Any], vocabulary: int, path: Path) -> nn.Module:
    try:
        return build_encoder(options, vocabulary)
    except (DataError, TypeError, ValueError, RuntimeError, MemoryError, ArithmeticError) as error:
        if isinstance(error, DataError) and error.problem.kind == MISSING_LIBRARY:
            raise  # the environment is wrong, not the folder
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise damaged(f"no encoder can be built as it says ({reason})", path) from error


def _refuse_deep(options: Mapping[str, Any], tensors: int, path: Path) -> None:
    """Refuse more layers than there are tensors; building them takes long, even on the device "meta"."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            _refuse_deep(value, tensors, path)
        elif "layer" in name and isinstance(value, int) and value > tensors:
            what = f"no encoder can be built as it says ({name} is {value:,}, of {tensors:,} tensors)"
            raise damaged(what, path)


def _check_shapes(modules: dict[str, nn.Module], tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse tensors whose names or shapes differ from the state of the modules."""
    needed = {
        f"{module}.{name}": value
        for module in modules
        for name, value in modules[module].state_dict().items()
    }
    for name in sorted({*needed, *tensors}):
        if name not in tensors:
            raise damaged(f"has no {name}, which {CONFIG} calls for", path)
        if name not in needed:
            raise damaged(f"holds {name}, which {CONFIG} does not call for", path)
        found, expected = tuple(tensors[name].shape), tuple(needed[name].shape)
        if found != expected:
            what = f"{name} has the shape {found}, and {CONFIG} calls for {expected}"
            raise damaged(what, path)


def _set_tensors(modules: dict[str, nn.Module], tensors: dict[str, Tensor]) -> None:
    """Assign the tensors to the modules; each keeps its type of number."""
    for part, module in modules.items():
        own = {name: tensors[f"{part}.{name}"] for name in module.state_dict()}
        module.load_state_dict(own, assign=True)
