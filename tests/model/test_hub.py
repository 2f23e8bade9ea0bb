"""Models on a hub: a folder here, and a stub of a hub on loopback that keeps what it is given."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from small_model import small_model

from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.model.hub import from_pretrained, push_to_hub, save_pretrained

pytestmark = pytest.mark.slow

SHA = "0123456789abcdef0123456789abcdef01234567"


def oid(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # as git has it


class Hub(BaseHTTPRequestHandler):
    """Keeps the files of one repository in memory; answers what a client asks to upload and to download."""

    files: dict[str, bytes]

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/api/repos/create":
            self._json({"url": f"http://{self.headers['host']}/me/model", "id": "me/model"})
        elif "/preupload/" in self.path:
            asked = json.loads(body)["files"]
            self._json(
                {
                    "files": [
                        {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked
                    ]
                }
            )
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._json(
                {"commitUrl": f"http://{self.headers['host']}/me/model/commit/{SHA}", "commitOid": SHA}
            )
        else:
            self._json({}, 200 if "validate" in self.path else 404)

    def do_GET(self):
        if self.path.startswith("/api/models/me/model/tree/"):
            files = self.files.items()
            self._json([{"type": "file", "path": n, "size": len(c), "oid": oid(c)} for n, c in files])
            return
        if self.path.startswith("/api/models/me/model"):
            listed = [{"rfilename": name} for name in self.files]
            self._json({"id": "me/model", "sha": SHA, "siblings": listed, "private": False, "tags": []})
            return
        content = self.files.get(self.path.partition(f"/resolve/{SHA}/")[2])
        if content is None:
            self._json({"error": "not found"}, 404)
            return
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.send_header("etag", f'"{oid(content)}"')
        self.send_header("x-repo-commit", SHA)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def _json(self, value, status=200):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *given):
        pass


@pytest.fixture
def hub():
    handler = type("Kept", (Hub,), {"files": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", handler.files
    server.shutdown()
    server.server_close()


def through(address, home, code, *words):
    """Run code in a process of its own: the client reads its address when it is imported."""
    settings = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": "hf_stub",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
    }
    code = f"import os, sys; os.environ |= {settings!r}\nfrom gandalf.model.hub import *\n{code}"
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_what_is_pushed_is_what_is_pulled(hub, tmp_path, small_folder):
    address, files = hub
    pushed = through(address, tmp_path / "one", "print(push_to_hub(sys.argv[1], 'me/model'))", small_folder)
    assert pushed.returncode == 0, pushed.stderr
    assert pushed.stdout.strip() == f"{address}/me/model"
    expected = {
        p.relative_to(small_folder).as_posix(): p.read_bytes() for p in small_folder.rglob("*") if p.is_file()
    }
    assert {name: files[name] for name in expected} == expected
    code = "m = from_pretrained('me/model')\nsave_pretrained(m, sys.argv[1])"
    pulled = through(address, tmp_path / "two", code, tmp_path / "again")
    assert pulled.returncode == 0, pulled.stderr
    ours, theirs = load_model(small_folder), load_model(tmp_path / "again")
    assert theirs.label_texts == ours.label_texts and (theirs.head.rows == ours.head.rows).all()
    missing = through(address, tmp_path / "three", "from_pretrained('me/other')")
    assert "DataError: there is no folder 'me/other', and the hub does not give" in missing.stderr


def test_a_folder_is_a_name_too(tmp_path):
    model = small_model()
    save_pretrained(model, tmp_path / "model")
    save_pretrained(model, tmp_path / "model")  # takes the place of the first
    assert (from_pretrained(tmp_path / "model").head.rows == model.head.rows).all()
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError):
        push_to_hub(tmp_path / "other", "me/model")


def test_without_the_client_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DataError, match=r"pip install 'gandalf-xmc\[hub\]'"):
        from_pretrained("me/model")


@pytest.mark.parametrize("metrics", [None, {"P@1": 51.25, "PSP@5": 40.0}, {"test": {"P@1": 51.25}}])
def test_the_card_begins_with_what_hubs_read(metrics, tmp_path):
    model = small_model()
    model.config |= {"system": 'a: "b"', "data": "five: labels\u2028 ü"}
    save_model(model, tmp_path / "model", metrics=metrics)
    text = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert text.startswith("---\n")
    found = yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))
    assert found["library_name"] == "gandalf-xmc" and found["pipeline_tag"] == "text-classification"
    assert 'a: "b"' in found["tags"]
    if metrics is None:
        assert "model-index" not in found
    else:
        (result,) = found["model-index"][0]["results"]
        assert {"type": "P@1", "value": 51.25} in result["metrics"] and "five: labels" in result["dataset"][
            "name"
        ]
