"""Read and write plain, gzip or zstd files. Reading recognises the compression by content, not by name."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from gandalf.data.unpack_limits import limit_unpacked
from gandalf.errors import DataError
from gandalf.progress import Meter, meter

_READ_BYTES = 1 << 18  # read from disk at a time; small, because compressed blocks may expand a lot
_UNPACK_BYTES = 1 << 12  # decompressed at a time; zstd may expand a block 30,000 times
_MANY_RETURNS = 10  # carriage returns in a first chunk without a newline that prove old Mac line ends
_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


class DamagedError(Exception):
    """The rest of a compressed file cannot be read."""


def read_chunks(path: Path, size: int, *, show: bool = False) -> Iterator[bytes]:
    """Yield decompressed pieces of about `size` bytes, without a byte order mark; `show` a progress bar."""
    try:
        with open(path, "rb") as file, ExitStack() as stack:
            kind = _compression_of(file.read(4))
            file.seek(0)
            bar = stack.enter_context(meter(f"reading {path.name}", path.stat().st_size)) if show else None
            unpacked = _DECOMPRESS[kind](_read_pieces(file, bar), path)
            pieces = _joined_pieces(unpacked if kind == "plain" else limit_unpacked(unpacked, path), size)
            first = next(pieces, b"")
            _refuse_utf16(first, path)
            _refuse_bare_returns(first, len(first) < size, path)
            yield first.removeprefix(_BOM)
            yield from pieces
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error


def is_packed(path: Path) -> bool:
    """Return True if the file is gzip or zstd."""
    try:
        with open(path, "rb") as file:
            return _compression_of(file.read(4)) != "plain"
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error


def _refuse_utf16(head: bytes, path: Path) -> None:
    if head.startswith(_UTF16_BOMS):
        what = "the file is UTF-16, and text must be UTF-8"
        remedy = "convert it, for example with iconv -f utf-16 -t utf-8"
        raise DataError(what, remedy=remedy, file=path, line=1, kind="broken-utf8")


def _refuse_bare_returns(head: bytes, whole: bool, path: Path) -> None:
    """Refuse lines that end in a carriage return alone; they would be read as a single line."""
    is_one_line = b"\n" not in head and b"\0" not in head  # a NUL byte: not a text file at all
    if is_one_line and head.rstrip(b"\r").count(b"\r") >= (1 if whole else _MANY_RETURNS):
        what = "the lines end in a carriage return alone"
        remedy = "write newlines, for example with tr '\\r' '\\n'"
        raise DataError(what, remedy=remedy, file=path, line=1, kind="bad-line-ends")


def _joined_pieces(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    held, length = [], 0
    try:
        for piece in pieces:
            held.append(piece)
            length += len(piece)
            if length >= size:
                yield b"".join(held)
                held, length = [], 0
    except DamagedError:
        yield b"".join(held)  # the bytes before the damage are good
        raise
    if held:
        yield b"".join(held)


def _compression_of(head: bytes) -> str:
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    return "zstd" if head == b"\x28\xb5\x2f\xfd" else "plain"


def _read_pieces(file: IO[bytes], bar: Meter | None) -> Iterator[bytes]:
    while piece := file.read(_READ_BYTES):
        if bar is not None:
            bar.advance(len(piece))
        yield piece


def _small_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), _UNPACK_BYTES):
            yield piece[start : start + _UNPACK_BYTES]


def _keep_pieces(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    return pieces


def _gunzip(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    return _inflate(_small_pieces(pieces), lambda: zlib.decompressobj(wbits=31), zlib.error)


def _unzstd(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    zstandard = _import_zstandard("reading", path)
    return _inflate(_small_pieces(pieces), zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError)


def _inflate(packed: Iterator[bytes], member: Callable[[], Any], failure: type[Exception]) -> Iterator[bytes]:
    """Decompress one or more members, such as those of `cat a.gz b.gz`."""
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
                piece = state.unused_data.lstrip(b"\0")  # some tools pad with zeros
                state, started = member(), False
    if started:
        raise DamagedError


_DECOMPRESS: dict[str, Callable[[Iterator[bytes], Path], Iterator[bytes]]] = {
    "plain": _keep_pieces,
    "gzip": _gunzip,
    "zstd": _unzstd,
}


# ---- writing


@contextmanager
def uncompressed(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """Write bytes as they are."""
    yield raw


@contextmanager
def _compress_gzip(raw: IO[bytes]) -> Iterator[gzip.GzipFile]:
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
        yield packed


@contextmanager
def _compress_zstd(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    compressor = _import_zstandard("writing").ZstdCompressor(write_checksum=True)
    with compressor.stream_writer(raw, closefd=False) as packed:
        yield packed


# Suffix of a file name -> function that compresses the bytes written to the file.
COMPRESS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {
    ".gz": _compress_gzip,
    ".zst": _compress_zstd,
}


def _import_zstandard(doing: str, path: Path | None = None) -> Any:  # noqa: ANN401  a module of an optional extra
    try:
        import zstandard
    except ImportError as error:
        raise DataError(
            f"{doing} zstd files needs zstandard", file=path, remedy="pip install 'gandalf-xmc[zstd]'"
        ) from error
    return zstandard
