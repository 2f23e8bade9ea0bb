"""Packed and unpacked bytes: plain, gzip or zstd, told apart by content when they are read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from gandalf.data.limits import limited
from gandalf.errors import DataError
from gandalf.progress import Meter, meter

_READ_BYTES = 1 << 18  # of the file as it is on disk; small, because compressed blocks may expand a lot
_FED_BYTES = 1 << 12  # unpacked at once: blocks of zstd may expand 30,000 times
_MANY_LINES = 10  # in the beginning of a file that has no newline there
_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


class DamagedError(Exception):
    """What follows in a compressed file cannot be read."""


def chunks(path: Path, size: int, *, show: bool = False) -> Iterator[bytes]:
    """Decompressed bytes, gathered to about `size`, without a byte order mark; with a bar to `show` them."""
    try:
        with open(path, "rb") as file, ExitStack() as stack:
            kind = _kind(file.read(4))
            file.seek(0)
            bar = stack.enter_context(meter(f"reading {path.name}", path.stat().st_size)) if show else None
            unpacked = _DECOMPRESS[kind](_pieces(file, bar), path)
            pieces = _gathered(unpacked if kind == "plain" else limited(unpacked, path), size)
            first = next(pieces, b"")
            _refuse_utf16(first, path)
            _refuse_bare_returns(first, len(first) < size, path)
            yield first.removeprefix(_BOM)
            yield from pieces
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error


def is_packed(path: Path) -> bool:
    """Whether the file is compressed as a whole."""
    try:
        with open(path, "rb") as file:
            return _kind(file.read(4)) != "plain"
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error


def _refuse_utf16(head: bytes, path: Path) -> None:
    if head.startswith(_UTF16_BOMS):
        raise DataError(
            "the file is UTF-16, and text must be UTF-8",
            remedy="convert it, for example with iconv -f utf-16 -t utf-8",
            file=path,
            line=1,
            kind="broken-utf8",
        )


def _refuse_bare_returns(head: bytes, whole: bool, path: Path) -> None:
    """Refuse lines that end as on the oldest Macs: all of them would be read as one. A NUL is in no text."""
    is_one_line = b"\n" not in head and b"\0" not in head
    if is_one_line and head.rstrip(b"\r").count(b"\r") >= (1 if whole else _MANY_LINES):
        raise DataError(
            "the lines end in a carriage return alone",
            remedy="write newlines, for example with tr '\\r' '\\n'",
            file=path,
            line=1,
            kind="bad-line-ends",
        )


def _gathered(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    held, length = [], 0
    try:
        for piece in pieces:
            held.append(piece)
            length += len(piece)
            if length >= size:
                yield b"".join(held)
                held, length = [], 0
    except DamagedError:
        yield b"".join(held)  # what came before the damage is good
        raise
    if held:
        yield b"".join(held)


def _kind(head: bytes) -> str:
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    return "zstd" if head == b"\x28\xb5\x2f\xfd" else "plain"


def _pieces(file: IO[bytes], bar: Meter | None) -> Iterator[bytes]:
    while piece := file.read(_READ_BYTES):
        if bar is not None:
            bar.advance(len(piece))
        yield piece


def _smaller(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), _FED_BYTES):
            yield piece[start : start + _FED_BYTES]


def _plain(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    return pieces


def _gunzip(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    return _inflate(_smaller(pieces), lambda: zlib.decompressobj(wbits=31), zlib.error)


def _unzstd(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    zstandard = _zstandard("reading", path)
    return _inflate(_smaller(pieces), zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError)


def _inflate(packed: Iterator[bytes], member: Callable[[], Any], failure: type[Exception]) -> Iterator[bytes]:
    """Decompress members that follow one another, as `cat a.gz b.gz` makes them."""
    state = member()
    started = False
    for piece in packed:
        while piece:
            try:
                out = state.decompress(piece)
            except failure as error:
                raise DamagedError from error
            started, piece = True, b""
            if out:
                yield out
            if state.eof:
                piece = state.unused_data.lstrip(b"\0")  # tape drives and some tools pad with zeros
                state, started = member(), False
    if started:
        raise DamagedError


_DECOMPRESS: dict[str, Callable[[Iterator[bytes], Path], Iterator[bytes]]] = {
    "plain": _plain,
    "gzip": _gunzip,
    "zstd": _unzstd,
}


# ---- writing


@contextmanager
def as_is(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """Write bytes as they are."""
    yield raw


@contextmanager
def _gzipped(raw: IO[bytes]) -> Iterator[gzip.GzipFile]:
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
        yield packed


@contextmanager
def _zstd(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    compressor = _zstandard("writing").ZstdCompressor(write_checksum=True)
    with compressor.stream_writer(raw, closefd=False) as packed:
        yield packed


# Suffix of a name -> what wraps the file under it.
COMPRESS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {".gz": _gzipped, ".zst": _zstd}


def _zstandard(doing: str, path: Path | None = None) -> Any:  # noqa: ANN401  a module of an optional extra
    try:
        import zstandard
    except ImportError as error:
        raise DataError(
            f"{doing} zstd files needs zstandard", file=path, remedy="pip install 'gandalf-xmc[zstd]'"
        ) from error
    return zstandard
