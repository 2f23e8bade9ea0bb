"""`gandalf predict`: print the labels of one text, or write the labels of many texts to a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.markup import escape
from rich.table import Table

from gandalf.cli.extras import needs_extra
from gandalf.cli.loading import LOADING, Loading, note_unfinished
from gandalf.cli.options import SOURCE, Bundle, Cluster, Json, Source, offers
from gandalf.cli.output import console, print_json, print_written
from gandalf.data.claim import only_writer
from gandalf.data.formats.texts import clean
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.report.bars import bar

if TYPE_CHECKING:
    from gandalf.model import Part
    from gandalf.model.known_labels import Labelled
    from gandalf.predict.inputs import InputChunk
    from gandalf.predict.predictor import Predictor

ON_SCREEN, IN_FILE = 5, 100  # labels for each text

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder that gandalf train wrote.")]
Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="A text; a file of texts (.txt, one a line, or a CSV, TSV, JSONL or Parquet table); a data"
        " set, whose test split is predicted; or - for lines of standard input.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE",
        help="File to write: .csv, .jsonl, .parquet or .npz; with --cluster a folder. Needed unless INPUT is"
        " a text or -.",
    ),
]
Top = Annotated[
    int | None,
    typer.Option("--top", min=1, help=f"Labels for each text. Default: {IN_FILE}, on screen {ON_SCREEN}."),
]
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", min=0.0, max=1.0, help="Leave out labels less probable than this."),
]
Escape = Annotated[
    bool,
    typer.Option(
        "--escape-formulas", help="In CSV, put ' before cells that a spreadsheet would take for formulas."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file that --out names.")]

INPUT = Bundle(Source, SOURCE.parameters | {"data": (Input, Parameter.empty)}, SOURCE.build)


@offers(INPUT, LOADING)
def predict(
    model: ModelFolder,
    source: Source,
    loading: Loading,
    out: Out = None,
    top: Top = None,
    threshold: Threshold = None,
    cluster: Cluster = None,
    overwrite: Overwrite = False,
    escape_formulas: Escape = False,
    json: Json = False,
) -> None:
    """Predict the most probable labels of a text, of each text in a file, or of a data set's test split.

    Excluded pairs of a data set are never predicted. [bold]gandalf evaluate[/] scores what -o writes.

    $ gandalf predict my-model "compress a file"
    $ gandalf predict my-model queries.txt -o labels.jsonl
    $ gandalf predict my-model man -o predictions.npz
    $ tail -f queries.log | gandalf predict my-model -  # a line of JSON for each line, at once
    $ gandalf predict my-model queries -o labels --cluster tcp://scheduler:8786  # Parquet, on Dask
    """
    from gandalf.predict.inputs import is_text
    from gandalf.predict.stream import STANDARD_INPUT

    is_stream = source.data == STANDARD_INPUT
    is_one_text = not is_stream and is_text(source.data)
    if cluster is not None:
        _on_cluster(cluster, model, source, out, top or IN_FILE, threshold, loading.device, json)
    elif out is not None:
        with needs_extra("predicting"):
            from gandalf.predict.files import check_output, predict_chunks, write_predictions
        check_output(out, escape_formulas)
        refuse_to_write_into(out, model, None if is_one_text or is_stream else source)
        with new_file(out, overwrite):
            predictor = _predictor(model, loading)
            chunks = predict_chunks(predictor, chunks_of(source, predictor.model), top or IN_FILE, threshold)
            texts = write_predictions(out, chunks, predictor.model, escape_formulas=escape_formulas)
        facts = {"texts": texts, "labels": predictor.model.num_labels, "top": top or IN_FILE}
        print_written(out, _up_to(top or IN_FILE, texts), facts, json)
    elif is_stream:
        _answer_lines(model, loading, top or ON_SCREEN, threshold)
    elif is_one_text:
        text = clean(source.data)
        found = _without_pytorch(model, loading, text, top or ON_SCREEN)
        _show(found or _with_pytorch(model, loading, text, top or ON_SCREEN), text, threshold, json)
    else:
        what = "predictions for many texts need a file to go to"
        raise DataError(what, remedy="name it: -o predictions.jsonl")


@contextmanager
def new_file(out: Path, overwrite: bool) -> Iterator[None]:
    """Be the only writer of a file; raise a DataError if it exists and may not be replaced."""
    with only_writer(out):
        if out.exists() and not overwrite:
            raise DataError("exists already", remedy="choose another name, or add --overwrite", file=out)
        yield


def refuse_to_write_into(out: Path, model: Path, source: Source | None) -> None:
    """Refuse an output that is part of the input or of the model."""
    if source is not None:
        source.refuse_to_write(out)
    if model.resolve() in out.resolve().parents:
        raise DataError("is in the model's folder", remedy="choose another name", file=out)


def _predictor(folder: Path, loading: Loading) -> Predictor:
    from gandalf.predict.predictor import Predictor

    return Predictor(loading.load(folder))


def chunks_of(source: Source, model: Part) -> Iterator[InputChunk]:
    """Return the texts of the input: standard input, a text, a file of texts or a test split."""
    from gandalf.model.facts import TEXT_COLUMN
    from gandalf.predict.inputs import InputChunk, is_text, is_text_file, texts_of_file, texts_of_test_split
    from gandalf.predict.stream import STANDARD_INPUT, texts_of_stream

    if source.data == STANDARD_INPUT:
        return texts_of_stream()
    if is_text(source.data):
        return iter([InputChunk([clean(source.data)])])
    path = Path(source.data)
    if is_text_file(path) and source.options.test is None:
        return texts_of_file(path, source.options.text_column, model.config.get(TEXT_COLUMN))
    return texts_of_test_split(source.load(), model)


def _up_to(top: int, texts: int) -> str:
    return f"up to {counted(top, 'label')} for each of {counted(texts, 'text')}"


def _on_cluster(
    cluster: str,
    model: Path,
    source: Source,
    out: Path | None,
    top: int,
    threshold: float | None,
    device: str,
    json: bool,
) -> None:
    """Predict Parquet files into a folder on a cluster; go on with an earlier run of the same job."""
    with needs_extra("--cluster", extra="cluster"):
        from gandalf.cluster.client import connected
        from gandalf.cluster.jobs import Job, model_identity, row_groups_of
        from gandalf.cluster.predict import predict_row_groups
    from gandalf.model.facts import read_facts

    if out is None:
        raise DataError("a cluster writes predictions into a folder", remedy="name it: -o predictions")
    refuse_to_write_into(out, model, source)
    parts = row_groups_of(Path(source.data), source.options.text_column)
    labels = read_facts(model).labels
    with connected(cluster) as client:
        job = Job(model.resolve(), model_identity(model), out.resolve(), min(top, labels), threshold, device)
        found = predict_row_groups(client, job, parts)
    counts = {"texts": found.rows, "parts": found.parts, "parts_done_before": found.skipped}
    before = f", {found.skipped:,} of them done before" if found.skipped else ""
    sentence = f"{_up_to(top, found.rows)}, in {found.parts:,} parts{before}"
    print_written(out, sentence, {**counts, "labels": labels, "top": top}, json)


def _answer_lines(folder: Path, loading: Loading, top: int, threshold: float | None) -> None:
    """Print a line of JSON for each line of standard input as soon as it is predicted."""
    with needs_extra("predicting"):
        from gandalf.predict.files import json_lines, predict_chunks
        from gandalf.predict.stream import texts_of_stream

    predictor = _predictor(folder, loading)
    chunks = predict_chunks(predictor, texts_of_stream(), top, threshold)
    for line in json_lines(chunks, predictor.model):
        typer.echo(line, nl=False)
        sys.stdout.flush()


@dataclass(frozen=True)
class _TextLabels:
    """The labels of one text."""

    model: Labelled
    labels: list[tuple[int, float]]  # best first
    known: bool  # True if the model knows something in the text
    calibrated: bool


def _without_pytorch(folder: Path, loading: Loading, text: str, top: int) -> _TextLabels | None:
    """Predict without PyTorch, whose import takes longest; return None if the model needs PyTorch.

    Return None for a damaged folder too, so that `_with_pytorch` tells the error.
    """
    from gandalf.model_folder import CONFIG
    from gandalf.slim import SlimPredictor

    if loading.device == "cuda" or not (folder / CONFIG).is_file():
        return None
    try:
        model = SlimPredictor(folder, verify=not loading.no_verify)
    except DataError:
        return None
    note_unfinished(folder)
    places = model.predict(text, min(top, model.num_labels))
    return _TextLabels(model, _label_scores(*places), bool(model.knows([text])[0]), model.calibrated)


def _with_pytorch(folder: Path, loading: Loading, text: str, top: int) -> _TextLabels:
    with needs_extra("predicting"):
        predictor = _predictor(folder, loading)
    model = predictor.model
    places = predictor.predict(text, min(top, model.num_labels))
    known, calibrated = bool(model.knows([text])[0]), model.calibration is not None
    return _TextLabels(model, _label_scores(*places), known, calibrated)


def _label_scores(ids: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]) -> list[tuple[int, float]]:
    both = zip(ids.tolist(), scores.tolist(), strict=True)
    return [(label, score) for label, score in both if label >= 0]


def _described(model: Labelled, label: int) -> dict[str, Any]:
    ids = model.label_ids
    return {"label": label, "id": None if ids is None else ids[label], "text": model.label_texts[label]}


def _show(found: _TextLabels, text: str, threshold: float | None, json: bool) -> None:
    from gandalf.predict.tables import label_name

    # Compare as float32, since scores are float32.
    labels = [each for each in found.labels if threshold is None or np.float32(each[1]) >= threshold]
    if json:
        described = [_described(found.model, label) | {"score": score} for label, score in labels]
        print_json({"text": text, "labels": described, "known": found.known})
        return
    if not found.known:
        console().print("nothing in this text is known to the model" if text.strip() else "the text is empty")
        return
    table = Table(title=escape(text), title_justify="left", box=None)
    for heading in ("label", "probability" if found.calibrated else "score", ""):
        table.add_column(heading)
    for label, score in labels:
        table.add_row(
            escape(clean(label_name(found.model, label))), f"{score:.3f}", bar(score, 1.0, width=30)
        )
    none = "no label is found" if threshold is None else f"no label reaches {threshold}"
    console().print(table if labels else none)
