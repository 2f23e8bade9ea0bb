"""Matrices that are damaged or hold no real numbers: one sentence each, before compiled loops read them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, random_array, save_npz

from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.metrics.predictions import as_predictions

POINTS, LABELS = 40, 30
FORMS = {"csr": csr_array, "csc": csc_array}


@pytest.fixture(scope="module")
def splits():
    return Splits(*(Dataset(csr_array((count, LABELS), dtype=np.float32)) for count in (50, POINTS)))


def scores(form="csr"):
    return random_array((POINTS, LABELS), density=0.3, format=form, rng=np.random.default_rng(0))


def parts(form, **changed):
    """What `save_npz` writes for a compressed matrix, with some of it exchanged."""
    matrix = scores(form)
    kept = {name: getattr(matrix, name).copy() for name in ("data", "indices", "indptr")}
    return {"format": form.encode(), "_is_array": True, "shape": np.asarray(matrix.shape), **kept, **changed}


def jump(indptr):
    return np.where(np.arange(len(indptr)) == len(indptr) // 2, 10**6, indptr)


def swap(indptr):
    order = np.arange(len(indptr))
    order[[10, 20]] = order[[20, 10]]
    return indptr[order]


def negative(indptr):
    return np.where(np.arange(len(indptr)) == 3, -5, indptr)


POINTERS = {
    "jump": jump,
    "swap": swap,
    "negative": negative,
    "late start": lambda indptr: np.maximum(indptr, 1),
    "late end": lambda indptr: np.append(indptr[:-1], indptr[-1] + 7),
    "early end": lambda indptr: np.minimum(indptr, indptr[-1] - 7),
    "too few": lambda indptr: indptr[:-1],
    "none": lambda indptr: indptr[:0],
    "fractions": lambda indptr: indptr + 0.5,
    "table": lambda indptr: indptr[None],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wrong", POINTERS)
def test_damaged_pointers_in_a_file(form, wrong, splits, tmp_path):
    np.savez(tmp_path / "p.npz", **parts(form, indptr=POINTERS[wrong](scores(form).indptr)))
    with pytest.raises(DataError, match=r"p.npz: .*(damaged|cannot be read as).*save_npz, or copy it again"):
        as_predictions(tmp_path / "p.npz", splits)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wrong", [jump, swap, negative])
def test_damaged_pointers_in_memory(form, wrong, splits):
    matrix = scores(form)
    matrix.indptr = wrong(matrix.indptr)
    with pytest.raises(DataError, match=r"the sparse matrix is damaged \(indptr"):
        as_predictions(matrix, splits)


@pytest.mark.parametrize("form", FORMS)
def test_damaged_pointers_of_an_empty_matrix(form, splits, tmp_path):
    nothing = np.zeros(0, dtype=np.int64)
    indptr = jump(np.zeros_like(scores(form).indptr))
    np.savez(tmp_path / "p.npz", **parts(form, data=nothing * 1.0, indices=nothing, indptr=indptr))
    with pytest.raises(DataError, match=r"p.npz: the sparse matrix is damaged \(indptr"):
        as_predictions(tmp_path / "p.npz", splits)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("index", [-1, max(POINTS, LABELS), 10**6])
def test_indices_outside_the_matrix(form, index, splits, tmp_path):
    indices = scores(form).indices
    indices[len(indices) // 2] = index
    np.savez(tmp_path / "p.npz", **parts(form, indices=indices))
    with pytest.raises(DataError, match=r"p.npz: the sparse matrix is damaged \(indices must be"):
        as_predictions(tmp_path / "p.npz", splits)


def test_coordinates_outside_the_matrix(splits):
    matrix = coo_array(scores())
    matrix.coords[1][3] = 10**6
    with pytest.raises(DataError, match="an entry lies outside the matrix"):
        as_predictions(matrix, splits)


@pytest.mark.parametrize("name", ["data", "indices"])
def test_entries_cut_short(name, splits, tmp_path):
    np.savez(tmp_path / "p.npz", **parts("csr", **{name: getattr(scores(), name)[:-1]}))
    with pytest.raises(DataError, match="the pointers do not end where the entries do"):
        as_predictions(tmp_path / "p.npz", splits)


def test_a_shape_of_billions_is_refused_before_it_takes_memory(splits, tmp_path):
    np.savez(tmp_path / "p.npz", **parts("csc", shape=np.asarray([10**15, LABELS])))
    with pytest.raises(DataError, match=r"p\.npz: .* takes 8,000,000"):
        as_predictions(tmp_path / "p.npz", splits)


@pytest.mark.parametrize("dtype", ["U4", "S4", "c16", "c8", "M8[s]", "V4"])
def test_values_that_are_no_real_numbers(dtype, splits, tmp_path):
    data = np.zeros(scores().nnz, dtype="i8").astype(dtype)
    np.savez(tmp_path / "p.npz", **parts("csr", data=data))
    with pytest.raises(DataError, match=r"p.npz: the sparse matrix holds .* values; write real numbers"):
        as_predictions(tmp_path / "p.npz", splits)


@pytest.mark.parametrize(
    ("form", "dtype"),
    [*product(FORMS, ["f2", ">f4", ">f8"]), *product([*FORMS, "coo"], ["?", "i1", "u8", "f4", "f8", "g"])],
)
def test_every_kind_of_real_number(form, dtype, splits, tmp_path):
    data = np.arange(scores().nnz) % 3
    matrix = csr_array(
        (data, *(getattr(scores(), name) for name in ("indices", "indptr"))), shape=(POINTS, LABELS)
    )
    save_npz(tmp_path / "p.npz", matrix.asformat(form))
    stored = dict(np.load(tmp_path / "p.npz"))
    np.savez(tmp_path / "p.npz", **{**stored, "data": stored["data"].astype(dtype)})
    found = as_predictions(tmp_path / "p.npz", splits)
    assert found.data.tolist() == data.astype(dtype).astype(np.float64).tolist()
    assert found.indices.tolist() == scores().indices.tolist()


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("form", [*FORMS, "coo"])
def test_overwritten_bytes(compressed, form, splits, tmp_path):
    """Wherever 20 bytes are overwritten: the same matrix, where no part of it was hit, or one sentence."""
    path, refused = tmp_path / "p.npz", 0
    save_npz(path, scores(form), compressed=compressed)
    good, want = path.read_bytes(), as_predictions(path, splits)
    rng = np.random.default_rng(0)
    starts = np.linspace(0, len(good) - 20, 150).astype(int).tolist()
    for start in starts:
        path.write_bytes(good[:start] + rng.bytes(20) + good[start + 20 :])
        try:
            found = as_predictions(path, splits)
        except DataError as error:
            refused += 1
            assert "p.npz: " in str(error) and "\n" not in str(error)
        else:
            assert (found != want).nnz == 0
    assert refused > len(starts) / 2


def test_a_file_cut_short(splits, tmp_path):
    path = tmp_path / "p.npz"
    save_npz(path, scores())
    good = path.read_bytes()
    for size in range(0, len(good) - 1, 50):
        path.write_bytes(good[:size])
        with pytest.raises(DataError, match=r"p.npz: cannot be read as a SciPy sparse matrix"):
            as_predictions(path, splits)
