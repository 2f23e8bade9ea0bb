"""Draw bar charts in text, for terminals and pipes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from rich.table import Table

_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(value: float, highest: float, width: int = 40) -> str:
    """Return a bar of up to `width` characters; a value above 0 shows at least an eighth of a character."""
    if highest <= 0 or value <= 0:
        return ""
    eighths = max(1, round(8 * width * value / highest))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def frequency_bars(frequencies: npt.NDArray[np.int64]) -> Table:
    """Return a table of the numbers of labels with 0, 1, 2-3, 4-7, ... training points."""
    highest = int(frequencies.max(initial=0))
    edges = [0, *(2**power for power in range(highest.bit_length() + 1))]
    counts, _ = np.histogram(frequencies, [*edges[:-1], edges[-1] - 0.5])
    table = Table(title="Labels by number of training points", title_justify="left", box=None)
    table.add_column("points", justify="right")
    table.add_column("labels", justify="right")
    table.add_column("")
    for start, end, count in zip(edges, edges[1:], counts.tolist(), strict=False):
        name = f"{start:,}" if end - start == 1 else f"{start:,}-{end - 1:,}"
        table.add_row(name, f"{count:,}", bar(count, int(counts.max())))
    return table
