"""Names of labels by an index that longer lists share: the same answers as a plain list's, at less cost."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_model import small_model

from gandalf.data.matching import text_key
from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.model import added_labels, known_labels
from gandalf.model.known_labels import Names, indexed
from gandalf.predict.predictor import Predictor
from gandalf.serve.journal import Journal
from gandalf.serve.service import Served, Service

NAMES = st.lists(st.sampled_from(["a", "A", "b c", "b  c", "d", "e"]), max_size=4)


def numbers(names, name):
    """Look at every name."""
    return [number for number, each in enumerate(names) if text_key(each) == text_key(name)]


@given(NAMES, st.lists(st.tuples(st.integers(0, 9), NAMES), max_size=8))
def test_whichever_list_goes_on_from_which_all_of_them_stay_right(first, steps):
    lists, plain = [Names(first, text_key)], [list(first)]
    for origin, more in steps:
        origin %= len(lists)
        lists.append(lists[origin].longer(more))
        plain.append([*plain[origin], *more])
    for found, expected in zip(lists, plain, strict=True):
        assert found == expected
        for name in ("A", "b c", "E", "f"):
            assert found.numbers(name) == numbers(expected, name)


def test_names_are_copied_and_pickled():
    names = Names(["a", "b"], text_key).longer(["c"])
    for found in (pickle.loads(pickle.dumps(names)), copy.deepcopy(names)):
        assert found == names and found.numbers("C") == [2] and found.longer(["d"]).numbers("d") == [3]
    assert indexed(names, text_key) is names and indexed(names, str).numbers("C") == []


def test_names_are_a_sequence():
    shorter = Names(["a", "b", "c"], text_key)
    longer = shorter.longer(["d"])
    assert (shorter[-1], longer[-1], shorter[1:], longer[:-1]) == ("c", "d", ["b", "c"], ["a", "b", "c"])
    assert "d" in longer and "d" not in shorter and repr(shorter) == "['a', 'b', 'c']"
    assert shorter != longer and shorter != "abc" and longer.index("d") == 3
    with pytest.raises(IndexError):
        shorter[3]


def test_an_addition_does_not_look_at_every_label(tmp_path, monkeypatch):
    """Not after the first one, and a removal looks at them once, however many changes it makes again."""
    model = small_model(labels=[f"label {number}" for number in range(500)], ids=False)
    service = Service(Served(Predictor(model)), journal=Journal(tmp_path / "added.jsonl", model))
    met = 0

    def counted(text):
        nonlocal met
        met += 1
        return text_key(text)

    for module in (known_labels, added_labels):
        monkeypatch.setattr(module, "text_key", counted)
    for number in range(20):
        service.add([NewLabel(f"new label {number}")])
        service.add_examples([Example("label 7", ["label 7"], None, f"e{number}")])
        assert met <= (1_200 if number == 0 else 10)
        met = 0
    assert service.remove_example("e3")
    assert met <= 1_000
