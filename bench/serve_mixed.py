"""A served model under mixed load with bad requests in between: statuses, latencies, the server's memory.

    python -m bench.serve_mixed docs-model --data LF-DocsSeeAlsoTitles-79K --seconds 600

Clients ask for predictions, explanations and labels, add labels and examples, remove examples, and send what
no server should be sent. A status that a request should not have is a fault, and is kept with what was sent.
So is a prediction that fails while `/ready` says that it would not.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.command import argument_parser
from bench.machine import held_mib, keep
from bench.serve import server
from gandalf.model import load_model

TOKEN = "0123456789abcdef"
JSON = {"content-type": "application/json"}
ALLOWED = JSON | {"authorization": f"Bearer {TOKEN}"}
BROKEN_OFF = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90\r\n\r\n{"
BUSY = 503
CLIENTS, PAUSE = 8, 0.05  # seconds between two requests of a client
EVERY = 10.0  # seconds between two looks at the memory


@dataclass(frozen=True)
class Asked:
    """A request, and what may come of it besides "busy"."""

    method: str
    path: str
    body: bytes
    statuses: tuple[int, ...]
    headers: dict[str, str] = field(default_factory=lambda: JSON)


def good(rng: random.Random, texts: Sequence[str], number: int, remove: bool = False) -> Asked:
    """Return a request that is in order; or one that removes the example that the last one added."""
    one = {"text": rng.choice(texts), "k": rng.randint(1, 100)}
    kinds = (
        ("POST", "/predict", one, 200),
        ("POST", "/predict", one, 200),
        ("POST", "/predict", one | {"threshold": rng.random()}, 200),
        ("POST", "/predict", {"text": rng.choices(texts, k=rng.randint(1, 64))}, 200),
        ("POST", "/predict", one | {"allow": [rng.choice(texts), 3], "deny": [7]}, 200),
        ("POST", "/explain", {"text": rng.choice(texts), "label": rng.randrange(len(texts))}, 200),
        ("GET", f"/labels?search={rng.choice(texts)[:1].encode().hex()}", None, 200),
        ("GET", f"/labels/{rng.randrange(len(texts))}/neighbours", None, 200),
        ("GET", rng.choice(["/metrics", "/health", "/", "/about", "/openapi.json"]), None, 200),
        ("POST", "/labels", {"labels": [{"text": f"mixed load {number}"}]}, 201),
        ("POST", "/examples", {"examples": [_example(rng, texts, number)]}, 201),
        ("DELETE", f"/examples/e{number - 1}", None, 200),
    )
    weights = [20, 20, 10, 5, 5, 3, 5, 3, 3, 1, 2, 0]
    method, path, body, status = rng.choices(kinds, [0] * 11 + [1] if remove else weights)[0]
    headers = ALLOWED if status == 201 or method == "DELETE" else JSON
    return Asked(method, path, b"" if body is None else json.dumps(body).encode(), (status,), headers)


def _example(rng: random.Random, texts: Sequence[str], number: int) -> dict[str, Any]:
    return {"text": rng.choice(texts), "labels": [rng.randrange(len(texts))], "id": f"e{number}"}


def bad(rng: random.Random, texts: Sequence[str]) -> Asked:
    """Return a request that no server should answer with success."""
    one = json.dumps({"text": rng.choice(texts)}).encode()
    return rng.choice(
        [
            Asked("POST", "/predict", one[: rng.randrange(len(one))], (422,)),
            Asked("POST", "/predict", rng.randbytes(rng.randint(1, 2_000)), (400, 422)),
            Asked("POST", "/predict", b"[" * rng.randint(1, 100_000), (400, 422)),
            Asked("POST", "/predict", b'{"text": "' + b"x" * (1 << 21) + b'"}', (413,)),
            Asked("POST", "/predict", json.dumps({"text": "x" * 2_001}).encode(), (422,)),
            Asked("POST", "/predict", b'{"text": "\\ud800"}', (422,)),
            Asked("POST", "/predict", b'{"text": "x", "k": 1e999}', (422,)),
            Asked("POST", "/predict", b'{"text": "x", "allow": ["no such label"]}', (404,)),
            Asked("POST", "/predict", one, (415,), {"content-type": "text/plain"}),
            Asked("POST", "/explain", b'{"text": "x", "label": 1e30}', (404, 422)),
            Asked("POST", "/labels", one, (401,)),
            Asked("POST", "/examples", b'{"examples": [{"text": "x", "labels": []}]}', (422,), ALLOWED),
            Asked("DELETE", "/examples/no-such", b"", (404,), ALLOWED),
            Asked("GET", "/health", b"", (421,), {"host": "evil.example"}),
            Asked("GET", "/labels?limit=0", b"", (422,)),
            Asked("GET", "/labels/-1/neighbours", b"", (422,)),
            Asked("DELETE", "/labels", b"", (405,)),
            Asked("GET", "/" + "no" * rng.randint(1, 500), b"", (404,)),
        ]
    )


class Mixed:
    """Clients, and what they were told."""

    def __init__(self, address: tuple[str, int], texts: Sequence[str], seconds: float) -> None:
        self._address, self._texts, self._end = address, texts, time.monotonic() + seconds
        self.statuses: Counter[int] = Counter()
        self.hung_up_on, self.faults = 0, list[dict[str, Any]]()
        self.seconds: dict[str, list[float]] = {}  # of requests that did what they asked for
        self._counting = threading.Lock()

    def client(self, number: int) -> None:
        """Ask until the end: four requests in order to one that is not, or breaks off."""
        rng, turn, removes = random.Random(number), 0, False
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        while time.monotonic() < self._end:
            time.sleep(rng.expovariate(1 / PAUSE))
            turn += 1
            if not removes and turn % 25 == 0:
                self._break_off(rng)
                continue
            wrong = not removes and turn % 5 == 0
            unique = 1_000_000 * number + turn
            asked = bad(rng, self._texts) if wrong else good(rng, self._texts, unique, removes)
            status = self._ask(connection, asked, wrong)
            removes = asked.path == "/examples" and status == 201 and rng.random() < 0.5
        connection.close()

    def readiness(self) -> None:
        """Ask every second whether the server is ready, and then for a prediction."""
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        predict = Asked("POST", "/predict", json.dumps({"text": self._texts[0]}).encode(), (200,))
        while time.monotonic() < self._end:
            time.sleep(1.0)
            if self._ask(connection, Asked("GET", "/ready", b"", (200,))) == 200:
                self._ask(connection, predict)
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, asked: Asked, wrong: bool = False) -> int:
        start = time.monotonic()
        status = _status(connection, asked)
        with self._counting:
            if status in asked.statuses and not wrong:
                kind = f"{asked.method} /{asked.path.split('?')[0].split('/')[1]}"
                self.seconds.setdefault(kind, []).append(time.monotonic() - start)
        self._note(asked, status)
        return status

    def _break_off(self, rng: random.Random) -> None:
        """Leave in the midst of a request."""
        with socket.create_connection(self._address) as left:
            left.sendall(BROKEN_OFF[: rng.randint(1, 60)])
        with self._counting:
            self.hung_up_on += 1

    def _note(self, asked: Asked, status: int) -> None:
        with self._counting:
            self.statuses[status] += 1
            if status not in (*asked.statuses, BUSY):
                sent = repr(asked.body[:200])
                self.faults.append(
                    {"method": asked.method, "path": asked.path, "sent": sent, "status": status}
                )


def _status(connection: http.client.HTTPConnection, asked: Asked) -> int:
    """Return the status of the answer; ask again on a closed connection, then return 0."""
    for _ in range(2):
        try:
            connection.request(asked.method, asked.path, asked.body or None, asked.headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (http.client.HTTPException, OSError):
            connection.close()
    return 0


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the number of requests and their middle, 99th percentile and longest milliseconds."""
    middle, last, most = 1_000 * np.percentile(seconds, [50, 99, 100])
    return {"requests": len(seconds), "p50": round(middle, 1), "p99": round(last, 1), "most": round(most, 1)}


def main() -> None:
    """Ask, look at the memory, and keep what came of it."""
    parser = argument_parser(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", help="for explanations")
    parser.add_argument("--index", default="codes")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--name", default="serve_mixed")
    given = parser.parse_args()
    texts = load_model(given.model).label_texts
    with tempfile.TemporaryDirectory() as name:
        token, added = Path(name) / "token", Path(name) / "added.jsonl"
        token.touch(mode=0o600)
        token.write_text(TOKEN, encoding="ascii")
        more = ["--data", given.data] if given.data else []
        words = ["--index", given.index, "--token-file", token, "--added", added, *more]
        with server(given.model, *map(str, words)) as (host, port, process):
            mixed, memory = Mixed((host, port), texts, given.seconds), list[float]()
            clients = [threading.Thread(target=mixed.client, args=[number]) for number in range(CLIENTS)]
            clients.append(threading.Thread(target=mixed.readiness))
            for each in clients:
                each.start()
            while any(each.is_alive() for each in clients):
                memory.append(round(held_mib(process=process), 1))
                time.sleep(EVERY)
    found = {
        "labels": len(texts),
        "index": given.index,
        "seconds": given.seconds,
        "statuses": {str(status): count for status, count in sorted(mixed.statuses.items())},
        "broken_off": mixed.hung_up_on,
        "faults": mixed.faults,
        "milliseconds": {kind: _percentiles(found) for kind, found in sorted(mixed.seconds.items())},
        "memory_mib": memory,
    }
    print(json.dumps(found, indent=1))
    print(keep(given.name, found))


if __name__ == "__main__":
    main()
