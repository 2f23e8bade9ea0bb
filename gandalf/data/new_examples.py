"""Define `Example`, a text with known labels that is added to a trained model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gandalf.errors import DataError


@dataclass(frozen=True)
class Example:
    """A text and its known labels; a value below 0 means that the text does not have the label."""

    text: str
    labels: Sequence[str | int]  # label ids or label texts; integers are label numbers
    values: Sequence[float] | None = None  # one for each label, from -1 to 1; None: all are 1
    id: str | None = None  # for removing the example later; None: an id is generated

    def checked(self) -> Example:
        """Return the example; raise a DataError if it is not valid."""
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
