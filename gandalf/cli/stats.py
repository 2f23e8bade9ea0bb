"""`gandalf stats`: print the figures of a data set, and plot its label frequencies."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from gandalf.cli.options import Json, Plot, Source, reads_data
from gandalf.cli.output import console, print_json, share
from gandalf.data.stats import TAIL, Stats
from gandalf.data.stats import stats as counted
from gandalf.report.bars import frequency_bars
from gandalf.report.plots import plot_frequencies


@reads_data
def stats(source: Source, json: Json = False, plot: Plot = None) -> None:
    """Count points, labels and words, and show how long the tail of rare labels is.

    $ gandalf stats man
    $ gandalf stats man --plot frequencies.png
    """
    source.refuse_to_write(plot)
    splits = source.load()
    found = counted(splits)
    if plot is not None:
        plot_frequencies(splits.train.label_frequencies, plot, title=splits.name)
    if json:
        print_json(found.as_dict())
        return
    out = console()
    frequencies = splits.train.label_frequencies
    for table in (_paper_table(found), _more_table(found), _bins_table(found), frequency_bars(frequencies)):
        out.print(table)
    if plot is not None:
        out.print(f"drawn: {escape(str(plot))}")


def _paper_table(found: Stats) -> Table:
    """Return the columns of the paper's table of data sets."""
    table = Table(caption="APpL points per label, ALpP labels per point, AWpP words per point")
    table.add_column("data set")
    for heading in ("N", "N test", "L", "APpL", "ALpP", "AWpP"):
        table.add_column(heading, justify="right")
    table.add_row(
        escape(found.name),
        f"{found.points:,}",
        f"{found.test_points:,}",
        f"{found.labels:,}",
        f"{found.points_per_label:.2f}",
        f"{found.labels_per_point:.2f}",
        _decimal(found.words_per_point),
    )
    return table


def _more_table(found: Stats) -> Table:
    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    rows = {
        "layout": found.layout,
        "words per point, identifiers split": _decimal(found.split_words_per_point),
        "words per label": _decimal(found.words_per_label),
        "features (D)": "-" if found.features is None else f"{found.features:,}",
        f"labels with at most {TAIL} training points": share(found.tail_share),
        "labels without training points": share(found.unpointed_share),
        "training points without labels": share(found.unlabelled_share),
        "soft targets (below 1)": share(found.soft_share),
        "labels that share their text with another": share(found.shared_label_text_share),
        "test points whose text is a label's text": share(found.known_test_share),
        "test pairs never to be predicted": f"{found.excluded_pairs:,}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _bins_table(found: Stats) -> Table:
    table = Table(title="Bins of equal positives, head first", title_justify="left", box=None)
    for heading in ("bin", "labels", "points of each", "mean"):
        table.add_column(heading, justify="right")
    for number, one in enumerate(found.bins, start=1):
        between = f"{one.lowest:,}-{one.highest:,}"
        table.add_row(str(number), f"{one.labels:,}", between, f"{one.mean_frequency:.1f}")
    return table


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
