"""Labels added to a trained model without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gandalf.data.formats.texts import clean
from gandalf.data.new_labels import NewLabel
from gandalf.model.chosen_labels import added, checked_labels, with_record
from gandalf.model.model import Model
from gandalf.model.new_rows import Evidence, Known, NewRows, fit_new_rows, unit
from gandalf.model.row_map import Floats

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
    chosen = checked_labels(model, labels)
    maker = row_maker(model) if maker is None else maker
    rows, biases = maker(_evidence(model, chosen.labels, chosen.neighbours, maker.row_map.mean_row))
    return replace(
        model,
        head=model.head.extended(torch.from_numpy(rows), torch.from_numpy(biases)),
        label_texts=chosen.texts,
        label_ids=chosen.ids,
        config=with_record(model.config, chosen.labels, **_record(maker)),
    )


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


def _record(maker: NewRows) -> dict[str, Any]:
    return {
        "fitted_on": maker.row_map.labels,
        "map_strength": maker.row_map.strength,
        "map_explains": maker.row_map.explained,
        "row_length": maker.scale,
        "bias": maker.offset,
    }
