"""One tiny model of every kind, all of the same labels."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array, vstack
from small_model import small_model
from small_runs import small_splits

import gandalf
from gandalf.memory.keys import keys_of
from gandalf.memory.memory import LABEL, POINT, EntryGroup, Memory, Record, Voting
from gandalf.model import Calibration, Mix, ModelWithMemory, Part, Trees
from gandalf.model.with_memory import as_queries

needs_omikuji = pytest.mark.skipif(
    find_spec("omikuji") is None,
    reason="omikuji is an optional library: extra [parabel]",
)
KINDS = [
    "network",
    pytest.param("trees", marks=needs_omikuji),
    pytest.param("mix", marks=needs_omikuji),
    "network with memory",
    pytest.param("trees with memory", marks=needs_omikuji),
    pytest.param("mix with memory", marks=needs_omikuji),
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


def with_small_memory(part: Part) -> ModelWithMemory:
    """A memory of all training points and of all labels."""
    points = small_splits().train
    texts = [*points.texts, *part.label_texts]
    values = csr_array(vstack([points.targets, eye_array(part.num_labels)], format="csr"))
    records = [Record(text, POINT) for text in points.texts] + [
        Record(text, LABEL) for text in part.label_texts
    ]
    group = EntryGroup(
        keys_of(as_queries(part.unit_vectors(texts))), values.astype(np.float32), tuple(records)
    )
    return ModelWithMemory(part, Memory((group,), Voting(0.1, 20, 0.3)), 0.4, Calibration(1.1, -0.2))


def small_part(kind: str) -> Part:
    if kind.endswith(" with memory"):
        return with_small_memory(small_part(kind.removesuffix(" with memory")))
    if kind == "network":
        return small_network()
    if kind == "trees":
        return small_trees()
    parts = (small_trees(), small_network())
    labels = small_splits().train
    about = {"system": "mix", "data": "made up"}
    return Mix(("linear", "deep"), parts, (0.7, 0.3), labels.label_texts, labels.label_ids, about)
