"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from command_line import python

import gandalf

PACKAGE = Path(gandalf.__file__).parent
# A room may import only rooms that stand before it (and itself).
ROOMS = (
    *("errors", "progress", "settings", "compiled", "data", "graph", "augment", "metrics"),
    *("text", "model_folder", "wide", "memory", "nets", "train", "model", "slim", "predict", "cluster"),
    *("recipe", "systems", "runs", "estimator"),
    *("report", "serve", "lab", "cli", "__main__"),
)
FILES = sorted(PACKAGE.rglob("*.py"))
LIGHT = {"numpy", "scipy", "typer", "rich", "filelock", "gandalf"}
# The engine, which the extra [train] brings; the rooms before it do without.
ENGINE = {room: {"torch", "tokenizers", "safetensors"} for room in ROOMS[ROOMS.index("text") :]}
ENGINE |= {room: set() for room in ("model_folder", "wide", "memory", "slim", "report", "cli", "__main__")}
ENGINE["serve"] |= {
    "fastapi",
    "starlette",
    "pydantic",
    "pydantic_core",
    "prometheus_client",
    "uvicorn",
}  # the extra [serve]
ENGINE["cluster"] |= {"dask", "distributed", "pyarrow"}  # the extra [cluster]
KERNELS = {"fused_kernels.py": {"triton"}}  # files that are wholly of an extra, imported where they are used


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> set[str]:
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return found | {
        "." * node.level + (node.module or "") for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }


def forbidden(room: str, source: str) -> set[str]:
    """Imports, anywhere in the source, of what the room may not know."""
    if room == "__init__":
        return set()  # the front door may open every room
    allowed = {f"gandalf.{earlier}" for earlier in ROOMS[: ROOMS.index(room) + 1]}
    if room in ("cli", "__main__"):
        allowed.add("gandalf")  # the front door itself, behind which every room lies
    return {
        name
        for name in imports(ast.parse(source))
        # A name that starts with a dot says nothing of the room it leads to.
        if name.startswith(("gandalf", ".")) and ".".join(name.split(".")[:2]) not in allowed
    }


def test_imports_point_one_way():
    wrong = {each: forbidden(room_of(each), each.read_text("utf-8")) for each in FILES}
    assert not {str(each.relative_to(PACKAGE)): names for each, names in wrong.items() if names}


@pytest.mark.parametrize(
    ("room", "line", "found"),
    [
        ("data", "from gandalf.errors import DataError", set()),
        ("data", "from gandalf.data.words import split_words", set()),
        ("data", "from gandalf.graph.postulate import diagnose", {"gandalf.graph.postulate"}),
        ("data", "import gandalf.graph", {"gandalf.graph"}),
        ("data", "from gandalf import diagnose", {"gandalf"}),
        ("report", "import gandalf", {"gandalf"}),
        ("data", "from ..graph import postulate", {"..graph"}),
        ("data", "from . import words", {"."}),
        ("cli", "from gandalf import __version__", set()),
    ],
)
def test_no_import_is_smuggled_in(room, line, found):
    assert forbidden(room, f"def hidden():\n    {line}\n") == found


def imports_at_the_top(path: Path) -> set[str]:
    tops = [n for n in ast.parse(path.read_text("utf-8")).body if isinstance(n, ast.Import | ast.ImportFrom)]
    return {name for node in tops for name in imports(node)}


def test_only_the_light_core_is_imported_at_the_top():
    """Everything else is an extra: it is imported where it is used, with a sentence if it is missing."""
    for path in FILES:
        allowed = LIGHT | ENGINE.get(room_of(path), set()) | KERNELS.get(path.name, set())
        for name in imports_at_the_top(path):
            top = name.split(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, f"{path} imports {name} at the top"


def test_the_library_works_without_any_extra():
    blocked = (
        *("numba", "matplotlib", "pyarrow", "zstandard", "rdflib", "pandas", "polars", "datasets"),
        *("torch", "tokenizers", "safetensors", "faiss"),
        *("tensorboard", "sklearn", "transformers", "omikuji"),
        *("fastapi", "uvicorn", "prometheus_client", "onnx", "onnxruntime"),
        *("dask", "distributed"),
    )
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"  # None in sys.modules: import fails
        "import gandalf\n"
        "assert gandalf.recipe('inceptionxml').system == 'inceptionxml'\n"
        "splits = gandalf.load('man')\n"
        "graph = gandalf.label_graph(splits.train, gandalf.GraphOptions('calibrated'))\n"
        "print(len(gandalf.augment(splits.train, graph.matrix)))\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(9_599 + 8_808)


def test_the_front_door_names_what_it_opens():
    assert sorted(gandalf.__all__) == list(gandalf.__all__)
    assert all(hasattr(gandalf, name) for name in gandalf.__all__)
    assert (PACKAGE / "py.typed").is_file()


def test_a_name_has_one_home():
    """`import X as X` passes a name on: whoever needs it imports it from where it is defined."""
    for path in FILES:
        nodes = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.ImportFrom)]
        passed_on = [alias.name for node in nodes for alias in node.names if alias.name == alias.asname]
        assert not passed_on, f"{path} passes on {passed_on}"


def test_files_of_an_extra_are_imported_where_they_are_used():
    for path in (each for each in FILES if each.name not in KERNELS):
        names = imports_at_the_top(path)
        assert not {name for name in names if name.endswith(tuple(f".{k[:-3]}" for k in KERNELS))}, path
