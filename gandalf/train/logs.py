"""Report a run while it trains: lines of JSON, trackers, and a bar on a terminal."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from gandalf.data.files import written
from gandalf.errors import DataError
from gandalf.progress import lines, terminal_bar
from gandalf.train.trackers import Tracker, open_tracker

LOG = "log.jsonl"
TRACKED = "tracked"  # kind of the line with a tracker's id
EVENTS = "events.out.tfevents."  # start of the names of TensorBoard's files


Listener = Callable[[str, int, Mapping[str, Any]], None]  # kind of event, step, values


class RunLog:
    """One line in `log.jsonl` for each event, also sent to trackers and listeners.

    `resumed` is the step from which a run continues. Later lines are dropped, because the run will write them
    again; so is an incomplete last line. So a caller writes the lines of a step before its checkpoint.
    Without `resumed` the log begins anew; without a folder nothing is written. `listeners` get every line.
    """

    def __init__(
        self,
        folder: Path | None,
        trackers: Sequence[str] = (),
        resumed: int | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._listeners = tuple(listeners)
        self._file: IO[bytes] | None = None
        self._trackers: list[Tracker] = []
        if folder is not None:
            self._path = folder / LOG
            before = {} if resumed is None or not trackers else _tracker_ids(self._path)
            self._trackers = [open_tracker(name, folder, resumed, before.get(name)) for name in trackers]
            self._file = _open_log(self._path, resumed)
            for name, tracker in zip(trackers, self._trackers, strict=True):
                if tracker.id is not None and tracker.id != before.get(name):
                    self.write(TRACKED, 0, by=name, id=tracker.id)

    def write(self, kind: str, step: int, **values: object) -> None:
        """Log the values of a step, and the time, under a kind such as "train" or "validation"."""
        plain = {name: _json_value(value) for name, value in values.items()}
        if self._file is not None:
            line = {"kind": kind, "step": step, "time": round(time.time(), 3), **plain}
            try:
                self._file.write(_line(line))
            except OSError as error:
                raise DataError(f"cannot be written ({error.strerror or error})", file=self._path) from error
        for tracker in self._trackers:
            for name, number in _numbers(plain, kind).items():
                tracker.add_scalar(name, number, step)
        for listener in self._listeners:
            listener(kind, step, plain)

    def close(self) -> None:
        """Close the file and the trackers."""
        for log in (self._file, *self._trackers):
            if log is not None:
                log.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log without an incomplete last line, which a killed run may leave."""
    lines = path.read_text("utf-8").split("\n")[:-1] if path.is_file() else []
    try:
        events = [json.loads(line) for line in lines]
        if all(isinstance(event["step"], int) for event in events):
            return events
    except (ValueError, TypeError, KeyError):
        pass
    raise DataError("is not the log of a run", file=path, remedy="give it another name")


def _tracker_ids(path: Path) -> dict[str, str]:
    """Return the ids of a log's trackers by their names."""
    return {line["by"]: line["id"] for line in read_log(path) if line["kind"] == TRACKED}


def _open_log(path: Path, resumed: int | None) -> IO[bytes]:
    """Open a log for more lines, and keep the lines up to the step `resumed`."""
    events = [] if resumed is None else [event for event in read_log(path) if event["step"] <= resumed]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written(path, "wb") as file:
            file.writelines(map(_line, events))
        return open(path, "ab", buffering=0)  # so that no part of a line is pending
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=path) from error


def _line(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _json_value(value: Any) -> Any:  # noqa: ANN401
    """Return the value for JSON: numbers of NumPy and torch become Python's, and NaN and infinity null."""
    if isinstance(value, Mapping):
        return {str(name): _json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(inner) for inner in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(values: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Return the numbers among the values, under names such as "validation/P@1"."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _numbers(value, f"{prefix}/{name}")
        elif isinstance(value, int | float):
            found[f"{prefix}/{name}"] = value
    return found


class _Rate(ProgressColumn):
    """Column with the points per second over the last half minute."""

    def render(self, task: Task) -> Text:
        """Return the rate as `1,234 points/s`."""
        return Text("" if task.speed is None else f"{task.speed:,.0f} points/s")


class TrainingBar:
    """Progress of a training: a bar on a terminal, else lines."""

    def __init__(self, description: str, total: int, done: int = 0) -> None:
        self._bar: Progress | None = terminal_bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[loss]}"),
            _Rate(),
            TextColumn("{task.fields[figure]}", markup=False),
            TimeRemainingColumn(),
        )
        self._lines = lines(description, total, done) if self._bar is None else None
        if self._bar is not None:
            self._task = self._bar.add_task(description, total=total, completed=done, loss="", figure="")

    @property
    def visible(self) -> bool:
        """True if there is a bar; if not, a caller need not fetch the loss from the device."""
        return self._bar is not None

    def advance(self, points: int, loss: float | None = None) -> None:
        """Advance by so many points; show the loss if it is given."""
        if self._bar is not None:
            shown = {} if loss is None else {"loss": f"loss {loss:.4g}"}
            self._bar.update(self._task, advance=points, **shown)  # type: ignore[arg-type]
        if self._lines is not None:
            self._lines.advance(points)

    def show_figure(self, figure: str) -> None:
        """Show a figure of the validation, such as "P@1 41.2"."""
        if self._bar is not None:
            self._bar.update(self._task, figure=figure)
        if self._lines is not None:
            self._lines.note = figure

    def __enter__(self) -> TrainingBar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
