"""`gandalf export`: write a model that predicts without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gandalf.cli.extras import needs_extra
from gandalf.cli.loading import NoVerify
from gandalf.cli.options import Json
from gandalf.cli.output import print_written
from gandalf.cli.predict import ModelFolder
from gandalf.data.claim import only_writer

Out = Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the exported model: a new one.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a model that is in OUT.")]


def export(
    model: ModelFolder,
    out: Out,
    overwrite: Overwrite = False,
    no_verify: NoVerify = False,
    json: Json = False,
) -> None:
    """Write a model that predicts without PyTorch.

    A network becomes one ONNX graph of encoder and labels, label trees stay as they are, and a mix becomes a
    folder of exported parts. The command checks that the exported model gives the same scores. Use the folder
    from Python with [bold]gandalf.slim.SlimPredictor[/], or the graph of a network from any language that has
    onnxruntime.

    $ gandalf export my-model my-slim-model
    $ python -c 'from gandalf.slim import SlimPredictor; print(SlimPredictor("my-slim-model").named("gzip"))'
    """
    with needs_extra("exporting", extra="onnx"):
        from gandalf.model import load_model
        from gandalf.predict.slim_export import export_model
    with only_writer(out, parents=True):
        difference = export_model(load_model(model, verify=not no_verify), model, out, overwrite=overwrite)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    sentence = f"{size / 1e6:,.1f} MB; scores without PyTorch differ by at most {difference:.1e}"
    print_written(out, sentence, {"bytes": size, "largest_difference": difference}, json)
