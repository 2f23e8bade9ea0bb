"""The load generator and the made-up model that is served, small."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from bench.http_load import Load, bodies, closed_loop, open_loop
from bench.made_up import made_up_model, queries


async def answering(work, most=1_000_000):
    """A server that answers every fourth request 503 and hangs up after some, and what came of the work."""
    asked, hung_up = [], []

    async def client(reader, writer):
        hung_up.append(asyncio.current_task())
        for _ in range(most):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            asked.append(json.loads(await reader.readexactly(length)))
            status = b"503 Busy" if len(asked) % 4 == 0 else b"200 OK"
            writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(client, "127.0.0.1", 0) as server:
        found = await asyncio.to_thread(work, "127.0.0.1", server.sockets[0].getsockname()[1])
        await asyncio.gather(*hung_up)
    return found, asked


def test_an_open_loop_asks_as_often_as_it_is_told():
    texts = bodies(["one", "two"], 3)
    found, asked = asyncio.run(answering(lambda host, port: open_loop(host, port, texts, 200.0, 0.2)))
    assert len(asked) == len(found.latencies) == 40
    assert Counter(each["text"] for each in asked) == {"one": 20, "two": 20} and asked[0]["k"] == 3
    assert found.statuses == {200: 30, 503: 10} and found.seconds > found.processor > 0
    assert len(found.refused) == 10 and {*found.refused} < {*found.latencies}
    assert len(found.late) == 40 and max(found.late) < max(found.latencies)


def test_a_closed_loop_has_so_many_clients():
    texts = bodies(["one"])
    found, asked = asyncio.run(answering(lambda host, port: closed_loop(host, port, texts, 3, 0.1)))
    assert len(asked) == len(found.latencies) >= 3


def test_who_is_hung_up_on_asks_again():
    texts = bodies(["one"])
    found, asked = asyncio.run(answering(lambda *where: open_loop(*where, texts, 200.0, 0.2), most=3))
    assert len(asked) == len(found.latencies) == 40
    found, asked = asyncio.run(answering(lambda *where: closed_loop(*where, texts, 2, 0.1), most=3))
    assert len(asked) == len(found.latencies) > 12


def test_figures():
    load = Load(2.0, [0.001 * number for number in range(1, 101)], Counter({200: 99, 503: 1}))
    found = load.as_dict()
    assert found["requests_per_second"] == 50.0 and found["statuses"] == {"200": 99, "503": 1}
    assert (found["p50_ms"], found["p99_ms"]) == pytest.approx((50.5, 99.01))


def test_a_made_up_model_answers_to_its_labels():
    from gandalf.predict.predictor import Predictor

    model = made_up_model(300)
    texts = queries(model, 50)
    ids, _ = Predictor(model).predict(texts, 10)
    shared = [
        max(len({*text.split()} & {*model.label_texts[label].split()}) for label in row)
        for text, row in zip(texts, ids.tolist(), strict=True)
    ]
    assert sum(shared) / len(shared) >= 3  # of four words
