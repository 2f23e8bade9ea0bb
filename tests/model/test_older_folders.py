"""Model folders of release 0.1 load, and predict what they predicted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gandalf

FOLDERS = Path(__file__).parent / "folders_of_0_1"  # trained and asked at commit 5d105b1
STORED = json.loads((FOLDERS / "predictions.json").read_text("utf-8"))


@pytest.mark.parametrize("system", STORED["predictions"])
def test_a_folder_of_an_older_release_predicts_the_same(system):
    model = gandalf.load_model(FOLDERS / system)
    ids, scores = gandalf.Predictor(model).predict(STORED["texts"], 4)
    expected = STORED["predictions"][system]
    assert ids.tolist() == expected["ids"]
    np.testing.assert_allclose(scores, expected["scores"], atol=2e-5)


def test_the_stored_predictions_differ_between_texts():
    for found in STORED["predictions"].values():
        assert len({tuple(row) for row in found["ids"]}) > 1
