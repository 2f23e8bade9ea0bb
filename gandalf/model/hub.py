"""Upload models to a hub and download them, by huggingface_hub. A hub holds what `save_model` writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import torch

from gandalf.errors import DataError
from gandalf.model.facts import read_facts
from gandalf.model.load import load_model
from gandalf.model.part import Part
from gandalf.model.save import save_model


def save_pretrained(model: Part, folder: str | Path) -> None:
    """Write the model into a folder; replace a model that is there."""
    save_model(model, folder, overwrite=True)


def from_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    device: str | torch.device = "cpu",
) -> Part:
    """Read a model from a folder or, if no folder has that name, from a hub ("user/model")."""
    if Path(name).is_dir():
        return load_model(name, device)
    hub = _hub()
    what = f"there is no folder {str(name)!r}, and the hub does not give a model of that name"
    with _told_as_data_error(hub, what, "correct the name, or log in with hf auth"):
        folder = hub.snapshot_download(str(name), revision=revision, token=token)
    return load_model(folder, device)


def push_to_hub(
    model: Part | str | Path,
    repository: str,
    *,
    private: bool = False,
    token: str | None = None,
    message: str = "Upload a gandalf model",
) -> str:
    """Upload a model, or a model folder with its figures; return the address of the repository.

    The repository is created if it does not exist.
    """
    if isinstance(model, str | Path):
        read_facts(Path(model))  # raises an error if the folder holds no model
        return _upload(Path(model), repository, private, token, message)
    with TemporaryDirectory() as folder:
        save_pretrained(model, Path(folder) / "model")
        return _upload(Path(folder) / "model", repository, private, token, message)


def _upload(folder: Path, repository: str, private: bool, token: str | None, message: str) -> str:
    hub = _hub()
    api = hub.HfApi(token=token)
    ignored = ["checkpoints/*", ".lock", "*.part"]  # these belong to the run, not to the model
    with _told_as_data_error(hub, f"the hub does not take {repository!r}", "log in with hf auth"):
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=message, ignore_patterns=ignored
        )
    return str(address)


@contextmanager
def _told_as_data_error(hub: ModuleType, what: str, remedy: str) -> Iterator[None]:
    """Raise a DataError for an error of the hub or the network."""
    try:
        yield
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{what} ({first[:200]})", remedy=remedy) from error


def _hub() -> ModuleType:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise DataError("a hub needs huggingface_hub", remedy="pip install 'gandalf-xmc[hub]'") from error
    return huggingface_hub
