"""Labels added to a trained model without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gandalf.data.formats.texts import clean
from gandalf.data.matching import text_key
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model.model import Model
from gandalf.model.new_rows import Evidence, Known, NewRows, fit_new_rows, unit
from gandalf.model.row_map import Floats

ADDED = "added_labels"  # in a model's config: a record for each time that labels were added
MOST = 100_000  # known labels that a map is fitted on: far more than the few hundred numbers of a vector
SEED = 0  # which of them, where there are more


def row_maker(model: Model) -> NewRows:
    """What makes rows of new labels, fitted on those that the model was trained on: the same for all of them.

    Labels that were added before are not learned from: what their rows say is what was read off the others.
    """
    return fit_new_rows(known_labels(model), np.random.default_rng(SEED))


def with_labels(model: Model, labels: Sequence[NewLabel], maker: NewRows | None = None) -> Model:
    """A model that has the labels too; it shares the encoder with the one given, which stays as it is.

    The `maker` is `row_maker`'s, which takes a while: whoever adds labels again and again keeps it.
    """
    if not labels:
        raise DataError("there is no label to add", remedy="give at least one text")
    labels = [replace(label, text=clean(label.text)) for label in labels]
    _refuse_known(model, labels)
    ids = _ids(model, labels)
    near = _neighbours(model, labels)
    maker = row_maker(model) if maker is None else maker
    rows, biases = maker(_evidence(model, labels, near, maker.row_map.mean_row))
    return replace(
        model,
        head=model.head.extended(torch.from_numpy(rows), torch.from_numpy(biases)),
        label_texts=[*model.label_texts, *(label.text for label in labels)],
        label_ids=ids,
        config={**model.config, ADDED: [*model.config.get(ADDED, []), _record(maker, labels)]},
    )


def added(config: dict[str, Any]) -> int:
    """How many of a model's labels, the last ones, were added without training."""
    return sum(int(record["labels"]) for record in config.get(ADDED, []))


# ---- what is asked for


def _refuse_known(model: Model, labels: Sequence[NewLabel]) -> None:
    known = {text_key(text) for text in model.label_texts}
    met: set[str] = set()
    for label in labels:
        key = text_key(label.text)
        if not key:
            raise label.refused("the label has no text, so nothing is known of it", "write the text")
        if key in known:
            raise label.refused(f"{label.text!r} is a label of the model already", "leave it out")
        if key in met:
            raise label.refused(f"{label.text!r} is there twice", "leave one out")
        met.add(key)


def _ids(model: Model, labels: Sequence[NewLabel]) -> list[str] | None:
    """All ids; a new label without one goes by its text."""
    if model.label_ids is None:
        for label in labels:
            if label.id is not None:
                what = f"{label.text!r} has the id {label.id!r}, and the model's labels have none"
                raise label.refused(what, "leave ids out")
        return None
    met = set(model.label_ids)
    found = list(model.label_ids)
    for label in labels:
        id = label.text if label.id is None else label.id
        if id in met:
            raise label.refused(f"the id {id!r} of {label.text!r} is taken", "give another id")
        met.add(id)
        found.append(id)
    return found


def _neighbours(model: Model, labels: Sequence[NewLabel]) -> list[list[int]]:
    """Numbers of the neighbours of each label; a text that several known labels share names them all."""
    if not any(label.neighbours for label in labels):
        return [[] for _ in labels]
    ids: dict[str, list[int]] = {}
    for number, id in enumerate(model.label_ids or []):
        ids.setdefault(id, []).append(number)
    texts: dict[str, list[int]] = {}
    for number, text in enumerate(model.label_texts):
        texts.setdefault(text_key(text), []).append(number)

    def numbers(label: NewLabel, name: str | int) -> list[int]:
        if isinstance(name, str):
            found = ids.get(name) or texts.get(text_key(name), [])
        else:
            found = [name] if 0 <= name < model.num_labels else []
        if not found:
            what = f"the neighbour {name!r} of {label.text!r} is no label of the model"
            raise label.refused(what, "name a known label by its id or its whole text" + _hint(model, name))
        return found

    return [
        list(dict.fromkeys(number for name in label.neighbours for number in numbers(label, name)))
        for label in labels
    ]


def _hint(model: Model, name: str | int) -> str:
    """A known label whose text begins with what was written, if there is one."""
    key = text_key(str(name))
    found = next((text for text in model.label_texts if key and text_key(text).startswith(key)), None)
    return "" if found is None else f", such as {found!r}"


# ---- what is known


def known_labels(model: Model) -> Known:
    """The labels that the model was trained on, or many of them where there are very many."""
    trained = model.num_labels - added(model.config)
    chosen = np.arange(trained)
    if trained > MOST:
        chosen = np.sort(np.random.default_rng(SEED).choice(trained, MOST, replace=False))
    rows, biases = model.head.at(torch.from_numpy(chosen).to(model.device))
    vectors = model.vectors([model.label_texts[number] for number in chosen.tolist()])
    return Known(*(_array(each) for each in (vectors, rows, biases)))


def _evidence(
    model: Model, labels: Sequence[NewLabel], near: Sequence[Sequence[int]], mean_row: Floats
) -> Evidence:
    vectors = _array(model.vectors([label.text for label in labels]))
    examples = [(at, text) for at, label in enumerate(labels) for text in map(clean, label.examples) if text]
    sums, counts = np.zeros(vectors.shape), np.zeros(len(labels))
    if examples:
        places = [at for at, _ in examples]
        np.add.at(sums, places, _array(model.vectors([text for _, text in examples])))
        np.add.at(counts, places, 1.0)
    directions = np.zeros(vectors.shape)
    for at, numbers in enumerate(near):
        if numbers:
            rows, _ = model.head.at(torch.tensor(numbers, device=model.device))
            directions[at] = unit(_array(rows) - mean_row).mean(0)
    return Evidence(vectors, sums, counts, directions, np.array([float(len(numbers)) for numbers in near]))


def _array(tensor: Tensor) -> Floats:
    return np.asarray(tensor.detach().float().cpu().numpy())


# ---- what comes of it


def _record(maker: NewRows, labels: Sequence[NewLabel]) -> dict[str, Any]:
    return {
        "labels": len(labels),
        "with_examples": sum(bool(label.examples) for label in labels),
        "with_neighbours": sum(bool(label.neighbours) for label in labels),
        "fitted_on": maker.row_map.labels,
        "map_strength": maker.row_map.strength,
        "map_explains": maker.row_map.explained,
        "row_length": maker.scale,
        "bias": maker.offset,
    }
