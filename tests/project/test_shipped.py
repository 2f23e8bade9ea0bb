"""What is shipped beside the package works as it stands: the notebook, the slim server, its Dockerfile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from small_model import small_model

from gandalf.model import save_model
from gandalf.slim import SlimPredictor

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DOCKERFILE = EXAMPLES / "Dockerfile"


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    notebook = json.loads((EXAMPLES / "tour.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 6 and not any(cell["outputs"] for cell in cells)
    code = "\n".join("".join(cell["source"]) for cell in cells)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "notebook-model" / "config.json").is_file()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Address of the slim server over a small model of words, and the model's folder."""
    folder = tmp_path_factory.mktemp("slim") / "model"
    save_model(small_model(), folder)
    program = "import runpy, sys; sys.argv[0] = 'x'; runpy.run_path({!r}, run_name='__main__')"
    code = f"import sys; sys.modules['torch'] = None\n{program.format(str(EXAMPLES / 'slim_server.py'))}"
    command = [sys.executable, "-c", code, str(folder), "0", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert found, process.stderr.read()
            yield found[0], folder
        finally:
            process.kill()


def test_the_slim_server_answers_without_pytorch(served):
    address, folder = served
    texts = ["bzip2 files", "disk usage"]
    answer = httpx.post(f"{address}predict", json={"texts": texts, "k": 2})
    assert answer.status_code == 200
    found = [[(label["text"], label["score"]) for label in row["labels"]] for row in answer.json()["results"]]
    expected = SlimPredictor(folder).named(texts, 2)
    assert [[text for text, _ in row] for row in found] == [[text for text, _ in row] for row in expected]
    assert [score for row in found for _, score in row] == pytest.approx(
        [score for row in expected for _, score in row]
    )
    assert httpx.get(f"{address}health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b"[]", 422),
        (b'{"texts": "one"}', 422),
        (b'{"texts": []}', 422),
        (b'{"texts": ["a"], "k": 0}', 422),
        (b'{"texts": ["a"], "k": true}', 422),
        (b" " * ((1 << 20) + 1), 413),
    ],
)
def test_the_slim_server_refuses_in_a_sentence(served, body, status):
    answer = httpx.post(f"{served[0]}predict", content=body)
    assert answer.status_code == status and answer.json()["error"]
    assert httpx.get(f"{served[0]}nowhere").status_code == 404


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text("utf-8"), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def test_the_dockerfile_is_sound():
    """What a linter of Dockerfiles asks for, and that all that is copied is there."""
    found = instructions()
    names = [name for name, _ in found]
    known = {"FROM", "COPY", "RUN", "ARG", "USER", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert set(names) <= known and names[0] == "FROM" and names[-1] == "CMD"
    values = {name: [value for each, value in found if each == name] for name in names}
    (base,) = values["FROM"]
    assert re.fullmatch(r"python:3\.\d+-slim", base)  # a version, not what is latest
    assert names.index("USER") < names.index("CMD") and values["USER"] == ["gandalf"]
    for (command,) in (values["CMD"], [values["HEALTHCHECK"][0].split("CMD ", 1)[1]]):
        assert isinstance(json.loads(command), list)  # no shell between signals and the server
    (install,) = values["RUN"]
    assert "--no-cache-dir" in install and "torch" not in install and "[slim]" in install
    for value in values["COPY"]:
        for source in value.split()[:-1]:
            assert "$" in source or (EXAMPLES.parent / source).exists(), source


def _engine() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(find_spec("onnxscript") is None, reason="needs the extra onnx")
def test_the_image_answers(tmp_path):
    if not _engine():
        pytest.skip("no container engine runs here")
    model = EXAMPLES.parent / "slim-of-test"
    save_model(small_model(), model)
    try:
        name = ("gandalf-slim-of-test", "--build-arg", f"MODEL={model.name}", "-f", str(DOCKERFILE), ".")
        subprocess.run(["docker", "build", "-t", *name], cwd=EXAMPLES.parent, check=True)
    finally:
        shutil.rmtree(model)
    look = "from gandalf.slim import SlimPredictor; print(SlimPredictor('/model').named('a'))"
    subprocess.run(["docker", "run", "--rm", name[0], "python", "-c", look], check=True)
