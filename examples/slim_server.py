"""A small HTTP server for an exported model: onnxruntime, no PyTorch, nothing beyond Python's own server.

python examples/slim_server.py slim-model 8000 127.0.0.1
curl -d '{"texts": ["compress a file"], "k": 3}' http://127.0.0.1:8000/predict
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gandalf.errors import DataError
from gandalf.slim import SlimPredictor

MOST_BYTES, MOST_TEXTS, MOST_LABELS = 1 << 20, 256, 1_000
SECONDS = 10  # that a client has to send its request


class Handler(BaseHTTPRequestHandler):
    """GET /health, and POST /predict with `texts` and perhaps `k`."""

    predictor: SlimPredictor
    timeout = SECONDS

    def do_GET(self) -> None:
        """Say that the server answers."""
        self._send(200, {"status": "ok"}) if self.path == "/health" else self._send(
            404, _said("no such path")
        )

    def do_POST(self) -> None:
        """Predict the labels of texts."""
        if self.path != "/predict":
            self._send(404, _said("no such path"))
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > MOST_BYTES:
            self.close_connection = True
            self._send(413, _said(f"the body must have a Content-Length of at most {MOST_BYTES:,} bytes"))
            return
        try:
            texts, k = _asked(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            self._send(422, _said(str(error)))
            return
        found = self.predictor.named(texts, min(k, self.predictor.num_labels))
        labels = [[{"text": label, "score": score} for label, score in row] for row in found]
        self._send(200, {"results": [{"labels": row} for row in labels]})

    def _send(self, status: int, answer: dict[str, object]) -> None:
        body = json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        """Keep texts of users out of logs."""


def _said(sentence: str) -> dict[str, object]:
    return {"error": sentence}


def _asked(body: bytes) -> tuple[list[str], int]:
    asked = json.loads(body)
    texts, k = (asked.get("texts"), asked.get("k", 5)) if isinstance(asked, dict) else (None, 5)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError('send {"texts": ["a text", ...], "k": 5}')
    if not 1 <= len(texts) <= MOST_TEXTS:
        raise ValueError(f"send 1 to {MOST_TEXTS} texts")
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MOST_LABELS:
        raise ValueError(f"k must be a number from 1 to {MOST_LABELS:,}")
    return texts, k


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(f"usage: python {sys.argv[0]} MODEL PORT HOST", file=sys.stderr)
        sys.exit(2)
    try:
        Handler.predictor = SlimPredictor(sys.argv[1])
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    server = ThreadingHTTPServer((sys.argv[3], int(sys.argv[2])), Handler)
    print(f"serving at http://{sys.argv[3]}:{server.server_port}/", flush=True)
    server.serve_forever()
