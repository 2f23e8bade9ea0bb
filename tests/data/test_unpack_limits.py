"""A small file that asks for much memory is refused before it gets it; a variable lifts the limit."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec

import numpy as np
import pytest
from command_line import python
from scipy.sparse import csr_array, save_npz

from gandalf.data import unpack_limits as limits
from gandalf.data.load import load
from gandalf.data.unpack_limits import LEAST_LIMIT, VARIABLE, unpack_limit
from gandalf.errors import DataError, Findings

# The bomb is made and read in a process that may take 1.5 GB, so a failure kills nothing else.
READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
from gandalf.data.load import load
from gandalf.errors import DataError
try:
    load(sys.argv[1])
except DataError as error:
    print(error)
"""


def needs(module):
    return pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is optional")


def of_gzip(folder):
    with gzip.open(folder / "train.csv", "wb") as file:
        file.write(b"text,labels\n")
        for _ in range(400):
            file.write(b"word " * 200_000 + b",1\n")


def of_zstd(folder):
    import zstandard

    with open(folder / "train.csv.zst", "wb") as raw, zstandard.ZstdCompressor(3).stream_writer(raw) as file:
        file.write(b"text,labels\n")
        for _ in range(400):
            file.write(b"word" * 1_000_000)


def of_npz(folder):
    coo = {"row": [0], "col": [0], "data": [1.0], "format": b"coo", "shape": [10**9, 5]}
    np.savez_compressed(folder / "Y.trn.npz", **{name: np.array(value) for name, value in coo.items()})


def of_npz_entry(folder):
    zeros = np.zeros(300_000_000, dtype=np.int8)
    parts = {"data": zeros, "indices": zeros, "indptr": [0, 1], "format": b"csr", "shape": [1, 5]}
    np.savez_compressed(folder / "Y.trn.npz", **{name: np.asarray(value) for name, value in parts.items()})


def of_header(folder):
    (folder / "trn_X_Y.txt").write_text("2 999999999\n0:1\n1:1\n")


def of_old_header(folder):
    (folder / "train.txt").write_text("2 5 999999999\n0 1:1\n1 1:1\n")


def of_parquet(folder):
    import pyarrow
    from pyarrow import parquet

    texts = pyarrow.DictionaryArray.from_arrays(np.zeros(400_000, dtype=np.int32), ["word " * 1_000])
    labels = pyarrow.DictionaryArray.from_arrays(np.zeros(400_000, dtype=np.int32), ["a"])
    parquet.write_table(pyarrow.table({"text": texts, "labels": labels}), folder / "train.parquet")


BOMBS = [
    of_gzip,
    pytest.param(of_zstd, marks=needs("zstandard")),
    of_npz,
    of_npz_entry,
    of_header,
    of_old_header,
    pytest.param(of_parquet, marks=needs("pyarrow")),
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_a_bomb_is_refused_with_one_sentence(bomb, tmp_path):
    bomb(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2_000_000
    done = python(READ, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"set the environment variable {VARIABLE}=none" in done.stdout and done.stdout.count("\n") == 1


def test_predictions_of_a_shape_that_nobody_has(tmp_path):
    from gandalf.data.matrix_files import read_npz

    of_npz(tmp_path)
    with pytest.raises(DataError, match=VARIABLE):
        read_npz(tmp_path / "Y.trn.npz")


def test_a_variable_lifts_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LEAST_LIMIT", 100)
    monkeypatch.setattr(limits, "RATIO", 1)
    with gzip.open(tmp_path / "train.csv.gz", "wb") as file:
        file.write(b"text,labels\n" + b"word,1\n" * 1_000)
    with pytest.raises(DataError, match=VARIABLE):
        load(tmp_path)
    for value in ("none", "1MB", "0.01 GB"):
        monkeypatch.setenv(VARIABLE, value)
        assert len(load(tmp_path).train) == 1_000
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(DataError, match=rf"{VARIABLE} is 'much'; write it as 20GB"):
        load(tmp_path)


def test_the_limit_follows_the_file_and_the_machine(monkeypatch):
    monkeypatch.setattr(limits, "physical_memory", lambda: 10 * LEAST_LIMIT)
    assert unpack_limit(10) == LEAST_LIMIT
    assert unpack_limit(LEAST_LIMIT // 8) == 50 * LEAST_LIMIT // 8
    assert unpack_limit(LEAST_LIMIT) == 10 * LEAST_LIMIT


def test_arrays_larger_than_their_entries_are_refused(tmp_path):
    """NumPy would allocate what the header says before it reads."""
    save_npz(tmp_path / "Y.trn.npz", csr_array(np.ones((2, 3))), compressed=False)
    content = (tmp_path / "Y.trn.npz").read_bytes()
    (tmp_path / "Y.trn.npz").write_bytes(content.replace(b"'shape': (6,)", b"'shape': (6,)"[:-3] + b"9,)"))
    with pytest.raises(DataError, match="cannot be read as a SciPy sparse matrix"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("transformer", {"hidden_size": 10**7}),
        ("transformer", {"num_hidden_layers": 10**9}),
        ("transformer", {"intermediate_size": 10**12}),
        ("bag-of-words", {"dim": 10**9}),
        ("inception", {"words": 10**9}),
    ],
)
def test_a_model_that_says_it_is_huge_is_refused_before_it_is_built(name, changes, tmp_path):
    from small_model import small_model

    from gandalf.model import load_model, save_model

    save_model(small_model(name), tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text("utf-8"))
    encoder = config["encoder"]
    encoder.update({"config": encoder["config"] | changes} if name == "transformer" else changes)
    path.write_text(json.dumps(config), "utf-8")
    # Compared with the weights: where memory is what refuses it, smaller numbers would be built.
    with pytest.raises(DataError, match=r"config\.json calls for|of \d+ tensors"):
        load_model(tmp_path / "m", verify=False)


RDF = """<?xml version="1.0"?><!DOCTYPE r [{entities}]><rdf:RDF
xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="&x;1"><skos:prefLabel xml:lang="en">a&y;b</skos:prefLabel></skos:Concept>
</rdf:RDF>"""


@needs("rdflib")
@pytest.mark.parametrize("value", ["&x;" * 10, "y" * 201])
def test_entities_that_grow_are_refused(value, tmp_path):
    from gandalf.data.formats.skos import read

    entities = '<!ENTITY x "http://x/"><!ENTITY y "{}">'
    (tmp_path / "a.rdf").write_text(RDF.format(entities=entities.format(value)))
    with pytest.raises(DataError, match="the entity 'y' stands for other entities, or for more than 200"):
        read(tmp_path / "a.rdf", Findings(), None)
    (tmp_path / "b.rdf").write_text(RDF.format(entities=entities.format("y")))
    assert read(tmp_path / "b.rdf", Findings(), None)[1] == ["http://x/1"]


@needs("rdflib")
def test_an_entity_does_not_bring_another_file(tmp_path):
    from gandalf.data.formats.skos import read

    (tmp_path / "secret").write_text("secret")
    entities = f'<!ENTITY x "http://x/"><!ENTITY y SYSTEM "file://{tmp_path}/secret">'
    (tmp_path / "a.rdf").write_text(RDF.format(entities=entities))
    assert "secret" not in repr(read(tmp_path / "a.rdf", Findings(), None))


def test_vectors_of_a_length_that_the_file_cannot_hold(tmp_path):
    from gandalf.text.vectors import read_vector_file

    (tmp_path / "v.txt").write_text("2 999999999\na 1\nb 1\n")
    with pytest.raises(DataError, match=VARIABLE):
        read_vector_file(tmp_path / "v.txt", ["a", "b"])
