"""List the layouts of data sets; each has a module that recognises, reads and writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gandalf.data.dataset import Splits
from gandalf.data.formats import pecos, raw, renee, table, xc
from gandalf.data.formats.table_options import OPTIONS, TableOptions
from gandalf.errors import Findings


@dataclass(frozen=True)
class Layout:
    """A way to store a data set in files."""

    name: str
    recognise: Callable[[Path], bool]
    read: Callable[[Path, Findings, TableOptions], Splits]
    options: tuple[str, ...] = ()  # names of the table options that the layout uses


TABLE = Layout("table", table.recognise, table.read, OPTIONS)
# The order matters: a sparse layout may have raw texts beside it, and almost any folder could be a table.
LAYOUTS = (
    Layout("sparse", xc.recognise, xc.read),
    Layout("raw", raw.recognise, raw.read),
    Layout("renee", renee.recognise, renee.read),
    Layout("pecos", pecos.recognise, pecos.read, ("labels", "test")),
    TABLE,
)
