"""Parts of the server without HTTP: batches, names, the journal, and labels that are added."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from http_server import PATIENCE, TOKEN, token_file
from small_model import LABELS, small_model

from gandalf.data.matching import text_key
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Query
from gandalf.serve.batcher import Batcher
from gandalf.serve.journal import Journal
from gandalf.serve.limits import BusyError
from gandalf.serve.names import LabelNames
from gandalf.serve.run import read_token
from gandalf.serve.service import Served, Service

# ---- batches


async def with_batcher(batcher, body):
    with batcher.running():
        return await body


class Gate:
    """An answer that waits until it is let through, and tells what it was asked."""

    def __init__(self):
        self.open, self.began, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, questions):
        self.batches.append(list(questions))
        self.began.set()
        assert self.open.wait(PATIENCE)
        return [2 * question for question in questions]


async def began(gate):
    await asyncio.get_running_loop().run_in_executor(None, gate.began.wait, PATIENCE)


def test_what_comes_while_a_batch_is_computed_is_the_next_one():
    gate, sizes = Gate(), []

    async def body(batcher):
        first = asyncio.create_task(batcher.ask(1))
        await began(gate)
        others = [asyncio.create_task(batcher.ask(number)) for number in range(2, 7)]
        await asyncio.sleep(0)  # all of them are in the queue
        assert batcher.waiting == 5
        gate.open.set()
        return await asyncio.gather(first, *others)

    async def main():
        batcher = Batcher(gate, batch_size=4, queue_size=10, on_batch=sizes.append)
        return await with_batcher(batcher, body(batcher))

    assert asyncio.run(main()) == [2, 4, 6, 8, 10, 12]
    assert gate.batches == [[1], [2, 3, 4, 5], [6]] and sizes == [1, 4, 1]


def test_a_full_queue_refuses_at_once():
    gate = Gate()

    async def body(batcher):
        first = asyncio.create_task(batcher.ask(1))
        await began(gate)
        waiting = asyncio.create_task(batcher.ask(2, size=3))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await batcher.ask(3, size=2)
        fits = asyncio.create_task(batcher.ask(4))
        await asyncio.sleep(0)
        gate.open.set()
        return await asyncio.gather(first, waiting, fits)

    async def main():
        batcher = Batcher(gate, batch_size=4, queue_size=4)
        return await with_batcher(batcher, body(batcher))

    assert asyncio.run(main()) == [2, 4, 8]


def test_one_fault_is_not_the_others():
    def answer(questions):
        return [1 / question for question in questions]

    async def body(batcher):
        tasks = [batcher.ask(number) for number in (1, 0, 2)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    async def main():
        batcher = Batcher(answer, batch_size=10, queue_size=10)
        return await with_batcher(batcher, body(batcher))

    one, fault, half = asyncio.run(main())
    assert (one, half) == (1, 0.5) and isinstance(fault, ZeroDivisionError)


def test_nobody_computes_for_those_who_left():
    gate = Gate()

    async def body(batcher):
        first = asyncio.create_task(batcher.ask(1))
        await began(gate)
        gone, stays = asyncio.create_task(batcher.ask(2)), asyncio.create_task(batcher.ask(3))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        gate.open.set()
        return await asyncio.gather(first, stays)

    async def main():
        batcher = Batcher(gate, batch_size=10, queue_size=10)
        return await with_batcher(batcher, body(batcher))

    assert asyncio.run(main()) == [2, 6]
    assert gate.batches == [[1], [3]]


# ---- names


TEXTS = ["Disk usage", "show disk", "DISK  usage", "a disk a disk", "file", "disks", "straße", ""]


@pytest.mark.parametrize(
    "words", ["disk", "Disk U", "s", "a", "STRASSE", "usage", "nothing", "k a", "disk usage"]
)
@pytest.mark.parametrize("most", [1, 3, 100])
def test_search_by_brute_force(words, most):
    names = LabelNames(small_model(labels=TEXTS))
    keys, wanted = [text_key(text) for text in TEXTS], text_key(words)
    begins = [at for at, key in enumerate(keys) if key.startswith(wanted)]
    holds = [at for at, key in enumerate(keys) if wanted in key and at not in begins]
    assert names.search(words, most) == (begins + holds)[:most]


def test_search_for_nothing_lists_the_first():
    assert LabelNames(small_model()).search("  ", 3) == [0, 1, 2]


def test_numbers():
    names = LabelNames(small_model())
    assert names.numbers(["GZIP", 2, "L1", "disk  usage"]) == (0, 4, 2, 1)
    assert names.one("gzip") == 0 and names.describe(1) == {"label": 1, "id": "L1", "text": "bzip2 files"}
    for name in ("no such", 5, -1):
        with pytest.raises(DataError, match="there is no label"):
            names.one(name)


# ---- labels that are added


@pytest.fixture
def model():
    return small_model()


def service(model, path):
    return Service(Served(Predictor(model)), journal=Journal(path, model))


def found(made, text):
    (answer,) = made.answer([(Query((text,), 1), False)])
    return answer[0][0][0]


def test_an_added_label_answers_and_survives(model, tmp_path):
    path = tmp_path / "added.jsonl"
    made = service(model, path)
    new = [NewLabel("compress tar", id="T", examples=("compress a file",)), NewLabel("usage of bzip2")]
    assert made.add(new) == [5, 6]
    assert found(made, "compress tar") == 5 and made.served.names.one("T") == 5
    again = service(model, path)
    assert again.served.model.label_texts == [*LABELS, "compress tar", "usage of bzip2"]
    before, after = made.served.model.head, again.served.model.head
    assert (before.rows == after.rows).all() and (before.bias == after.bias).all()
    assert again.add([NewLabel("third", neighbours=["compress tar"])]) == [7]


def test_two_processes_see_each_other(model, tmp_path):
    one, other = (service(model, tmp_path / "added.jsonl") for _ in range(2))
    one.add([NewLabel("compress tar")])
    assert found(other, "compress tar") == 5
    assert other.add([NewLabel("bzip2 disk")]) == [6]
    with pytest.raises(DataError, match="is a label of the model already"):
        one.add([NewLabel("bzip2 disk")])
    assert one.served.model.num_labels == 7


def test_what_is_refused_is_not_written(model, tmp_path):
    path = tmp_path / "added.jsonl"
    made = service(model, path)
    before = path.read_bytes()
    for label in (
        NewLabel("gzip"),
        NewLabel(" "),
        NewLabel("new", neighbours=["no such"]),
        NewLabel("x", id="L0"),
    ):
        with pytest.raises(DataError):
            made.add([label])
    assert path.read_bytes() == before and made.served.model.num_labels == 5


def test_a_torn_line_is_dropped(model, tmp_path):
    path = tmp_path / "added.jsonl"
    service(model, path).add([NewLabel("compress tar")])
    with open(path, "ab") as file:
        file.write(b'{"labels": [{"text": "to')
    made = service(model, path)
    assert made.served.model.num_labels == 6
    made.add([NewLabel("bzip2 disk")])
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()][2]["labels"][0][
        "text"
    ] == "bzip2 disk"
    assert service(model, path).served.model.num_labels == 7


def test_a_torn_beginning_is_begun_again(model, tmp_path):
    path = tmp_path / "added.jsonl"
    path.write_bytes(b'{"format": "gandalf ad')
    assert service(model, path).add([NewLabel("compress tar")]) == [5]
    assert service(model, path).served.model.num_labels == 6


def test_the_journal_of_another_model_is_refused(model, tmp_path):
    path = tmp_path / "added.jsonl"
    service(model, path)
    with pytest.raises(DataError, match="another model"):
        Journal(path, small_model(labels=[*LABELS[:4], "other"]))
    path.write_text("something else\n")
    with pytest.raises(DataError, match="no change of a model"):
        Journal(path, model)


def test_without_a_journal_nothing_is_added(model):
    with pytest.raises(DataError, match="nothing can be added"):
        Service(Served(Predictor(model))).add([NewLabel("x")])


@pytest.mark.parametrize(("mode", "said"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_token_that_everybody_can_read_is_warned_of(tmp_path, mode, said):
    told = []
    path = token_file(tmp_path)
    path.chmod(mode)
    assert read_token(path, told.append) == TOKEN
    assert [f"chmod 600 {path}" in each for each in told] == [True] * said


def test_a_baseline_answers_for_itself(model):
    other = small_model(labels=LABELS[::-1], ids=False)
    made = Service(Served(Predictor(model)), Served(Predictor(other)))
    query = Query(("disk usage",), 2)
    ours, theirs, again = made.answer([(query, False), (query, True), (query, False)])
    assert ours == again and ours[0][0][0] == theirs[0][0][0] == 2
    assert theirs[0][0][1] == pytest.approx(float(Predictor(other).predict("disk usage", 1)[1][0]))
    with pytest.raises(DataError, match="no baseline"):
        Service(Served(Predictor(model))).answer([(query, True)])
