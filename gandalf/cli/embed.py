"""`gandalf embed`: write vectors of texts by a trained model, for search and clustering elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gandalf.cli.extras import needs_extra
from gandalf.cli.loading import LOADING, Loading
from gandalf.cli.options import Json, Source, offers
from gandalf.cli.output import print_written
from gandalf.cli.predict import INPUT, ModelFolder, Overwrite, chunks_of, new_file, refuse_to_write_into
from gandalf.data.sentences import counted

Out = Annotated[
    Path,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE",
        help="File to write: .npy, .jsonl, or .npz for a linear model of words.",
    ),
]


@offers(INPUT, LOADING)
def embed(
    model: ModelFolder,
    source: Source,
    loading: Loading,
    out: Out,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write vectors of texts by a trained model, for search and clustering with other tools.

    Vectors have length 1, so that their products are similarities.

    $ gandalf embed my-model queries.txt -o vectors.npy
    $ gandalf embed my-model queries.csv -o vectors.jsonl  # with row, id and text
    """
    with needs_extra("embedding"):
        from gandalf.predict.embedding import check_vectors_file, write_vectors
    check_vectors_file(out)
    refuse_to_write_into(out, model, source)
    with new_file(out, overwrite):
        found = loading.load(model)
        texts = write_vectors(out, found, chunks_of(source, found))
    print_written(out, f"vectors of {counted(texts, 'text')}", {"texts": texts}, json)
