"""Add labels to a trained network without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gandalf.data.formats.texts import clean
from gandalf.data.new_labels import NewLabel
from gandalf.model.added_labels import checked_labels, count_added, with_record
from gandalf.model.model import Model
from gandalf.model.new_rows import Evidence, Known, NewRows, fit_new_rows, unit
from gandalf.model.row_map import Floats

MOST = 100_000  # known labels that the map is fitted on: far more than the few hundred numbers of a vector
SEED = 0  # for drawing them from more labels


def row_maker(model: Model) -> NewRows:
    """Fit the maker of new rows on the labels that the model was trained on.

    Labels that were added before are left out: their rows were derived from the trained rows.
    """
    return fit_new_rows(known_labels(model), np.random.default_rng(SEED))


def with_labels(model: Model, labels: Sequence[NewLabel], maker: NewRows | None = None) -> Model:
    """Return a model that also has these labels and shares the encoder; the given model does not change.

    `maker` is the result of `row_maker`. Keep it if you add labels several times: fitting takes seconds.
    """
    checked = checked_labels(model, labels)
    maker = row_maker(model) if maker is None else maker
    rows, biases = maker(_evidence(model, checked.labels, checked.neighbours, maker.row_map.mean_row))
    return replace(
        model,
        head=model.head.extended(torch.from_numpy(rows), torch.from_numpy(biases)),
        label_texts=checked.texts,
        label_ids=checked.ids,
        config=with_record(model.config, checked.labels, **_record(maker)),
    )


def known_labels(model: Model) -> Known:
    """Return the labels that the model was trained on, or a sample of MOST labels."""
    trained = model.num_labels - count_added(model.config)
    chosen = np.arange(trained)
    if trained > MOST:
        chosen = np.sort(np.random.default_rng(SEED).choice(trained, MOST, replace=False))
    rows, biases = model.head.at(torch.from_numpy(chosen).to(model.device))
    vectors = model.vectors([model.label_texts[number] for number in chosen.tolist()])
    return Known(*(_array(each) for each in (vectors, rows, biases)))


def _evidence(
    model: Model, labels: Sequence[NewLabel], near: Sequence[Sequence[int]], mean_row: Floats
) -> Evidence:
    """Return the vectors of texts, examples and neighbours; `near` are the numbers of the neighbours."""
    vectors = _array(model.vectors([label.text for label in labels]))
    examples = [(at, text) for at, label in enumerate(labels) for text in map(clean, label.examples) if text]
    sums, counts = np.zeros(vectors.shape), np.zeros(len(labels))
    if examples:
        owners = [at for at, _ in examples]  # the new label of each example
        np.add.at(sums, owners, _array(model.vectors([text for _, text in examples])))
        np.add.at(counts, owners, 1.0)
    directions = np.zeros(vectors.shape)
    for at, numbers in enumerate(near):
        if numbers:
            rows, _ = model.head.at(torch.tensor(numbers, device=model.device))
            directions[at] = unit(_array(rows) - mean_row).mean(0)
    return Evidence(vectors, sums, counts, directions, np.array([float(len(numbers)) for numbers in near]))


def _array(tensor: Tensor) -> Floats:
    return np.asarray(tensor.detach().float().cpu().numpy())


def _record(maker: NewRows) -> dict[str, Any]:
    """Return the fitted numbers of the maker, for the model's config."""
    return {
        "fitted_on": maker.row_map.labels,
        "map_strength": maker.row_map.strength,
        "map_explains": maker.row_map.explained,
        "row_length": maker.scale,
        "bias": maker.offset,
    }
