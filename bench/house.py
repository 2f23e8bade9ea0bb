"""Count what a reader of the package meets: files, lines, imports, and files that a new kind touches.

python -m bench.house [COMMIT ...]    the working tree, and trees of commits (by git archive), in one table
"""

from __future__ import annotations

import ast
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from bench.command import argument_parser
from bench.tables import table

ROOT = Path(__file__).parents[1]
# Names of kinds, as strings or types. A file that compares with one, checks for one, or lists some in a
# table, a literal or a union has to know the next one, too.
KINDS = {
    "encoder": ("bag-of-words", "inception", "transformer", "BagOfWords", "Inception", "Transformer"),
    "head": ("gated", "GatedSum"),
    "loss of pairs": ("contrastive", "triplet", "decoupled", "TripletOptions", "ContrastiveOptions"),
    "estimate": ("shrunk", "walk", "Shrunk"),
}
# Files that use kinds by choice and need not know all of them: data, systems, trials, studies, the demo; also
# by their names in older trees.
USERS: tuple[str, ...] = (
    "data/",
    "systems.py",
    "runs/auto.py",
    "runs/choose.py",
    "cli/remember.py",
    "lab",
    "experiments",
)
USERS += ("report/demo",)
Trees = dict[str, tuple[str, str, ast.AST]]  # path, text and syntax of each module, by dotted name


def read_modules(root: Path) -> Trees:
    """Return the modules of the package."""
    found: Trees = {}
    for path in sorted((root / "gandalf").rglob("*.py")):
        parts, text = path.relative_to(root).with_suffix("").parts, path.read_text("utf-8")
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.relative_to(root / "gandalf").as_posix(), text, ast.parse(text)
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(modules: Trees) -> dict[str, set[str]]:
    """Return for each module the modules of the package that it imports; a name's module, or the module."""
    found = {}
    for name, (_, _, tree) in modules.items():
        every = [each for each in imported(tree) if each in modules]
        packages = {each.rpartition(".")[0] for each in every}
        found[name] = {each for each in every if each not in packages or "." not in each} - {name}
    return found


def reached(imports: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that a module imports, directly or not."""
    found, open_ = {start}, [start]
    while open_:
        new = imports.get(open_.pop(), set()) - found
        found |= new
        open_ += new
    return found


def knows_kinds(node: ast.AST, names: tuple[str, ...]) -> bool:
    """Return True if a piece of code would have to change for a further kind."""
    if isinstance(node, ast.Compare):
        asked = [node.left, *node.comparators]
    elif isinstance(node, ast.Dict):
        asked = [key for key in node.keys if key is not None]
    elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
        asked = [node.slice]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        asked = node.args[1:]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        asked = [node]  # a union of types
    elif isinstance(node, ast.Assign):
        asked = [node.value] if isinstance(node.value, ast.Tuple) else []
    else:
        return False
    return any(
        getattr(each, attribute, None) in names
        for one in asked
        for each in ast.walk(one)
        for attribute in ("value", "id", "attr")
        if isinstance(getattr(each, attribute, None), str)
    )


def room(name: str) -> str:
    """Return the room of a module."""
    return name.split(".")[1] if "." in name else ""


def counts(root: Path) -> dict[str, str]:
    """Return what is counted of a tree."""
    modules = read_modules(root)
    imports = import_graph(modules)
    runs = {name: of for name, of in imports.items() if room(name) == "runs"}
    train = reached(imports, "gandalf.cli.train")
    most = max(runs, key=lambda name: len(imports[name]))
    found = {}
    for place in ("gandalf", "tests", "bench", "gandalf/runs"):
        paths = list((root / place).rglob("*.py"))
        lines = sum(path.read_text("utf-8").count("\n") for path in paths)
        found[f"files, lines of {place}/"] = f"{len(paths)}, {lines:,}"
    inside = sum(room(each) == "runs" for of in runs.values() for each in of)
    found["imports among files of runs/"] = str(inside)
    found["most imports of a file of runs/"] = f"{len(imports[most])} ({most.removeprefix('gandalf.runs.')})"
    found["rooms behind `gandalf train`"] = str(len({room(name) for name in train} - {""}))
    found["files of runs/ behind `gandalf train`"] = str(sum(room(name) == "runs" for name in train))
    knowing = [
        name for name, (_, text, _) in modules.items() if room(name) == "train" and "ranks" in text.lower()
    ]
    found["files of train/ that know ranks"] = str(sum(".parallel" not in name for name in knowing))
    outside = (text for name, (_, text, _) in modules.items() if room(name) != "train")
    mentions = sum(len(re.findall(r"\branks?\b", text, flags=re.IGNORECASE)) for text in outside)
    found["mentions of ranks outside train/"] = str(mentions)
    for kind, names in KINDS.items():
        touched = [
            path
            for path, _, tree in modules.values()
            if not path.startswith(USERS) and any(knows_kinds(node, names) for node in ast.walk(tree))
        ]
        found[f"files that must know every {kind}"] = f"{len(touched)}: {', '.join(touched)}"
    return found


def main() -> None:
    """Print the table, a column for each tree."""
    columns: dict[str, dict[str, str]] = {}
    parser = argument_parser(__doc__)
    parser.add_argument("commits", nargs="*")
    for commit in parser.parse_args().commits:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
            columns[commit] = counts(Path(folder))
    columns["now"] = counts(ROOT)
    print(
        table(
            ["", *columns],
            [[what, *(of.get(what, "-") for of in columns.values())] for what in columns["now"]],
        )
    )


if __name__ == "__main__":
    main()
