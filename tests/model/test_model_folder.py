"""A model folder: an exact round trip for every encoder, nothing pickled, a sentence for every damage."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from small_model import LABELS, OPTIONS, small_model

from gandalf.errors import DataError
from gandalf.model import Calibration, Model, load_model, save_model
from gandalf.nets.encoders import ENCODERS
from gandalf.nets.heads import Table

TEXTS = ["compress a file", "", "gzip bzip2 gzip usage", "nie gesehene Wörter 漢字"]
METRICS = {
    "P@1": 51.25,
    "PSP@5": 40.0,
    "points": 1234,
    "label_text": {"P@1": 70.0, "PSP@5": 61.0, "points": 1000},
    "new_text": {"P@1": 30.5, "PSP@5": 20.0, "points": 234},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "m"
    save_model(small_model(), folder, metrics=METRICS)
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def test_every_encoder_has_a_small_one_here():
    assert {options["kind"] for options in OPTIONS.values()} == set(ENCODERS)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ids", [True, False])
def test_round_trip(kind, dtype, ids, tmp_path):
    model = small_model(kind, seed=3, ids=ids)
    model.head.to(dtype)
    if hasattr(model.encoder, "weigh"):
        model.encoder.weigh(torch.from_numpy(model.tokens.idf()))  # buffers travel too
    save_model(model, tmp_path / "m")
    drawn = torch.random.get_rng_state()
    found = load_model(tmp_path / "m")
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert (found.label_texts, found.label_ids) == (model.label_texts, model.label_ids)
    assert (found.config, found.calibration) == (model.config, model.calibration)
    assert found.head.rows.dtype == dtype and found.head.rows.requires_grad
    for part in ("encoder", "head"):
        before, after = getattr(model, part).state_dict(), getattr(found, part).state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(found.vectors(TEXTS), model.vectors(TEXTS))
    assert not found.encoder.training


def test_the_same_model_gives_the_same_bytes(saved, tmp_path):
    save_model(small_model(), tmp_path / "again", metrics=METRICS)
    names = {path.name for path in saved.iterdir()}
    assert names == {path.name for path in (tmp_path / "again").iterdir()}
    assert names >= {"config.json", "model.safetensors", "labels.jsonl", "metrics.json", "README.md"}
    for name in names:
        assert (saved / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_files_are_plain(saved):
    assert len({path.stat().st_mode for path in saved.iterdir()}) == 1  # who may read one may read all
    assert json.loads((saved / "metrics.json").read_text("utf-8")) == METRICS
    records = [json.loads(line) for line in (saved / "labels.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert records == [{"id": f"L{index}", "text": text} for index, text in enumerate(LABELS)]
    config = json.loads((saved / "config.json").read_text("utf-8"))
    assert (config["labels"], config["dim"], config["config"]["system"]) == (5, 12, "tiny")
    assert config["calibration"] == {"slope": 2.0, "offset": -0.5}
    assert config["encoder"] == OPTIONS["bag-of-words"]


def test_the_card_tells_known_and_new_texts_apart(saved):
    card = (saved / "README.md").read_text("utf-8")
    assert "# tiny, trained on five labels" in card
    assert "| P@1 | 51.25 | 70.00 | 30.50 |" in card
    assert "| test points | 1,234 | 1,000 | 234 |" in card
    assert "calibrated on points held out" in card and "- epochs: 3" in card
    assert "at most 8 tokens" in card


def test_the_card_is_honest_about_what_is_not_known(tmp_path):
    save_model(small_model(calibrated=False), tmp_path / "m")
    card = (tmp_path / "m" / "README.md").read_text("utf-8")
    assert "Not measured" in card and "not calibrated" in card
    assert not (tmp_path / "m" / "metrics.json").exists()
    save_model(small_model(), tmp_path / "n", card="my own words\n")
    assert (tmp_path / "n" / "README.md").read_text("utf-8") == "my own words\n"


def test_shared_and_strided_tensors_are_saved(tmp_path):
    model = small_model()
    model.head.rows = torch.nn.Parameter(model.head.rows.detach().T.contiguous().T)  # not contiguous
    model.head.bias = torch.nn.Parameter(model.encoder.idf[: model.num_labels])  # part of another's memory
    save_model(model, tmp_path / "m")
    found = load_model(tmp_path / "m")
    assert torch.equal(found.head.rows, model.head.rows) and torch.equal(found.head.bias, model.head.bias)


def test_only_a_model_is_replaced(copy, tmp_path):
    model = small_model(seed=9)
    with pytest.raises(DataError, match="not empty"):
        save_model(model, copy)
    save_model(model, copy, overwrite=True)
    assert torch.equal(load_model(copy).head.rows, model.head.rows)
    (copy / "notes.txt").write_text("precious")
    with pytest.raises(DataError, match=r"notes\.txt, which is not part of a model"):
        save_model(model, copy, overwrite=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    with pytest.raises(DataError, match=r"config\.json, which is not part of a model"):
        save_model(model, other, overwrite=True)
    assert (other / "config.json").read_text() == "{}"


def test_a_failed_save_leaves_nothing(tmp_path):
    model = small_model()
    model.config["odd"] = object()
    with pytest.raises(TypeError):
        save_model(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (None, "does not say how its encoder is built"),
        ({"kind": "bag-of-words", "rate": 0.1}, "does not say how its encoder is built"),
        ({"kind": "bag-of-words", "dim": 13}, "is not the one that the model's config and tokens describe"),
        ({"kind": "inception"}, "is not the one that the model's config and tokens describe"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(options, sentence, tmp_path):
    model = small_model()
    model.config["encoder"] = options
    with pytest.raises(DataError, match=sentence):
        save_model(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_labels_must_fit_the_head():
    model = small_model()
    with pytest.raises(DataError, match="label_texts has 1 entries, and the head 5 labels"):
        Model(model.tokens, model.encoder, model.head, ["one"], None, {})
    with pytest.raises(DataError, match="label_ids"):
        Model(model.tokens, model.encoder, model.head, LABELS, ["one"], {})


def test_vectors_are_for_prediction_and_leave_the_encoder_as_it_was():
    model = small_model()
    model.encoder.train()
    first, second = model.vectors(TEXTS), model.vectors(TEXTS, batch=1)
    assert torch.allclose(first, second, atol=1e-6) and not first.requires_grad
    assert first.shape == (4, 12) and model.vectors([]).shape == (0, 12)
    assert model.encoder.training


# ---- damage


def edit(path, **changes):
    config = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(config | changes), "utf-8")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "labels.jsonl", "words.json"])
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_truncated(copy, name, keep):
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(DataError, match=name):
        load_model(copy)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "labels.jsonl", "words.json"])
def test_missing_or_foreign(copy, name):
    (copy / name).write_bytes(b"\x80\x02}q\x00.")  # what pickle writes for {}
    with pytest.raises(DataError, match=name):
        load_model(copy)
    (copy / name).unlink()
    with pytest.raises(DataError, match=name):
        load_model(copy)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "theirs"}, "does not describe a gandalf model"),
        ({"version": 2}, "version 2 of the format.*--upgrade"),
        ({"labels": 4}, r"labels\.jsonl.*of the 4 labels.*but 5"),
        ({"labels": "5"}, "labels is '5'"),
        ({"labels": True}, "labels is 'True'"),
        ({"labels": 0}, "labels is '0'"),
        ({"dim": 13}, r"rows has the shape \(5, 12\), and config.json calls for \(5, 13\)"),
        ({"encoder": None}, "encoder is 'None'"),
        ({"encoder": {"kind": "rnn"}}, "there is no encoder 'rnn'"),
        ({"encoder": {"kind": "bag-of-words", "width": 3}}, "width"),
        ({"encoder": {"kind": "bag-of-words", "dim": 16}}, r"and config.json calls for \(16,"),
        ({"encoder": {"kind": "bag-of-words", "dim": 10**15}}, "no encoder can be built"),
        (
            {"encoder": {"kind": "inception", "word_dim": 128}},
            r"has no encoder\.after\.1\.bias, which config.json calls for",
        ),
        ({"calibration": {"slope": -1.0, "offset": 0.0}}, "slope -1.0"),
        ({"calibration": {"a": 1}}, "config.json.*garbles"),
        ({"calibration": 7}, "config.json.*garbles"),
    ],
)
def test_config_that_does_not_fit(copy, changes, sentence):
    edit(copy / "config.json", **changes)
    with pytest.raises(DataError, match=sentence):
        load_model(copy, verify=False)


def test_config_without_a_setting(copy):
    config = json.loads((copy / "config.json").read_text("utf-8"))
    for name in ("encoder", "labels", "dim", "config", "calibration"):
        (copy / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != name}), "utf-8")
        with pytest.raises(DataError, match=name):
            load_model(copy)


@pytest.mark.parametrize("line", ["[1]", '{"text": 5}', '{"id": "x"}', "nonsense", '{"text": "a"}', ""])
def test_a_damaged_label_line(copy, line):
    lines = (copy / "labels.jsonl").read_text("utf-8").split("\n")
    lines[1] = line
    (copy / "labels.jsonl").write_text("\n".join(lines), "utf-8")
    with pytest.raises(DataError, match=r"labels\.jsonl"):
        load_model(copy)


def test_weights_of_another_model(copy):
    path = copy / "model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor for name, tensor in tensors.items() if name != "head.bias"}, path)
    with pytest.raises(DataError, match=r"has no head\.bias, which config.json calls for"):
        load_model(copy, verify=False)
    save_file(tensors | {"head.bias": torch.full((5,), torch.nan)}, path)
    with pytest.raises(DataError, match=r"head\.bias holds values that are no numbers"):
        load_model(copy, verify=False)
    save_file(tensors | {"encoder.more": torch.zeros(2)}, path)
    with pytest.raises(DataError, match=r"holds encoder\.more, which config.json does not call for"):
        load_model(copy, verify=False)


def test_an_encoder_and_a_head_that_do_not_meet(copy):
    path = copy / "model.safetensors"
    save_file(load_file(path) | {"head.rows": torch.zeros(5, 7)}, path)
    edit(copy / "config.json", dim=7)
    with pytest.raises(DataError, match="gives 12 numbers and the head takes 7"):
        load_model(copy, verify=False)


@pytest.mark.parametrize("error", [OSError("No space left"), SafetensorError("No space left")])
def test_a_full_disk_gets_a_sentence(error, tmp_path, monkeypatch):
    def full(*_):
        raise error

    monkeypatch.setattr("gandalf.model.weights.save_file", full)
    with pytest.raises(DataError, match=r"model\.safetensors: cannot be written \(No space left\)"):
        save_model(small_model(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_no_folder_or_another(tmp_path):
    with pytest.raises(DataError, match="no such model folder"):
        load_model(tmp_path / "none")
    with pytest.raises(DataError, match=r"no config\.json"):
        load_model(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file"):
        load_model(tmp_path / "file")


def test_a_calibration_never_turns_the_order_round():
    for slope, offset in ((0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (1.0, float("inf"))):
        with pytest.raises(DataError):
            Calibration(slope, offset)


def test_loading_draws_no_label_rows(copy, monkeypatch):
    """A table of millions of rows would be drawn only to be thrown away."""
    devices = []
    init = Table.__init__

    def watched(self, *sizes):
        init(self, *sizes)
        devices.append(self.rows.device.type)

    monkeypatch.setattr(Table, "__init__", watched)
    assert load_model(copy).device.type == "cpu"
    assert devices == ["meta"]
