"""`gandalf augment`: write the training set with label points, in the format of any trainer."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

from gandalf import __version__
from gandalf.augment.label_points import Keep, KeptPoints
from gandalf.augment.sampling import SamplingOrder
from gandalf.cli.graph_options import TARGET_OPTIONS, TargetOptions
from gandalf.cli.opened_set import OpenedSet, open_set
from gandalf.cli.options import SOURCE, Bundle, Cluster, Json, Source, offers, panel
from gandalf.cli.output import console, print_json
from gandalf.data.claim import only_writer
from gandalf.data.export import ExportOptions
from gandalf.data.origin import RECORD, foreign_files
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.graph.kind import LabelGraph
from gandalf.graph.label_graph import GraphOptions

Out = Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write: a new one, or an empty one.")]
FormatName = Literal[
    "raw", "xc", "npz", "pecos", "libsvm", "fasttext", "libmultilabel", "pairs", "renee", "csv", "jsonl"
]
Hardening = Literal["threshold", "any", "sample", "copies"]


_KEEP_HELP = (
    "Points to write. both: training and label points (G). labels: label points alone (Z). half: at most N/2 "
    "label points. uniform: as many rows as before, drawn from both (U(G,N))."
)
_HARDEN_HELP = (
    "Write soft targets as 0 or 1. threshold: 1 from 0.5 on, and the highest of a row. any: all become 1. "
    "sample: drawn with their value as probability. copies: every point three times, each drawn anew."
)

KEEP = Bundle(
    Keep,
    panel(
        "Which points",
        keep=(KeptPoints, "both", _KEEP_HELP),
        share=(float, 1.0, "Make label points of this share of the labels."),
        order=(SamplingOrder, "random", "Labels that --share takes: random, or tail first."),
    ),
    Keep,
)
WRITING = Bundle(
    ExportOptions,
    panel(
        "What is written",
        format=(FormatName, "raw", "Layout to write, or the trainer to write for."),
        harden=(Hardening | None, None, _HARDEN_HELP),
        overwrite=(bool, False, "Replace an OUT that gandalf augment wrote."),
    ),
    ExportOptions,
)


@offers(SOURCE, TARGET_OPTIONS, KEEP, WRITING)
def augment(
    source: Source,
    out: Out,
    targets: TargetOptions,
    keep: Keep,
    writing: ExportOptions,
    cluster: Cluster = None,
    json: Json = False,
) -> None:
    """Write the training set with every label's text as an extra point and the graph's row as its targets.

    Any trainer can then learn from the label points: nothing else about it changes.

    $ gandalf augment man out  # with the recommended targets
    $ gandalf augment man out --targets ratio  # the paper's G
    $ gandalf augment man out --targets calibrated --format pecos
    $ gandalf augment man out --format fasttext --harden sample
    $ gandalf augment shards out --cluster tcp://scheduler:8786  # on Dask
    """
    seed = targets.options.seed
    keep, writing = replace(keep, seed=seed), replace(writing, seed=seed)
    with only_writer(out, parents=True):
        _refuse_to_lose(out, source, writing)
        with open_set(source, targets.options, cluster, writing) as opened:
            options, why = targets.resolved(opened)
            found = opened.label_graph(options)

            def record_of(written: int) -> dict[str, Any]:
                known = _record(source, opened, found, written, options, keep)
                known |= {"targets_recommended": why} if why else {}
                return known | {"format": writing.format, "harden": writing.harden}

            record, notes = opened.write(found.matrix, keep, out, writing, record_of)
    if json:
        print_json(record)
        return
    _show(out, record, [str(note) for note in notes])


def _refuse_to_lose(out: Path, source: Source, writing: ExportOptions) -> None:
    """Refuse an OUT with input data, or with files that `gandalf augment` did not write."""
    if any(_holds(out, path) for path in source.files):
        raise DataError("the data to read is in the folder to write", remedy="choose another OUT", file=out)
    filled = out.is_dir() and any(out.iterdir())
    if filled and not writing.overwrite:
        raise DataError("is not empty", remedy="choose another OUT, or replace it with --overwrite", file=out)
    foreign = foreign_files(out) if filled else []
    if foreign:
        raise DataError(
            f"holds {foreign[0]}, which gandalf augment did not write, and is not replaced",
            remedy="choose another OUT, or move that away",
            file=out,
        )


def _holds(folder: Path, path: Path) -> bool:
    folder, path = folder.resolve(), path.resolve()
    return path.exists() and (folder == path or folder in path.parents)


def _record(
    source: Source, opened: OpenedSet, found: LabelGraph, written: int, options: GraphOptions, keep: Keep
) -> dict[str, Any]:
    """Return the settings that made the folder; they suffice to make it again."""
    graph = asdict(options)
    graph.pop("threads")  # threads do not change the result
    return {
        "made_by": f"gandalf {__version__}",
        "data": opened.name,
        "table": {name: str(value) for name, value in asdict(source.options).items() if value is not None},
        "points": opened.num_points,
        "labels": opened.labelled.num_labels,
        "points_written": written,
        "targets_used": found.estimate,
        "details": found.details,
        "graph": graph,
        "keep": asdict(keep),
    }


def _show(out: Path, record: dict[str, Any], notes: list[str]) -> None:
    screen = console()
    screen.print(
        f"{escape(str(out))}: "
        f"{counted(record['points_written'], 'training point')} in the format {record['format']} "
        f"({record['points']:,} in {escape(record['data'])}, {counted(record['labels'], 'label')}, "
        f"{record['targets_used']} targets{_because(record)}); {RECORD} says how it was made"
    )
    for name, value in record["details"].items():
        screen.print(f"[dim]{name.replace('_', ' ')}: {escape(str(value))}[/]")
    for note in notes:
        screen.print(f"note: {escape(note)}")


def _because(record: dict[str, Any]) -> str:
    why = record.get("targets_recommended")
    return f", recommended: {why}" if why else ""
