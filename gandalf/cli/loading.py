"""Read a model folder with the options of a command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gandalf.cli.engine import device_of
from gandalf.cli.options import Bundle

if TYPE_CHECKING:
    from gandalf.model import Part

Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option("--device", help="Where to compute.")]
NoVerify = Annotated[
    bool,
    typer.Option(
        "--no-verify", help="Do not compare the model's files with their hashes; it starts a little sooner."
    ),
]


@dataclass(frozen=True)
class Loading:
    """The device of a model, and whether the hashes of its files are checked."""

    device: Literal["auto", "cpu", "cuda"]
    no_verify: bool

    def load(self, folder: Path) -> Part:
        """Read a model folder."""
        from gandalf.model import load_model

        note_unfinished(folder)
        return load_model(folder, device_of(self.device), verify=not self.no_verify)


def note_unfinished(folder: Path) -> None:
    """Say on standard error that a model is only the first one of a search that has not ended."""
    from gandalf.model.layout import is_searching

    if is_searching(folder):
        what = f"note: {folder} holds the first model of a search that has not ended; a better one comes with"
        typer.secho(f"{what} gandalf train DATA {folder} --resume", err=True, dim=True)


LOADING = Bundle(Loading, {"device": (Device, "auto"), "no_verify": (NoVerify, False)}, Loading)
