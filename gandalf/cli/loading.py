"""Define the options for reading a model folder, and read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gandalf.cli.options import Bundle
from gandalf.errors import DataError

if TYPE_CHECKING:
    from gandalf.model import Part

DeviceName = Literal["auto", "cpu", "cuda"]
Device = Annotated[
    DeviceName, typer.Option("--device", help="Where to compute; auto: on a GPU if there is one.")
]
NoVerify = Annotated[
    bool,
    typer.Option(
        "--no-verify",
        help="Do not compare the files of the model with their hashes; the command starts a little sooner.",
    ),
]


@dataclass(frozen=True)
class Loading:
    """The device of a model, and whether the hashes of its files are checked."""

    device: DeviceName
    no_verify: bool

    def load(self, folder: Path) -> Part:
        """Read a model folder."""
        from gandalf.model import load_model

        note_unfinished(folder)
        return load_model(folder, device_of(self.device), verify=not self.no_verify)


def note_unfinished(folder: Path) -> None:
    """Say on standard error that a model is only the first one of a search that has not ended."""
    from gandalf.model_folder import is_searching

    if is_searching(folder):
        what = f"note: {folder} holds the first model of a search that has not ended; a better one comes with"
        typer.secho(f"{what} gandalf train DATA {folder} --resume", err=True, dim=True)


def device_of(name: DeviceName) -> str:
    """Return the device to compute on, "cuda" or "cpu"; raise a DataError if the wanted GPU is missing."""
    import torch

    found = torch.cuda.is_available()
    if name == "cuda" and not found:
        raise DataError("there is no CUDA device here", remedy="leave --device out, or say --device cpu")
    return ("cuda" if found else "cpu") if name == "auto" else name


LOADING = Bundle(Loading, {"device": (Device, "auto"), "no_verify": (NoVerify, False)}, Loading)
