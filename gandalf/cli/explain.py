"""`gandalf explain`: show why a text gets a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from scipy.sparse import csr_array

from gandalf.cli.extras import needs_extra
from gandalf.cli.loading import LOADING, Loading
from gandalf.cli.options import SOURCE, Bundle, Json, Source, offers
from gandalf.cli.output import console, print_json
from gandalf.cli.predict import ModelFolder
from gandalf.data.dataset import Dataset
from gandalf.data.formats.texts import clean
from gandalf.errors import DataError
from gandalf.graph.neighbours import find_labels
from gandalf.report.bars import bar

if TYPE_CHECKING:
    from gandalf.model import Part
    from gandalf.predict.explain import Background, Explanation, Word
    from gandalf.predict.predictor import Predictor

WITHOUT_DATA = "Give the training data with --data to see which points and labels taught this."
SATURATED = "The score is saturated: leaving out a single word changes nothing."

Text = Annotated[str, typer.Argument(metavar="TEXT", help="The text to explain.")]
LabelName = Annotated[
    str | None,
    typer.Option(
        "--label", help="Label to explain, by id, text or words of its text. Default: the likeliest."
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="DATA", help="The training data of the model, which MODEL does not hold."),
]
Shown = Annotated[int, typer.Option("--top", min=1, help="Most points and labels to show of each kind.")]


@dataclass(frozen=True)
class TrainedOn:
    """The training data of a model, if it was named."""

    source: Source | None

    def background(self, model: Part) -> Background | None:
        """Return the background of explanations, or None without training data."""
        from gandalf.runs.graph import background_of

        return None if self.source is None else background_of(model, self.source.load())


def _trained_on(data: str | None, **table: Any) -> TrainedOn:  # noqa: ANN401  columns and files
    if data is None and any(value is not None for value in table.values()):
        given = next(name for name, value in table.items() if value is not None)
        what = f"--{given.replace('_', '-')} says how training data is read, but no data is named"
        raise DataError(what, remedy="name it: --data DATA")
    return TrainedOn(None if data is None else SOURCE.build(data=data, **table))


TRAINED_ON = Bundle(TrainedOn, SOURCE.parameters | {"data": (DataOption, None)}, _trained_on)


@offers(TRAINED_ON, LOADING)
def explain(
    model: ModelFolder,
    text: Text,
    trained_on: TrainedOn,
    loading: Loading,
    label: LabelName = None,
    top: Shown = 5,
    json: Json = False,
) -> None:
    """Show why a text gets a label: the words that carry the score, and the points that taught the label.

    The command leaves out each word in turn. With --data it also shows the nearest training points, and the
    labels whose texts had this label as a target. Without --data it shows labels with similar weights.

    $ gandalf explain my-model "compress a file" --data man
    $ gandalf explain my-model "compress a file" --label bzip2
    """
    with needs_extra("explaining"):
        from gandalf.predict.explain import Explainer
        from gandalf.predict.predictor import Predictor
    loaded = loading.load(model)
    wanted = None if label is None else label_of(loaded, label)
    known = trained_on.background(loaded)
    predictor = Predictor(loaded)
    if wanted is None:
        wanted = _likeliest(predictor, clean(text))
    found = Explainer(predictor, known).explain(text, wanted, top)
    if json:
        print_json(asdict(found))
        return
    _show(found)


def _likeliest(predictor: Predictor, text: str) -> int:
    found = int(predictor.predict(text, 1)[0][0])
    if found < 0:
        raise DataError("the model finds no label for this text", remedy="name one with --label")
    return found


def label_of(model: Part, query: str) -> int:
    """Return the most frequent label that matches the query by id, text, words of its text, or number."""
    nothing = csr_array((0, model.num_labels), dtype="float32")
    return find_labels(Dataset(nothing, [], model.label_texts, label_ids=model.label_ids), query)[0]


def _show(found: Explanation) -> None:
    out = console()
    out.print(f"[bold]{escape(clean(found.label_text))}[/]  {found.probability:.3f}")
    if found.shares:
        out.print(f"[dim]parts: {escape(_parts(found))}[/]")
    out.print()
    out.print(_words(found.words))
    if _saturated(found):
        out.print(f"[dim]{SATURATED}[/]")
    if found.remembered is not None:
        spoken = [(each.share, f"{each.text} ({each.kind})") for each in found.remembered]
        _list(out, "What remembered points add to the probability", spoken)
    if found.nearest is None or found.with_label is None or found.teachers is None:
        _list(out, "Labels with weights alike", [(e.similarity, e.text) for e in found.alike])
        out.print(f"\n[dim]{WITHOUT_DATA}[/]")
        return
    _list(out, "Nearest training points that have it", [(e.similarity, e.text) for e in found.with_label])
    near = [(e.similarity, f"{e.text}{' ✓' if e.target else ''}") for e in found.nearest]
    _list(out, "Nearest training points (✓ has it)", near)
    taught = [(e.target, e.text) for e in found.teachers]
    _list(out, "Labels whose texts were taught it, with the target", taught)


def _parts(found: Explanation) -> str:
    """Return how much of the probability comes from each part of a mix."""
    added = [(share.part, share.weight * share.probability) for share in found.shares]
    if min(value for _, value in added) < 0:  # a memory may speak against a label
        return ", ".join(f"{part} {value:+.3f}" for part, value in added)
    total = sum(value for _, value in added) or 1.0
    return ", ".join(f"{part} {100 * value / total:.0f} %" for part, value in added)


def _saturated(found: Explanation) -> bool:
    """Return True if the probability stays at 1, as it is printed, whichever word is left out."""
    values = (found.probability, *(word.without for word in found.words))
    flat = all(f"{abs(word.effect):.2f}" == "0.00" for word in found.words)
    return bool(found.words) and flat and all(f"{value:.3f}" == "1.000" for value in values)


def _words(words: Sequence[Word]) -> Table:
    table = Table(title="Without the word, the probability is", title_justify="left", box=None)
    for heading in ("word", "probability", "effect", ""):
        table.add_column(heading)
    highest = max((abs(word.effect) for word in words), default=0.0)
    for word in words:
        cells = (f"{word.without:.3f}", f"{word.effect:+.2f}", bar(abs(word.effect), highest, 20))
        table.add_row(escape(word.word), *cells)
    return table


def _list(out: Console, title: str, entries: Sequence[tuple[float, str]]) -> None:
    out.print(f"\n{title}" + ("" if entries else ": none"))
    for value, text in entries:
        out.print(f"  {value:.2f}  {escape(clean(text))}")
