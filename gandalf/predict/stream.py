"""Read texts line by line from standard input, such as a pipe or a keyboard."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Protocol

from gandalf.data.formats.texts import clean
from gandalf.errors import DataError
from gandalf.predict.inputs import CHUNK, InputChunk

STANDARD_INPUT = "-"
BYTES = 1 << 20  # most bytes that are read at once


class Stream(Protocol):
    """A stream of bytes that returns what has arrived, and waits only if nothing has."""

    def read1(self, size: int, /) -> bytes:
        """Return at most `size` bytes, and at least one unless the stream has ended."""
        ...


def texts_of_stream(stream: Stream | None = None) -> Iterator[InputChunk]:
    """Yield the lines that have arrived, as soon as there is a complete line.

    So a text typed at a keyboard is answered at once, and a piped file is read in large chunks.
    """
    lines, rest = 0, b""
    source: Any = sys.stdin.buffer if stream is None else stream
    while came := source.read1(BYTES):
        *whole, rest = (rest + came).split(b"\n")
        for start in range(0, len(whole), CHUNK):
            yield InputChunk(_decoded(whole[start : start + CHUNK], lines + start))
        lines += len(whole)
    if rest:
        yield InputChunk(_decoded([rest], lines))


def _decoded(lines: list[bytes], before: int) -> list[str]:
    texts = []
    for number, line in enumerate(lines, start=before + 1):
        try:
            texts.append(clean(line.decode("utf-8")))
        except UnicodeDecodeError as error:
            what = f"line {number:,} of standard input is not UTF-8 at byte {error.start + 1}"
            raise DataError(what, remedy="convert it first, for example with iconv -t utf-8") from error
    return texts
