from __future__ import annotations

import json

import numpy as np
from command_line import fails, run
from hypothesis import given
from scipy.sparse import csr_array
from strategies import targets

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.load import bundled
from gandalf.data.stats import stats
from gandalf.report.plots import plot_frequencies


def test_bundled_set_has_the_figures_that_came_with_it(man):
    known = json.loads((bundled()["man"] / "stats.json").read_text())
    found = stats(man)
    assert (found.name, found.points, found.test_points) == (known["name"], known["N_train"], known["N_test"])
    assert found.labels == known["L"]
    assert round(found.labels_per_point, 2) == known["labels_per_point"]
    assert round(found.points_per_label, 2) == known["points_per_label"]
    assert round(found.words_per_point, 2) == known["words_per_title"]
    assert round(found.tail_share, 3) == known["share_of_labels_with_at_most_5_points"]
    assert round(found.known_test_share, 3) == known["test_points_whose_text_is_a_label_text"]


@given(targets(graded=True))
def test_every_figure_by_counting(matrix):
    rows = matrix.toarray().tolist()
    points, labels = len(rows), len(rows[0])
    texts = [f"Ab {row % 3}" for row in range(points)]
    label_texts = [f"ab {label % 2}" for label in range(labels)]
    found = stats(Splits(Dataset(matrix, texts, label_texts), Dataset(matrix, texts, label_texts)))
    positives = sum(value > 0 for row in rows for value in row)
    frequencies = [sum(row[label] > 0 for row in rows) for label in range(labels)]
    assert found.positives == positives
    assert found.points_per_label == positives / labels
    assert found.labels_per_point == positives / points
    assert found.tail_share == sum(n <= 5 for n in frequencies) / labels
    assert found.unpointed_share == frequencies.count(0) / labels
    assert found.unlabelled_share == sum(not any(row) for row in rows) / points
    soft = sum(0 < value < 1 for row in rows for value in row)
    assert found.soft_share == (soft / positives if positives else 0)
    assert found.known_test_share == sum(t.lower() in label_texts for t in texts) / points
    shared = sum(label_texts.count(text) > 1 for text in label_texts)
    assert found.shared_label_text_share == shared / labels
    assert found.words_per_point == found.split_words_per_point == 2
    assert sum(one.labels for one in found.bins) == labels
    assert sum(one.positives for one in found.bins) == positives


def test_bins_cut_where_the_running_sum_passes_a_fifth():
    columns = np.repeat(np.arange(8), [10, 5, 5, 4, 3, 2, 1, 0])
    matrix = csr_array((np.ones(30, np.float32), (np.arange(30), columns)), shape=(30, 8))
    found = stats(Splits(Dataset(matrix))).bins
    assert [one.labels for one in found] == [1, 1, 1, 1, 4]  # first positives at 0, 10, 15, 20, 24, 27, 29
    assert [(one.highest, one.lowest) for one in found] == [(10, 10), (5, 5), (5, 5), (4, 4), (3, 0)]
    assert found[-1].mean_frequency == 6 / 4


def test_features_without_texts_leave_the_text_figures_open():
    matrix = csr_array(np.ones((2, 3), dtype=np.float32))
    found = stats(Splits(Dataset(matrix, features=csr_array(np.ones((2, 7), dtype=np.float32)))))
    assert found.features == 7
    assert found.words_per_point is found.known_test_share is found.shared_label_text_share is None
    json.dumps(found.as_dict(), allow_nan=False)


def test_command_prints_the_papers_table_whole_when_piped():
    result = run("stats", "man")
    assert result.exit_code == 0, result.output
    row = next(line for line in result.stdout.splitlines() if "LF-ManSeeAlso-9K" in line)
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == [
        "LF-ManSeeAlso-9K", "9,599", "3,207", "8,808", "3.49", "3.20", "8.65",
    ]  # fmt: skip
    assert "…" not in result.stdout
    bars = {line.split()[0]: line.count("█") for line in result.stdout.splitlines() if "█" in line}
    assert bars["1"] == 40  # most labels have one point
    assert bars["1"] > bars["2-3"] > bars["4-7"] > bars["8-15"] > 0


def test_json_is_one_object_and_nothing_else(man):
    result = run("stats", "man", "--json")
    assert json.loads(result.stdout) == json.loads(json.dumps(stats(man).as_dict()))
    assert result.stderr == ""


def test_plot_is_written_in_the_format_of_its_name(tmp_path):
    result = run("stats", "man", "--plot", tmp_path / "f.png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    bad = run("stats", "man", "--plot", tmp_path / "f.docx")
    assert bad.exit_code == 2
    assert "use .png" in bad.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["f.png"]


def test_plot_of_labels_without_any_point(tmp_path):
    plot_frequencies(np.zeros(3, dtype=np.int64), tmp_path / "f.svg")
    assert (tmp_path / "f.svg").stat().st_size > 0


def test_bad_input_is_one_sentence_and_exit_2(tmp_path):
    assert "nowhere" in fails("stats", tmp_path / "nowhere")


def test_version_and_usage():
    assert run("--version").stdout.startswith("gandalf ")
    assert run("stats").exit_code == 2
    assert run("stats", "man", "--no-such-option").exit_code == 2
