"""Labels as lists of names: their matrix by nested loops, and their texts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gandalf.data.in_memory import indicators, known_names, texts_of_labels

names = st.one_of(st.integers(0, 5), st.sampled_from("abc"))


@given(st.lists(st.lists(names, max_size=4), min_size=1, max_size=6))
def test_indicators_equal_nested_loops(rows):
    found = indicators(rows)
    assert set(found.names) == {name for row in rows for name in row}
    assert found.classes.tolist() == found.names
    for at, row in enumerate(rows):
        for column, name in enumerate(found.names):
            assert found.targets.toarray()[at, column] == (name in row)
    fewer = indicators(rows, [3, "a"], drop_others=True).targets.toarray()
    assert fewer.tolist() == [[float(name in row) for name in (3, "a")] for row in rows]


def test_texts_of_labels():
    assert texts_of_labels(["a", 3], None) == ["a", "3"]
    assert texts_of_labels(["b", "a"], {"a": "one", "b": "two"}) == ["two", "one"]
    assert known_names({np.str_("b"): "x", np.int64(2): "y"}) == ["b", 2]
    assert known_names(["x", "y"]) == [0, 1] and known_names(None) is None
