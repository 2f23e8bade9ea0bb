"""A classifier that learns five topics in a second, and texts of their words."""

from __future__ import annotations

import numpy as np

from gandalf.estimator import GandalfClassifier

TOPICS = {
    "compress": "gzip bzip2 archive smaller zip pack",
    "disk": "usage space mount partition volume drive",
    "network": "socket packet route interface address port",
    "user": "login password account group shell home",
    "print": "printer queue paper job ink spool",
}
LIGHT = ("steps=60", "batch=32", "encoder.dim=24", "encoder.dropout=0.1")


def corpus(points, seed):
    """Texts of words of one or two topics, and which those are."""
    rng = np.random.default_rng(seed)
    names = sorted(TOPICS)
    labels = [
        sorted(rng.choice(names, size=rng.integers(1, 3), replace=False).tolist()) for _ in range(points)
    ]
    texts = [" ".join(rng.choice(TOPICS[name].split(), size=3)) for row in labels for name in [row[0]]]
    texts = [
        f"{text} {' '.join(rng.choice(TOPICS[row[-1]].split(), size=3))}"
        for text, row in zip(texts, labels, strict=True)
    ]
    return texts, labels


TEXTS, LABELS = corpus(240, 0)
NEW_TEXTS, NEW_LABELS = corpus(60, 1)


def classifier(**params):
    return GandalfClassifier(**{"targets": "self", "settings": LIGHT, "device": "cpu"} | params)


def truth(labels):
    return np.array([[name in row for name in sorted(TOPICS)] for row in labels])
