"""One tiny model of every kind, all of the same labels."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest
from small_model import small_model
from small_runs import small_splits

import gandalf
from gandalf.model import Calibration, Mix, Part, Trees

needs_omikuji = pytest.mark.skipif(
    find_spec("omikuji") is None,
    reason="omikuji is an optional library: extra [parabel]",
)
KINDS = [
    "network",
    pytest.param("trees", marks=needs_omikuji),
    pytest.param("mix", marks=needs_omikuji),
]


def small_network() -> Part:
    splits = small_splits()
    texts = [*splits.train.texts, *splits.test.texts]
    found = small_model(labels=list(splits.train.label_texts), texts=texts, ids=False)
    return replace(found, label_ids=splits.train.label_ids)


def small_trees() -> Trees:
    found = gandalf.train(small_splits(), "parabel", targets="ratio").model
    assert isinstance(found, Trees)
    return replace(found, calibration=Calibration(0.9, -0.8))


def small_part(kind: str) -> Part:
    if kind == "network":
        return small_network()
    if kind == "trees":
        return small_trees()
    parts = (small_trees(), small_network())
    labels = small_splits().train
    about = {"system": "mix", "data": "made up"}
    return Mix(("linear", "deep"), parts, (0.7, 0.3), labels.label_texts, labels.label_ids, about)
