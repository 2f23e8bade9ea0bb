"""Find and read files, and write files and folders so that a failure leaves the old ones."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from gandalf.data.claim import OLD, PART, is_leftover, only_writer, remove, temporary_name
from gandalf.data.compression import COMPRESS, DamagedError, read_chunks, uncompressed
from gandalf.errors import DataError, Findings, argument

COMPRESSIONS = ("", ".gz", ".zst")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # full disk, full quota, limit on the size of files
BLOCK_BYTES = 8 << 20  # text in a block: enough for NumPy to be efficient, little against a data set


class TextBlock(NamedTuple):
    """Whole lines of a file, each ended by a newline, and the number of the first one."""

    first_line: int  # counted from 1
    data: bytes


# ---- reading


def find_file(folder: Path, stems: Iterable[str]) -> Path | None:
    """Return the first of these files that exists in `folder`, plain or compressed, or None."""
    for stem in stems:
        for suffix in COMPRESSIONS:
            path = folder / f"{stem}{suffix}"
            if path.is_file():
                return path
            if path.exists() or path.is_symlink():
                what = f"is {_kind_of(path)}, but a file is expected"
                remedy = "put the file there, or rename what is there"
                raise DataError(what, remedy=remedy, file=path, kind="missing-file")
    return None


def _kind_of(path: Path) -> str:
    """Name the kind of a path that is not a regular file."""
    if path.is_dir():
        return "a folder"
    return "no regular file" if path.exists() else "a link to nothing"


def plain_name(path: Path) -> str:
    """Return the name of the file without the suffix of a compression."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


def read_blocks(path: Path, findings: Findings, size: int = BLOCK_BYTES) -> Iterator[TextBlock]:
    """Yield the decompressed file as blocks of whole lines of about `size` bytes, with a progress bar."""
    line, rest = 1, list[bytes]()
    try:
        for chunk in read_chunks(path, size, show=True):
            end = chunk.rfind(b"\n") + 1
            if not end:
                rest.append(chunk)
                continue
            block = TextBlock(line, b"".join([*rest, chunk[:end]]))
            rest = [chunk[end:]] if end < len(chunk) else []
            yield block
            line += block.data.count(b"\n")
    except DamagedError:
        what = f"the compressed data is cut short or damaged; it can be read up to line {line}"
        findings.error("truncated-file", what, remedy="download or copy it again", file=path, line=line)
        return
    if any(rest):
        yield TextBlock(line, b"".join([*rest, b"\n"]))


def read_lines(path: Path, findings: Findings) -> Iterator[tuple[int, str]]:
    """Yield (line number, text without its newline) for every line, which must be UTF-8."""
    for block in read_blocks(path, findings, size=1 << 20):
        try:
            lines = block.data.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            lines = list(_decode_each(block, path, findings))
        lines.pop()  # the empty rest after the last newline
        for number, line in enumerate(lines, start=block.first_line):
            yield number, line.removesuffix("\r")


def _decode_each(block: TextBlock, path: Path, findings: Findings) -> Iterator[str]:
    for number, line in enumerate(block.data.split(b"\n"), start=block.first_line):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            what = f"byte {error.start + 1} of the line is not UTF-8"
            remedy = "save the file as UTF-8, for example with iconv -f latin1 -t utf-8"
            findings.error("broken-utf8", what, remedy=remedy, file=path, line=number)
            yield line.decode("utf-8", "replace")


def first_line(path: Path) -> str:
    """Return the first line of the file, or "" if it cannot be read; used to recognise layouts."""
    try:
        head = next(read_chunks(path, size=1 << 16), b"")
    except DamagedError:
        return ""
    return head.split(b"\n", 1)[0].decode("utf-8", "replace").removesuffix("\r")


# ---- writing


@contextmanager
def written(path: Path, mode: str = "w", *, sync: bool = False) -> Iterator[IO[Any]]:
    """Open a file that gets its name only after the body has succeeded; `.gz` and `.zst` are compressed.

    Equal content gives equal bytes, because the gzip header has neither time nor name. With `sync`, the file
    is on the disk when the body has ended, so that a power cut does not lose it.
    """
    _refuse_to_write(path)
    temporary = temporary_name(path, PART)
    try:
        with open(temporary, "wb") as raw, COMPRESS.get(path.suffix, uncompressed)(raw) as packed:
            if "b" in mode:
                yield packed
            else:
                with io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text:
                    yield text
        if sync:
            sync_path(temporary)
        os.replace(temporary, path)
        if sync:
            sync_path(path.parent)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=path) from error
    finally:
        temporary.unlink(missing_ok=True)


def _refuse_to_write(path: Path) -> None:
    # A rename would replace a device such as /dev/full.
    if not path.name or (path.exists() and not path.is_file()):
        what = f"is {_kind_of(path)}, so no file can be written there"
        raise DataError(what, file=path, remedy="choose another name")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file of these lines, each with its newline, as `written` does."""
    with written(path) as file:
        file.writelines(lines)


@contextmanager
def moved_in(folder: Path, name: str) -> Iterator[Path]:
    """Yield a temporary folder for a library that writes files itself; after the body, move them into
    `folder`.

    Such a library may write temporary files, which would be left in `folder` if the process is killed.
    """
    inner = temporary_name(folder / name, PART)
    try:
        inner.mkdir()
        yield inner
        for path in sorted(inner.iterdir()):
            os.replace(path, folder / path.name)
    finally:
        if inner.exists():
            remove(inner)


def sync_path(path: Path) -> None:
    """Wait until a file, or the list of names of a folder, is on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # only POSIX systems can open a folder
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path, *, spare: Collection[str] = ()) -> None:
    """Wait until a folder, without the names in `spare`, and its own name are on the disk."""
    for path in folder.iterdir():
        if path.name in spare or path.is_symlink():
            continue
        if path.is_dir():
            sync_folder(path)
        else:
            sync_path(path)
    sync_path(folder)
    sync_path(folder.parent)


@contextmanager
def new_folder(path: Path, *, overwrite: bool = False, inner: Collection[str] = ()) -> Iterator[Path]:
    """Yield a folder to fill, which gets its name only after the body has succeeded.

    An existing folder that is not empty is refused. With `overwrite`, it is replaced at the end, when the new
    folder is on the disk, unless it has subfolders whose names are not in `inner`. Other writers are refused
    meanwhile.
    """
    path = Path(path).resolve()
    refuse_to_replace(path, overwrite, inner)
    with only_writer(path, parents=True):
        refuse_to_replace(path, overwrite, inner)  # again, because another writer may have changed it
        temporary = temporary_name(path, PART)
        try:
            temporary.mkdir()
        except OSError as error:
            raise DataError(f"cannot be written ({error.strerror or error})", file=path) from error
        try:
            yield temporary
            _rename_into_place(temporary, path)
        except OSError as error:
            if error.errno not in NO_ROOM:  # the body may read files, too
                raise
            raise DataError(f"cannot be written ({error.strerror})", file=path) from error
        finally:
            if temporary.exists():
                remove(temporary)


def _rename_into_place(temporary: Path, path: Path) -> None:
    """Give a filled folder its name, and remove the old one; `only_writer` repairs a kill in between."""
    if not path.exists():
        temporary.rename(path)
        return
    sync_folder(temporary)
    old = temporary_name(path, OLD)
    try:
        path.rename(old)
        temporary.rename(path)
    except BaseException:  # after Ctrl-C, too, a folder must have the name
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    sync_path(path.parent)
    remove(old)


def refuse_to_replace(path: Path, overwrite: bool, inner: Collection[str] = ()) -> None:
    """Raise a DataError for a folder that `new_folder` must not replace."""
    path = path.resolve()
    here = Path.cwd().resolve()
    if path == here or path in here.parents:
        what = "is the current folder, or a folder around it"
        raise DataError(what, remedy="name a new folder in it", file=path)
    if not path.exists():
        return
    if not path.is_dir():
        raise DataError("is a file, but a folder is needed", file=path, remedy="choose another name")
    held = [entry for entry in path.iterdir() if not is_leftover(entry.name)]
    if held and not overwrite:
        what = "the folder is not empty"
        remedy = f"choose another name, or overwrite it with {argument('overwrite', True)}"
        raise DataError(what, remedy=remedy, file=path)
    if any(entry.is_dir() and entry.name not in inner for entry in held):
        # A data set has no subfolders, and a mix only those of its parts. A folder with others was probably
        # named by mistake, for example a home folder.
        raise DataError("holds folders, so it is not replaced", file=path, remedy="choose another name")
