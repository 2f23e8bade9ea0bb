"""Draw pictures with matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.files import written
from gandalf.data.stats import frequency_bins
from gandalf.errors import DataError


def figure(
    width: float = 7.0, height: float = 4.5, *, rows: int = 1, height_ratios: Sequence[float] | None = None
) -> tuple[Any, Sequence[Any]]:
    """Return a matplotlib figure and its axes from top to bottom, without the global state of pyplot."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DataError("drawing needs matplotlib", remedy="pip install 'gandalf-xmc[plot]'") from error
    drawn = Figure(figsize=(width, height), layout="constrained")
    axes = drawn.subplots(rows, 1, squeeze=False, height_ratios=height_ratios)
    return drawn, list(axes[:, 0])


def save(drawn: Any, path: Path) -> None:  # noqa: ANN401  a matplotlib figure
    """Write the picture in the format of the file's suffix."""
    kind = path.suffix.removeprefix(".").lower() or "png"
    known = drawn.canvas.get_supported_filetypes()
    if kind not in known:
        raise DataError(f"cannot draw a {path.suffix} picture", remedy="use .png, .svg or .pdf", file=path)
    with written(path, "wb") as file, warnings.catch_warnings():
        # The default font lacks some scripts and draws boxes; skip the warning for each character.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # Without the date, pictures of the same data are equal.
        drawn.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def plot_frequencies(frequencies: npt.NDArray[np.int64], path: Path, *, title: str = "") -> None:
    """Draw label frequency by rank on logarithmic axes, and mark the five bins of equal positives."""
    descending = np.sort(frequencies[frequencies > 0])[::-1]
    drawn, (axes,) = figure()
    axes.loglog(np.arange(1, len(descending) + 1), descending, linewidth=2)
    end = 0
    for number, one in enumerate(frequency_bins(frequencies), start=1):
        start, end = end, end + one.labels
        if one.labels:
            axes.axvspan(max(start, 0.8), end, color=f"C{number}", alpha=0.15, linewidth=0)
            place = np.sqrt(max(start, 0.8) * end)
            axes.text(place, 1.02, str(number), transform=axes.get_xaxis_transform(), ha="center")
    axes.set_xlabel("label, by rank (shaded: five bins with equal numbers of positives)")
    axes.set_ylabel("training points")
    axes.set_title(title, pad=20)
    save(drawn, path)
