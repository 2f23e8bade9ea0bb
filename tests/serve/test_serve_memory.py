"""Memory of a server that labels are added to: the added rows, and no more."""

from __future__ import annotations

import errno
import gc
import tracemalloc
from collections import Counter

import pytest
import torch
from small_model import small_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model import Model, load_model, save_model
from gandalf.model.with_memory import without_memory
from gandalf.nets.growing_rows import LEAST, GrowingRows, as_growing, with_more_rows
from gandalf.nets.heads import Table
from gandalf.nets.int8_table import Int8Table
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Query
from gandalf.serve import journal as journals
from gandalf.serve.journal import Journal
from gandalf.serve.limits import FullError
from gandalf.serve.service import Served, Service

pytestmark = pytest.mark.slow

COUNTED = (Model, nn.Module, Predictor, Served, GrowingRows)


@pytest.fixture
def no_collector():
    """Nothing is freed but what nobody refers to: a cycle would stay."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> tuple[Counter[str], int]:
    """How many objects of each kind there are, and the bytes that all tensors hold."""
    kinds, places = Counter[str](), dict[int, int]()
    for each in gc.get_objects():
        kind = type(each)  # not isinstance: some objects answer for another class, with a warning
        if kind in (Tensor, nn.Parameter) and each.device.type == "cpu":
            storage = each.untyped_storage()
            places[storage.data_ptr()] = storage.nbytes()
        if issubclass(kind, COUNTED):
            kinds[kind.__name__] += 1
    return kinds, sum(places.values())


@pytest.mark.parametrize("rows", ["float32", "int8"])
def test_additions_cost_the_added_rows(man, tmp_path, no_collector, rows):
    model = small_model(labels=list(man.train.label_texts), ids=False)
    if rows == "int8":
        model.head = Int8Table.of(model.head)
    labels, path = model.num_labels, tmp_path / "added.jsonl"
    made = Service(Served(Predictor(model)), journal=Journal(path, model))
    del model
    before: tuple[Counter[str], int] | None = None
    for number in range(200):
        made.add([NewLabel(f"label {number}", examples=("compress a file",))])
        made.answer([(Query(("compress",), 3), False)])
        before = before or alive()
    assert made.served.model.num_labels == labels + 200
    assert alive() == before  # the rows were added to room that was there


def test_the_first_addition_holds_no_second_head(man, tmp_path, no_collector):
    growing_before = alive()[0]["GrowingRows"]  # other tests of this process may hold some
    model = small_model(labels=list(man.train.label_texts), ids=False)
    made = Service(Served(Predictor(model)), journal=Journal(tmp_path / "added.jsonl", model))
    del model
    made.add([NewLabel("a new label")])
    places = {
        each.untyped_storage().data_ptr() for each in (made._base.head.rows, made.served.model.head.rows)
    }
    assert len(places) == 1 and alive()[0]["GrowingRows"] == growing_before + 2


def test_a_removed_example_leaves_no_second_head(tmp_path):
    """All changes are made once more, from the model as it was."""
    model = small_model()
    made = Service(Served(Predictor(model)), journal=Journal(tmp_path / "added.jsonl", model))
    made.add([NewLabel("compress tar")])
    made.add_examples([Example("compress tar", [5], id="e")])
    made.add([NewLabel("more of tar")])
    before = made._latest.model.head.rows
    assert made.remove_example("e")
    after = made._latest.head.rows
    assert after.data_ptr() == before.data_ptr() and torch.equal(before, after)


@pytest.mark.parametrize("memory", [False, True], ids=["no memory", "with memory"])
@pytest.mark.parametrize("fault", ["an example that is refused", "a full disk"])
def test_an_addition_that_failed_leaves_no_second_head(tmp_path, monkeypatch, fault, memory):
    """It had added its rows behind the others, where the next addition goes."""
    model = small_model()
    made = Service(Served(Predictor(model)), journal=Journal(tmp_path / "added.jsonl", model))
    made.add([NewLabel("compress tar")])
    if memory:
        made.add_examples([Example("compress tar", [5], id="e")])
    before = without_memory(made._latest)
    example, refused = Example("compress", ["no such label"]), pytest.raises((DataError, FullError))
    if fault == "a full disk":
        example = Example("compress", [5])
        monkeypatch.setattr(journals, "_write", full_disk)
    with refused:
        made.add_examples([example], [NewLabel("lost label")])
    monkeypatch.undo()
    made.add([NewLabel("kept label")])
    after = without_memory(made._latest)
    assert after.head.rows.data_ptr() == before.head.rows.data_ptr()
    assert (
        after.label_texts[5:] == ["compress tar", "kept label"] and before.label_texts[-1] == "compress tar"
    )
    assert after.label_texts.numbers("lost label") == [] and after.label_texts.numbers("kept label") == [6]
    assert after.label_texts._shared is before.label_texts._shared


def full_disk(file, line):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("addition", ["label", "label with an example", "example"])
def test_an_addition_takes_no_memory_for_each_label(tmp_path, addition):
    """Not even the bytes of a list of all names; the first additions make what later ones share."""
    model = small_model(labels=[f"label {number}" for number in range(20_000)], ids=False)
    made = Service(Served(Predictor(model)), journal=Journal(tmp_path / "added.jsonl", model))

    def add(number):
        if addition == "example":
            made.add_examples([Example("compress tar", [number], id=f"e{number}")])
        else:
            examples = ("compress tar",) if "with" in addition else ()
            made.add([NewLabel(f"new {number}", examples=examples)])

    made.add_examples([Example("compress tar", [5], id="first")])
    add(0)
    tracemalloc.start()
    add(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * model.num_labels


class LargestTensor(TorchDispatchMode):
    """Notes the bytes of the largest tensor that is made; views are not counted."""

    def __init__(self, known):
        super().__init__()
        self.known, self.nbytes = known.untyped_storage().data_ptr(), 0

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        found = call(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and found.untyped_storage().data_ptr() != self.known:
            self.nbytes = max(self.nbytes, found.untyped_storage().nbytes())
        return found


def test_labels_alike_are_found_without_a_copy_of_the_rows(man):
    """Sixteen threads of a server ask for them, and a thread's memory keeps the room of its largest copy."""
    model = small_model(labels=list(man.train.label_texts), ids=False)
    with LargestTensor(model.head.rows) as made:
        found = model.similar_labels(3, 5)
    assert len(found) == 5 and made.nbytes <= model.num_labels * 4 < model.head.rows.nbytes / 4


def test_labels_alike_are_those_of_a_plain_loop():
    model = small_model()
    with torch.no_grad():
        model.head.rows[2] = 0.0
    rows = torch.nn.functional.normalize(model.head.rows.detach(), dim=1)
    expected = sorted((-float(row @ rows[0]), label) for label, row in enumerate(rows) if label != 0)
    found = model.similar_labels(0, 10)
    assert [label for label, _ in found] == [label for _, label in expected]
    assert [cosine for _, cosine in found] == pytest.approx([-less for less, _ in expected], abs=1e-6)


# ---- room


@pytest.mark.parametrize("kind", [Table, Int8Table])
def test_a_table_with_room_is_the_same(kind):
    torch.manual_seed(0)
    plain = Table(10, 4)
    plain = plain if kind is Table else Int8Table.of(plain)
    rows, biases = torch.randn(3, 4), torch.randn(3)
    roomy = plain.with_room()
    for one, other in ((plain, roomy), (plain.extended(rows, biases), roomy.extended(rows, biases))):
        assert one.num_labels == other.num_labels
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name])
    assert roomy.num_labels == 10 and roomy.with_room() is roomy


def test_two_longer_tables_of_one_do_not_mix():
    torch.manual_seed(0)
    roomy = Table(10, 4).with_room()
    start = roomy.rows.detach().clone()
    one = roomy.extended(torch.ones(2, 4), torch.ones(2))
    other = roomy.extended(torch.full((3, 4), 2.0), torch.ones(3))
    further = one.extended(torch.full((1, 4), 3.0), torch.ones(1))
    assert torch.equal(one.rows, torch.cat([start, torch.ones(2, 4)]))
    assert torch.equal(other.rows, torch.cat([start, torch.full((3, 4), 2.0)]))
    assert torch.equal(further.rows[-1], torch.full((4,), 3.0)) and torch.equal(further.rows[:12], one.rows)
    assert one.rows.data_ptr() == roomy.rows.data_ptr() != other.rows.data_ptr()


def test_a_room_that_is_full_is_left_for_a_larger_one():
    first = {"rows": torch.zeros(2, 3)}
    tensors, growing = as_growing(first)
    longer, larger = with_more_rows(tensors, {"rows": torch.ones(LEAST + 1, 3)}, growing)
    assert larger["rows"] is not growing["rows"] and len(longer["rows"]) == LEAST + 3
    again, same = with_more_rows(longer, {"rows": torch.ones(5, 3)}, larger)
    assert same["rows"] is larger["rows"] and again["rows"].data_ptr() == longer["rows"].data_ptr()


def test_a_model_with_room_is_saved_without_it(tmp_path):
    model = small_model().with_label_maker().add_labels(["compress tar"], ids=["T"])
    save_model(model, tmp_path / "out")
    found = load_model(tmp_path / "out")
    assert torch.equal(found.head.rows, model.head.rows) and found.num_labels == 6
    assert (tmp_path / "out" / "model.safetensors").stat().st_size < 20_000 + 4 * 12 * found.tokens.size
