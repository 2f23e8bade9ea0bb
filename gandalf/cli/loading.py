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

        return load_model(folder, device_of(self.device), verify=not self.no_verify)


LOADING = Bundle(Loading, {"device": (Device, "auto"), "no_verify": (NoVerify, False)}, Loading)
