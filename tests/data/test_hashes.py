"""A file of a model that is not what was written is refused, whatever it would still mean."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec

import pytest
from command_line import done, fails
from small_parts import KINDS, small_part

from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.model.save import list_files
from gandalf.slim import SlimPredictor

needs_onnx = pytest.mark.skipif(
    find_spec("onnxscript") is None, reason="onnxscript is optional: extra [onnx]"
)
HISTORY = ("README.md", "metrics.json", "log.jsonl")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def all_files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def copy(small_folder, tmp_path):
    return shutil.copytree(small_folder, tmp_path / "copy")


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_in_any_file_is_refused(kind, tmp_path):
    folder = tmp_path / "m"
    save_model(small_part(kind), folder, metrics={"P@1": 50.0})
    for name in all_files(folder):
        kept = (folder / name).read_bytes()
        flip(folder / name)
        if name in HISTORY:
            load_model(folder)
        else:
            with pytest.raises(DataError):
                load_model(folder)
        (folder / name).write_bytes(kept)
    load_model(folder)


def test_a_bit_that_only_the_hash_tells(copy):
    flip(copy / "model.safetensors")
    with pytest.raises(DataError, match=r"model\.safetensors: is not what was written, by its hash"):
        load_model(copy)
    load_model(copy, verify=False)
    assert "--no-verify" in fails("predict", copy, "disk usage")
    for command in (("predict", "disk usage"), ("explain", "disk usage")):
        done(command[0], copy, command[1], "--no-verify")


def test_a_run_that_can_be_resumed_is_not_called_damaged(copy):
    (copy / "checkpoints").mkdir()
    flip(copy / "model.safetensors")
    said = fails("predict", copy, "disk usage")
    assert "of a run that is not finished; finish the run: gandalf train DATA OUT --resume" in said
    (copy / "config.json").write_text("{")
    assert "--resume" in fails("predict", copy, "disk usage")


def test_a_calibration_that_was_changed_is_refused(copy):
    config = json.loads((copy / "config.json").read_text("utf-8"))
    config["calibration"]["slope"] += 1
    (copy / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(DataError, match=r"config\.json: is not what was written"):
        load_model(copy)


def test_a_folder_without_hashes_loads_as_before(copy):
    config = json.loads((copy / "config.json").read_text("utf-8"))
    del config["sha256"]
    (copy / "config.json").write_text(json.dumps(config, indent=4), "utf-8")
    load_model(copy)
    (copy / "index.json").write_text("{}")
    list_files(copy, "index.json")
    assert "sha256" not in json.loads((copy / "config.json").read_text("utf-8"))


def test_a_file_that_is_listed_later_has_a_hash(copy):
    (copy / "index.json").write_text("{}")
    list_files(copy, "index.json")
    load_model(copy)
    (copy / "index.json").write_text("{ }")
    with pytest.raises(DataError, match=r"index\.json: is not what was written"):
        load_model(copy)


def test_commands_that_change_a_model_write_hashes(copy, tmp_path):
    (tmp_path / "new.txt").write_text("zstd files\n")
    (tmp_path / "more.csv").write_text("text,labels\npack a folder,L0\n")
    done("add-labels", copy, tmp_path / "new.txt", "--in-place")
    done("add-examples", copy, tmp_path / "more.csv", "-o", tmp_path / "remembers")
    for folder in (copy, tmp_path / "remembers"):
        hashed = json.loads((folder / "config.json").read_text("utf-8"))["sha256"]
        assert set(hashed) == set(all_files(folder)) - set(HISTORY)


@needs_onnx
def test_an_export_is_refused_like_a_model(copy, tmp_path):
    done("export", copy, tmp_path / "slim")
    for name in all_files(tmp_path / "slim"):
        kept = (tmp_path / "slim" / name).read_bytes()
        flip(tmp_path / "slim" / name)
        with pytest.raises(DataError):
            SlimPredictor(tmp_path / "slim")
        (tmp_path / "slim" / name).write_bytes(kept)
    flip(tmp_path / "slim" / "labels.jsonl")
    SlimPredictor(tmp_path / "slim", verify=False)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../b", ".", 5, None])
def test_no_name_of_a_hashed_file_leaves_the_folder(name, copy):
    from gandalf.model_folder import with_hashes

    config = json.loads((copy / "config.json").read_text("utf-8"))
    del config["sha256"]
    (copy.parent / "outside").write_text("x")
    config["files"].append(name)
    (copy / "config.json").write_text(json.dumps(with_hashes(config, copy / "config.json", [])), "utf-8")
    (copy.parent / "new.txt").write_text("zstd\n")
    assert "not in its folder" in fails(
        "add-labels", copy, copy.parent / "new.txt", "-o", copy.parent / "out"
    )
    assert (copy.parent / "outside").read_text() == "x"


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/hostname", "a/../../b", "C:outside", "a\\b", "a\0b", "", 5]
)
def test_no_name_in_a_folder_leads_out_of_it(name, copy):
    """Of a hashed file, of a part of a mix, and of a part of an exported mix: one function confines them."""
    from gandalf.model_folder import HASHES, _facts_hash
    from gandalf.wide.mixing import read_composition

    path = copy / "config.json"
    with pytest.raises(DataError, match="not in its folder"):
        read_composition([name], [1.0], path)
    if isinstance(name, str):
        config = json.loads(path.read_text("utf-8"))
        del config[HASHES]
        hashes = {name: "0" * 64}
        config[HASHES] = hashes | {path.name: _facts_hash(config, hashes)}
        path.write_text(json.dumps(config), "utf-8")
        with pytest.raises(DataError, match="not in its folder"):
            load_model(copy)
