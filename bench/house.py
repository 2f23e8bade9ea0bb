"""Count what a reader of the package meets: files, lines, imports, and files that a new kind touches.

python -m bench.house [COMMIT ...]    the working tree, or trees of commits (by git archive), as one table
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Names of kinds, as strings or types. A file that compares with one, checks for one, or lists some in a
# table, a literal or a union has to know the next one, too.
KINDS = {
    "encoder": ("bag-of-words", "inception", "transformer", "BagOfWords", "Inception", "Transformer"),
    "head": ("gated", "GatedSum"),
    "loss of pairs": ("contrastive", "triplet", "decoupled", "TripletOptions", "ContrastiveOptions"),
    "estimate": ("shrunk", "walk", "Shrunk"),
}
# What uses kinds by choice and need not know all of them: systems, trials, studies, the demo.
USERS = (
    "systems.py",
    "runs/auto.py",
    "runs/choose.py",
    "cli/remember.py",
    "lab",
    "experiments",
    "report/demo",
)


def modules(root: Path, folder: str) -> list[Path]:
    """Return the Python files of a folder."""
    return sorted((root / folder).rglob("*.py"))


def lines(paths: list[Path]) -> int:
    """Return the number of lines."""
    return sum(path.read_text("utf-8").count("\n") for path in paths)


def name_of(root: Path, path: Path) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Yield the modules of the package that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def graph(root: Path) -> dict[str, set[str]]:
    """Return for each module of the package the modules that it imports."""
    paths = modules(root, "gandalf")
    known = {name_of(root, path) for path in paths}
    found: dict[str, set[str]] = {}
    for path in paths:
        tree = ast.parse(path.read_text("utf-8"))
        name = name_of(root, path)
        found[name] = {each for each in imported(tree, known) if each in known} - {name}
    return found


def reached(imports: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that a module imports, directly or not."""
    found, open_ = {start}, [start]
    while open_:
        new = imports.get(open_.pop(), set()) - found
        found |= new
        open_ += new
    return found


def branches(root: Path, names: tuple[str, ...]) -> list[str]:
    """Return the files that tell a kind apart by name or type."""
    found = []
    for path in modules(root, "gandalf"):
        inner = path.relative_to(root / "gandalf").as_posix()
        if not inner.startswith((*USERS, "data/")) and any(
            _tells(node, names) for node in ast.walk(_tree(path))
        ):
            found.append(inner)
    return found


def _tree(path: Path) -> ast.AST:
    return ast.parse(path.read_text("utf-8"))


def _tells(node: ast.AST, names: tuple[str, ...]) -> bool:
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
    inner = [each for one in asked for each in ast.walk(one)]
    return any(
        (isinstance(each, ast.Constant) and each.value in names)
        or (isinstance(each, ast.Name) and each.id in names)
        or (isinstance(each, ast.Attribute) and each.attr in names)
        for each in inner
    )


def room(name: str) -> str:
    """Return the room of a module."""
    return name.split(".")[1] if "." in name else ""


def counts(root: Path) -> dict[str, str]:
    """Return what is counted of a tree."""
    imports = graph(root)
    runs = {name: {each for each in of if room(each) == "runs"} for name, of in imports.items()}
    inside = {name: of for name, of in runs.items() if room(name) == "runs"}
    train = reached(imports, "gandalf.cli.train")
    most = max(inside, key=lambda name: len(imports[name]))
    files = {place: modules(root, place) for place in ("gandalf", "tests", "bench", "gandalf/runs")}
    found = {f"files, lines of {place}/": f"{len(each)}, {lines(each):,}" for place, each in files.items()}
    found["imports among files of runs/"] = str(sum(map(len, inside.values())))
    found["most imports of a file of runs/"] = f"{len(imports[most])} ({most.removeprefix('gandalf.runs.')})"
    found["rooms behind `gandalf train`"] = str(len({room(name) for name in train} - {""}))
    found["files of runs/ behind `gandalf train`"] = str(sum(room(name) == "runs" for name in train))
    found["files of train/ that know ranks"] = str(_knowing(root, "train"))
    found["mentions of ranks outside train/"] = str(_mentions(root))
    for what, names in KINDS.items():
        touched = branches(root, names)
        found[f"files that must know every {what}"] = f"{len(touched)}: {', '.join(touched)}"
    return found


def _knowing(root: Path, folder: str) -> int:
    places = [path for path in modules(root, f"gandalf/{folder}") if "parallel" not in path.parts]
    return sum("ranks" in path.read_text("utf-8").lower() for path in places)


def _mentions(root: Path) -> int:
    paths = [path for path in modules(root, "gandalf") if "train" not in path.relative_to(root).parts[1:2]]
    return sum(_words(path.read_text("utf-8")) for path in paths)


def _words(text: str) -> int:
    return len(re.findall(r"\branks?\b", text, flags=re.IGNORECASE))


def tree_of(commit: str, folder: Path) -> Path:
    """Write the tree of a commit into a folder."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def table(columns: dict[str, dict[str, str]]) -> str:
    """Return a table in Markdown, a column a tree."""
    heads = list(columns)
    rows = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for what in columns[heads[-1]]:
        rows.append(f"| {what} | {' | '.join(columns[head].get(what, '-') for head in heads)} |")
    return "\n".join(rows)


def main() -> None:
    """Print the table."""
    columns: dict[str, dict[str, str]] = {}
    for commit in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            columns[commit] = counts(tree_of(commit, Path(folder)))
    columns["now"] = counts(ROOT)
    print(table(columns))


if __name__ == "__main__":
    main()
