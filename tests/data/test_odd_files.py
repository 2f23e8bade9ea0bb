"""Files that do not belong together, are not what their names say, or hold numbers beyond all bounds."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import run
from scipy.sparse import coo_array, csc_array, csr_array, save_npz
from test_bad_input import POINT, folder_of, raw, renee

from gandalf.data.load import load
from gandalf.errors import DataError, Findings

HUGE = "9" * 5000


def error_of(folder):
    with pytest.raises(DataError) as caught:
        load(folder)
    assert "\n" not in str(caught.value) and caught.value.problem.remedy
    return caught.value.problem


# ---- features


def sparse(**others):
    files = {
        "trn_X_Y": "1 2\n0:1\n",
        "trn_X_Xf": "1 4\n3:1\n",
        "tst_X_Y": "1 2\n1:1\n",
        "tst_X_Xf": "1 4\n0:1\n",
    }
    return {f"{name}.txt": text for name, text in (files | others).items()}


@pytest.mark.parametrize(
    ("files", "where", "columns"),
    [
        (sparse(Yf="2 3\n0:1\n1:1\n"), "Yf.txt", 3),
        (sparse(lbl_X_Xf="2 5\n0:1\n1:1\n"), "lbl_X_Xf.txt", 5),
        (sparse(tst_X_Xf="1 3\n0:1\n"), "tst_X_Xf.txt", 3),
        ({"train.txt": "1 4 2\n0 3:1\n", "test.txt": "1 3 2\n1 0:1\n"}, "test.txt", 3),
    ],
)
def test_features_with_other_columns(files, where, columns, tmp_path):
    problem = error_of(folder_of(tmp_path, files))
    assert (problem.kind, problem.file, problem.line) == ("feature-mismatch", str(tmp_path / where), 1)
    assert problem.what == f"has {columns} columns, but the training features have 4"
    result = run("check", tmp_path)
    assert result.exit_code == 1 and "[feature-mismatch]" in result.stdout


def test_features_with_the_same_columns(tmp_path):
    assert load(folder_of(tmp_path, sparse(Yf="2 4\n0:1\n1:1\n"))).train.label_features.shape == (2, 4)


@pytest.mark.parametrize("name", ["Yf", "X.tst"])
def test_npz_features_with_other_columns(name, tmp_path):
    for stem, shape in {
        "X.trn": (2, 4),
        "Y.trn": (2, 3),
        "X.tst": (2, 4),
        "Y.tst": (2, 3),
        "Yf": (3, 4),
    }.items():
        save_npz(tmp_path / f"{stem}.npz", csr_array(np.ones((shape[0], 5 if stem == name else shape[1]))))
    problem = error_of(tmp_path)
    assert (problem.kind, problem.file, problem.line) == (
        "feature-mismatch",
        str(tmp_path / f"{name}.npz"),
        None,
    )


@pytest.mark.parametrize(("name", "rows", "calls"), [("Yf", 2, 3), ("X.trn", 3, 2)])
def test_npz_features_with_other_rows_name_their_file(name, rows, calls, tmp_path):
    save_npz(tmp_path / "Y.trn.npz", csr_array(np.ones((2, 3))))
    save_npz(tmp_path / f"{name}.npz", csr_array(np.ones((rows, 4))))
    problem = error_of(tmp_path)
    assert (problem.kind, problem.file) == ("header-mismatch", str(tmp_path / f"{name}.npz"))
    assert problem.what == f"has {rows} rows, but Y.trn.npz needs {calls}"
    found = load(tmp_path, findings=Findings(strict=False)).train
    mended = found.label_features if name == "Yf" else found.features
    assert mended.shape == (calls, 4)


def test_complex_matrices_are_refused(tmp_path):
    save_npz(tmp_path / "Y.trn.npz", csr_array(np.array([[1 + 2j, 0]])))
    problem = error_of(tmp_path)
    assert (problem.kind, problem.what) == ("bad-number", "the sparse matrix holds complex128 values")


def test_a_corrupt_matrix_of_columns_is_refused_before_it_is_turned_into_rows(tmp_path):
    matrix = csc_array(np.ones((3, 3)))
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": np.array([0, 10**6, 6, 9])}
    np.savez(tmp_path / "Y.trn.npz", format=np.array(b"csc"), shape=np.array([3, 3]), **parts)
    assert error_of(tmp_path).kind == "truncated-file"


@pytest.mark.parametrize("form", [csr_array, csc_array, coo_array])
def test_matrices_in_any_form_are_read(form, tmp_path):
    save_npz(tmp_path / "Y.trn.npz", form(np.array([[1.0, 0], [0.5, 1]])))
    assert load(tmp_path).train.targets.toarray().tolist() == [[1, 0], [0.5, 1]]


# ---- numbers


@pytest.mark.parametrize(("sign", "shown"), [("", "inf"), ("-", "-inf")])
def test_a_relevance_that_no_float_can_hold_is_an_error(sign, shown, tmp_path):
    line = f'{{"title": "t", "target_ind": [0, 1], "target_rel": [{sign}1{"0" * 400}, 1]}}\n'
    problem = error_of(folder_of(tmp_path, raw(POINT + line)))
    assert (problem.kind, problem.line) == ("nan", 2)
    assert f"the value of label 0 is {shown}" in problem.what
    found = load(tmp_path, findings=Findings(strict=False)).train.targets
    assert found.toarray().tolist() == [[1, 0], [0, 1]], "the others keep their values"


@pytest.mark.parametrize("number", ["9223372036854775808", "99999999999999999999", "-99999999999999999999"])
def test_a_label_beyond_all_bounds_is_shown_as_it_is_written(number, tmp_path):
    said = f"label {number} is out of range: there are 2 labels, counted from 0"
    problem = error_of(folder_of(tmp_path, raw(f'{{"title": "t", "target_ind": [{number}]}}\n')))
    assert (problem.kind, problem.what, problem.line) == ("index-out-of-range", said, 1)
    (tmp_path / "trn.json").unlink()
    problem = error_of(folder_of(tmp_path, renee(f"3 2\n0:1\n\n1:1 {number}:1\n")))
    assert (problem.kind, problem.what, problem.line) == ("index-out-of-range", said, 4)


def test_thousands_of_digits_are_cut(tmp_path):
    problem = error_of(folder_of(tmp_path, raw(f'{{"title": "t", "target_ind": [{HUGE[:4000]}]}}\n')))
    assert problem.what.startswith(f"label {'9' * 30}... is out of range")
    folder_of(tmp_path, raw() | {"filter_labels_train.txt": f"0 {'0' * 5000}1\n0 {HUGE}\n"})
    problem = error_of(tmp_path)
    assert (problem.kind, problem.line) == ("index-out-of-range", 2)


def test_a_huge_label_beside_a_name_leaves_an_empty_row(tmp_path):
    points = '{"title": "a", "target_ind": [0, 99999999999999999999, "x"]}\n' + POINT
    findings = Findings(strict=False)
    found = load(folder_of(tmp_path, raw(points)), findings=findings).train.targets
    assert found.toarray().tolist() == [[0, 0], [1, 0]]
    assert "bad-targets" in {problem.kind for problem in findings.problems}


@pytest.mark.parametrize("targets", ['"target_ind": [true]', '"target_ind": [1], "target_rel": [true]'])
def test_truth_values_are_no_numbers(targets, tmp_path):
    problem = error_of(folder_of(tmp_path, raw(f'{{"title": "t", {targets}}}\n')))
    assert (problem.kind, problem.line) == ("bad-targets", 1)
    found = load(tmp_path, findings=Findings(strict=False)).train
    assert found.targets.shape == (1, 2) and found.targets.nnz == 0


# ---- names


@pytest.mark.parametrize("name", ["tst.json", "tst.json.gz", "lbl.json", "filter_labels_test.txt"])
def test_a_folder_under_the_name_of_a_file(name, tmp_path):
    folder_of(tmp_path, raw(tst=POINT))
    (tmp_path / name.removesuffix(".gz")).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    problem = error_of(tmp_path)
    assert (problem.kind, problem.file) == ("missing-file", str(tmp_path / name))
    assert problem.what == "is a folder, but a file is expected"


def test_a_link_to_nothing_under_the_name_of_a_file(tmp_path):
    folder_of(tmp_path, raw())
    (tmp_path / "tst.json").symlink_to(tmp_path / "elsewhere.json")
    assert error_of(tmp_path).what == "is a link to nothing, but a file is expected"
    (tmp_path / "elsewhere.json").write_text(POINT)
    assert len(load(tmp_path).test) == 1


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_recognised(encoding, tmp_path):
    for name, content in {"t.csv": "text,labels\na,b\n", "trn.json": POINT}.items():
        (tmp_path / name).write_bytes(f"\ufeff{content}".encode(encoding))
    (tmp_path / "lbl.json").write_text('{"title": "x"}\n')
    for source in (tmp_path, tmp_path / "t.csv"):
        problem = error_of(source)
        assert (problem.kind, problem.line) == ("broken-utf8", 1)
        assert "iconv -f utf-16 -t utf-8" in problem.remedy and "latin1" not in problem.remedy
