"""Row numbers are no ids, and one of a kind is said in the singular."""

from __future__ import annotations

import pytest
from test_check import FULL, kinds, points

from gandalf.data.sentences import counted, there_are


def test_counts_agree_with_their_nouns():
    assert [counted(number, "label") for number in (0, 1, 2, 1000)] == [
        "0 labels",
        "1 label",
        "2 labels",
        "1,000 labels",
    ]
    assert [counted(number, "entry is", "entries are") for number in (1, 2)] == [
        "1 entry is",
        "2 entries are",
    ]
    assert [there_are(number, "row") for number in (1, 2)] == ["there is 1 row", "there are 2 rows"]


@pytest.mark.parametrize("start", [1, 7, 10**6])
def test_any_run_of_numbers_is_row_numbers(start):
    def run_of(size):
        return [str(number) for number in range(start, start + size)]

    train = points(FULL, ["a", "b", "c"], run_of(3))
    assert "train-test-overlap" not in kinds(train, points([[0], [1]], ["d", "e"], run_of(2)))
    swapped = points(FULL, ["a", "b", "c"], run_of(3)[::-1])
    found = kinds(swapped, points([[0], [1]], ["d", "e"], run_of(2)[::-1]))
    assert "2 of 2 test points are training points too, by id" in found["train-test-overlap"].what


def test_one_of_a_kind_is_said_in_the_singular():
    found = kinds(points(FULL, ["a", "b", "c"]), points([[0]], ["a"]))
    assert found["train-test-overlap"].what.startswith("1 of 1 test point is a training point too")
    found = kinds(points([[0], [1]], ["a", "b"]), points([[2]], ["d"]))
    assert found["unseen-test-label"].what.startswith(
        "1 label of the test points never occurs in training (1 of 1"
    )
