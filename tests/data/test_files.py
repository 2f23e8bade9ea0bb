"""Writes happen wholly or not at all, and leave nothing behind."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from gandalf.data.files import find_file, first_line, new_folder, read_blocks, read_lines, written
from gandalf.errors import DataError, Findings


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_appears_only_when_all_of_it_is_written(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), written(path) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_text() == "old" and names(tmp_path) == ["a.txt"]
    with written(path) as file:
        file.write("नया\n")
        assert path.read_text() == "old"
        assert re.fullmatch(r"\.a\.txt\.[0-9a-f]{8}\.part", min(names(tmp_path)))
    assert path.read_bytes() == "नया\n".encode() and names(tmp_path) == ["a.txt"]


def test_gzip_bytes_depend_on_the_content_alone(tmp_path):
    for name in ("a.gz", "b.gz"):
        with written(tmp_path / name) as file:
            file.write("same\n")
    first = (tmp_path / "a.gz").read_bytes()
    assert first == (tmp_path / "b.gz").read_bytes()
    assert first[4:8] == b"\0\0\0\0" and first[3] == 0, "no time stamp, no file name"
    assert gzip.decompress(first) == b"same\n"


def test_zstd_is_written_and_read_back(tmp_path):
    with written(tmp_path / "a.txt.zst") as file:
        file.write("एक\ntwo\n")
    assert (tmp_path / "a.txt.zst").read_bytes().startswith(b"\x28\xb5\x2f\xfd")
    assert list(read_lines(tmp_path / "a.txt.zst", Findings())) == [(1, "एक"), (2, "two")]


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    sentence = r"missing/a.txt: cannot be written \(No such file"
    with pytest.raises(DataError, match=sentence), written(tmp_path / "missing" / "a.txt") as file:
        file.write("x")


def test_a_folder_takes_its_name_only_when_it_is_full(tmp_path):
    with pytest.raises(RuntimeError), new_folder(tmp_path / "out") as folder:
        (folder / "a").write_text("x")
        raise RuntimeError
    assert names(tmp_path) == []
    with new_folder(tmp_path / "deep" / "out") as folder:
        (folder / "a").write_text("x")
        assert names(tmp_path / "deep") == sorted([folder.name, ".out.lock"])
        assert re.fullmatch(r"\.out\.[0-9a-f]{8}\.part", folder.name)
    assert names(tmp_path / "deep") == ["out"] and names(tmp_path / "deep" / "out") == ["a"]


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with new_folder(out) as folder:  # an empty one may be filled
        (folder / "a").write_text("old")
    with pytest.raises(DataError, match="the folder is not empty"), new_folder(out):
        pass
    with pytest.raises(RuntimeError), new_folder(out, overwrite=True) as folder:
        (folder / "b").write_text("new")
        raise RuntimeError
    assert names(out) == ["a"] and names(tmp_path) == ["out"]
    with new_folder(out, overwrite=True) as folder:
        (folder / "b").write_text("new")
    assert names(out) == ["b"] and names(tmp_path) == ["out"]


def test_overwriting_spares_files_and_folders_of_folders(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "home" / "mail").mkdir(parents=True)
    with pytest.raises(DataError, match="is a file, but a folder is needed"), new_folder(tmp_path / "file"):
        pass
    with pytest.raises(DataError, match="holds folders"), new_folder(tmp_path / "home", overwrite=True):
        pass
    assert names(tmp_path) == ["file", "home"] and names(tmp_path / "home") == ["mail"]


def test_find_takes_the_first_name_that_exists(tmp_path):
    assert find_file(tmp_path, ["a.txt", "b.txt"]) is None
    (tmp_path / "b.txt.zst").touch()
    assert find_file(tmp_path, ["a.txt", "b.txt"]) == tmp_path / "b.txt.zst"
    (tmp_path / "a.txt.gz").touch()
    assert find_file(tmp_path, ["a.txt", "b.txt"]) == tmp_path / "a.txt.gz"


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n"])
def test_blocks_are_whole_lines_with_their_numbers(size, end, tmp_path, monkeypatch):
    monkeypatch.setattr("gandalf.data.compression._READ_BYTES", 16)
    lines = [f"{number} " + "x" * (number % 37) for number in range(200)]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines) + end)
    seen = {}
    for block in read_blocks(path, Findings(), size):
        assert block.data.endswith(b"\n")
        for number, line in enumerate(block.data.decode().splitlines(), start=block.first_line):
            seen[number] = line
    assert seen == dict(enumerate(lines, start=1))


def test_lines_end_at_newlines_only_and_a_byte_order_mark_is_dropped(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\u2028still one\r\n\r\nthree\x0cthree".encode())
    assert list(read_lines(path, Findings())) == [(1, "one\u2028still one"), (2, ""), (3, "three\x0cthree")]
    assert first_line(path) == "one\u2028still one"


def test_a_missing_or_empty_file(tmp_path):
    (tmp_path / "empty").touch()
    assert list(read_lines(tmp_path / "empty", Findings())) == []
    assert first_line(tmp_path / "empty") == ""
    with pytest.raises(DataError, match=r"nothing: cannot be read \(No such file"):
        list(read_lines(tmp_path / "nothing", Findings()))


@pytest.mark.parametrize("name", [".", "/", "/dev/null", "/dev/full"])
def test_only_a_regular_file_is_replaced(name):
    with pytest.raises(DataError, match="no file can be written there; choose another name"):
        written(Path(name)).__enter__()
    assert not Path("/dev/null").is_file() and Path("/dev/null").exists()


def test_a_folder_is_not_replaced_by_a_file(tmp_path):
    with pytest.raises(DataError, match="is a folder, so no file"), written(tmp_path):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_the_folder_one_stands_in_is_not_replaced(name, tmp_path, monkeypatch):
    here = tmp_path / "outer" / "inner"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    for overwrite in (False, True):
        with (
            pytest.raises(DataError, match="is the current folder, or a folder around it"),
            new_folder(Path(name), overwrite=overwrite),
        ):
            pass
    assert names(tmp_path / "outer") == ["inner"]
