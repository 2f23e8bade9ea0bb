"""Examples for a trained model: texts whose labels are known, from a table or a data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gandalf.errors import DataError


@dataclass(frozen=True)
class Example:
    """A text and labels that it is known to have; a value below 0 says that it does not have the label."""

    text: str
    labels: Sequence[str | int]  # ids or texts, or, as integers, numbers of labels
    values: Sequence[float] | None = None  # one for each label, from -1 to 1; None: all are 1
    id: str | None = None  # by which it can be removed; None: one is made up

    def checked(self) -> Example:
        """Return the example, or say what is wrong with it."""
        if not isinstance(self.text, str) or not self.text.strip():
            raise DataError("an example has no text", remedy="give the text that has the labels")
        if isinstance(self.labels, str) or not self.labels:
            what = f"the example {self.text[:60]!r} has no list of labels"
            raise DataError(what, remedy="name at least one label by its id or text")
        if self.values is not None and len(self.values) != len(self.labels):
            found = f"{len(self.labels)} labels and {len(self.values)} values"
            what = f"the example {self.text[:60]!r} has {found}"
            raise DataError(what, remedy="give one value for each label, or none")
        for value in self.values or ():
            if not (math.isfinite(value) and -1 <= value <= 1):
                what = f"the example {self.text[:60]!r} has the value {value}"
                raise DataError(what, remedy="values lie between -1 (surely not) and 1 (surely)")
        return self
