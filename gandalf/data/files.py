"""Bytes on disk: plain, gzip or zstd told apart by content, and writes that happen wholly or not at all."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from gandalf.errors import DataError, Findings
from gandalf.progress import Meter, meter

COMPRESSIONS = ("", ".gz", ".zst")
BLOCK_BYTES = 8 << 20  # of text handed on at once: enough for NumPy to pay off, little beside a data set

_READ_BYTES = 1 << 18  # of the file as it is on disk; small, because compressed blocks may expand a lot
_BOM = b"\xef\xbb\xbf"


class Block(NamedTuple):
    """Whole lines of a file, each ended by a newline, and the number of the first one."""

    first_line: int  # counted from 1
    data: bytes


def find(folder: Path, stems: Iterable[str]) -> Path | None:
    """The file in `folder` under the first of these names that exists, plain or compressed."""
    for stem in stems:
        for suffix in COMPRESSIONS:
            path = folder / f"{stem}{suffix}"
            if path.is_file():
                return path
    return None


def plain_name(path: Path) -> str:
    """The file's name without the suffix of its compression."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


def read_blocks(path: Path, findings: Findings, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """Yield the file's decompressed bytes as blocks of whole lines of about `size` bytes, with a bar."""
    line, rest = 1, b""
    try:
        for chunk in _chunks(path, size, show=True):
            end = chunk.rfind(b"\n") + 1
            if not end:
                rest += chunk
                continue
            block = Block(line, rest + chunk[:end])
            rest = chunk[end:]
            yield block
            line += block.data.count(b"\n")
    except _DamagedError:
        findings.error(
            "truncated-file",
            f"the compressed data is cut short or damaged; it can be read up to line {line}",
            remedy="download or copy it again",
            file=path,
            line=line,
        )
        return
    if rest:
        yield Block(line, rest + b"\n")


def read_lines(path: Path, findings: Findings) -> Iterator[tuple[int, str]]:
    """Yield (line number, text without its newline) for every line, which must be UTF-8."""
    for block in read_blocks(path, findings, size=1 << 20):
        try:
            lines = block.data.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            lines = list(_decode_each(block, path, findings))
        lines.pop()  # what follows the last newline
        for number, line in enumerate(lines, start=block.first_line):
            yield number, line.removesuffix("\r")


def first_line(path: Path) -> str:
    """The first line of the file, or as much of it as is readable: enough to recognise a layout by."""
    try:
        head = next(_chunks(path, size=1 << 16), b"")
    except _DamagedError:
        return ""
    return head.split(b"\n", 1)[0].decode("utf-8", "replace").removesuffix("\r")


@contextmanager
def written(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that appears under its name only when the body has succeeded; `.gz` and `.zst` compress.

    The same content always gives the same bytes: no time stamp and no file name goes into a gzip header.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with open(temporary, "wb") as raw, _COMPRESS.get(path.suffix, _as_is)(raw) as packed:
            if "b" in mode:
                yield packed
            else:
                with io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text:
                    yield text
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=path) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill that takes its name only when the body has succeeded.

    A folder that already holds something is left alone, or, with `overwrite`, replaced at the very end.
    """
    path = Path(path).resolve()
    _refuse_to_replace(path, overwrite)
    mark = uuid.uuid4().hex[:8]
    temporary, old = path.with_name(f".{path.name}.{mark}.part"), path.with_name(f".{path.name}.{mark}.old")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=path) from error
    try:
        yield temporary
        if path.exists():
            path.rename(old)
        try:
            temporary.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _refuse_to_replace(path: Path, overwrite: bool) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise DataError("is a file where a folder is to be written", file=path, remedy="choose another name")
    if any(path.iterdir()) and not overwrite:
        raise DataError(
            "the folder is not empty",
            file=path,
            remedy="choose another name, or overwrite it with --overwrite",
        )
    if any(entry.is_dir() for entry in path.iterdir()):
        # A data set is a flat folder. Anything deeper is more likely a slip, such as someone's home.
        raise DataError("holds folders, so it is not replaced", file=path, remedy="choose another name")


# ---- reading


class _DamagedError(Exception):
    """What follows in a compressed file cannot be read."""


def _chunks(path: Path, size: int, *, show: bool = False) -> Iterator[bytes]:
    """Decompressed bytes, gathered to about `size`, without a byte order mark; with a bar to `show` them."""
    try:
        with open(path, "rb") as file, ExitStack() as stack:
            kind = _kind(file.read(4))
            file.seek(0)
            bar = stack.enter_context(meter(f"reading {path.name}", path.stat().st_size)) if show else None
            pieces = _gathered(_DECOMPRESS[kind](_pieces(file, bar), path), size)
            yield next(pieces, b"").removeprefix(_BOM)
            yield from pieces
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error


def _gathered(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    held, length = [], 0
    try:
        for piece in pieces:
            held.append(piece)
            length += len(piece)
            if length >= size:
                yield b"".join(held)
                held, length = [], 0
    except _DamagedError:
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


def _plain(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    return pieces


def _gunzip(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    return _inflate(pieces, lambda: zlib.decompressobj(wbits=31), zlib.error)


def _unzstd(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    zstandard = _zstandard("reading", path)
    return _inflate(pieces, zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError)


def _inflate(packed: Iterator[bytes], member: Callable[[], Any], failure: type[Exception]) -> Iterator[bytes]:
    """Decompress members that follow one another, as `cat a.gz b.gz` makes them."""
    state = member()
    started = False
    for piece in packed:
        while piece:
            try:
                out = state.decompress(piece)
            except failure as error:
                raise _DamagedError from error
            started, piece = True, b""
            if out:
                yield out
            if state.eof:
                piece = state.unused_data.lstrip(b"\0")  # tape drives and some tools pad with zeros
                state, started = member(), False
    if started:
        raise _DamagedError


def _decode_each(block: Block, path: Path, findings: Findings) -> Iterator[str]:
    for number, line in enumerate(block.data.split(b"\n"), start=block.first_line):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            findings.error(
                "broken-utf8",
                f"byte {error.start + 1} of the line is not UTF-8",
                remedy="save the file as UTF-8, for example with iconv -f latin1 -t utf-8",
                file=path,
                line=number,
            )
            yield line.decode("utf-8", "replace")


_DECOMPRESS: dict[str, Callable[[Iterator[bytes], Path], Iterator[bytes]]] = {
    "plain": _plain,
    "gzip": _gunzip,
    "zstd": _unzstd,
}


# ---- writing


@contextmanager
def _as_is(raw: IO[bytes]) -> Iterator[IO[bytes]]:
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


_COMPRESS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {".gz": _gzipped, ".zst": _zstd}


def _zstandard(doing: str, path: Path | None = None) -> Any:  # noqa: ANN401  a module of an optional extra
    try:
        import zstandard
    except ImportError as error:
        raise DataError(
            f"{doing} zstd files needs zstandard", file=path, remedy="pip install 'gandalf-xmc[zstd]'"
        ) from error
    return zstandard
