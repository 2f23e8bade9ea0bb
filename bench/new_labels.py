"""What labels are worth that a model was never trained on: added by text, by examples, by neighbours.

    python -m bench.new_labels [--data man] [--models FOLDER] [--validation]

A tenth of the labels is held out entirely: their columns are taken out of the targets, their texts out of
the label texts, and points that have no other label are dropped. (Of labels that share a text with another
none is held out, since the text names a known label.) A model is trained on the rest, and another, the
ceiling, on everything. Then the held-out labels are added to the first, and test points are asked for all
labels, their filter applied. Figures are on test points that have a held-out label, if not said otherwise.

With --validation the test split has no say: a tenth of the training points takes its place, and other labels
are held out. The weights in `gandalf/model/new_rows.py` were chosen like that, on another draw of labels.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import gandalf
from bench.default_sets import keep_labels
from bench.machine import keep
from bench.tables import table
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import hold_out_points
from gandalf.data.matching import is_label_text, text_groups
from gandalf.model import Model, load_network, save_model
from gandalf.model.exact import top_k
from gandalf.model.new_labels import known_labels
from gandalf.model.new_rows import Evidence, matched
from gandalf.model.row_map import Floats, fit_row_map
from gandalf.nets.encoders import build_encoder, encode_tokens
from gandalf.nets.heads import Table
from gandalf.nets.transformer import Transformer, read_config
from gandalf.predict.predictor import Predictor
from gandalf.text.pretrained import model_folder, pretrained_tokens
from gandalf.text.table import token_table

Ints = npt.NDArray[np.int64]
SHARE, TOP, GIVEN = 0.1, 10, 3  # labels held out; places looked at; examples or neighbours given
SEED = 0


@dataclass(frozen=True, eq=False)
class Cut:
    """A data set and the labels held out of it."""

    splits: Splits
    held: Ints  # numbers of labels, ascending
    known: Ints

    @staticmethod
    def of(splits: Splits, seed: int) -> Cut:
        """Hold out a tenth of the labels, drawn from those whose text is theirs alone."""
        labels = splits.train.num_labels
        _, texts = splits.train.need_texts("adding labels")
        _, place, shared = np.unique(text_groups(texts)[0], return_inverse=True, return_counts=True)
        single = np.flatnonzero(shared[place] == 1)
        held = np.sort(np.random.default_rng(seed).choice(single, int(SHARE * labels), replace=False))
        return Cut(splits, held, np.setdiff1d(np.arange(labels), held))

    @property
    def order(self) -> Ints:
        """The labels as a model has them that the held-out ones were added to."""
        return np.concatenate([self.known, self.held])

    def texts(self, labels: Ints) -> list[str]:
        """Return the texts of labels."""
        _, texts = self.splits.train.need_texts("adding labels")
        return [texts[number] for number in labels]

    def train(self) -> Dataset:
        """Return training points as if the held-out labels did not exist."""
        found = keep_labels(self.splits.train, self.known)
        return found[np.flatnonzero(np.diff(found.targets.indptr))]

    def examples(self, rng: np.random.Generator) -> list[list[str]]:
        """Draw a few training texts of each held-out label, as its owner might know them."""
        texts, _ = self.splits.train.need_texts("adding labels")
        columns = self.splits.train.targets[:, self.held].tocsc()
        points = [columns.indices[slice(*columns.indptr[at : at + 2])] for at in range(len(self.held))]
        return [[texts[point] for point in rng.permutation(each)[:GIVEN]] for each in points]

    def neighbours(self) -> list[list[int]]:
        """Return the known labels that share most training points with a held-out one, by new numbers."""
        targets = self.splits.train.targets.astype(bool).astype(np.float32)
        together = (targets[:, self.held].T @ targets[:, self.known]).tocsr()
        found = []
        for at in range(len(self.held)):
            row = together[[at]]
            found.append(row.indices[np.argsort(-row.data, kind="stable")[:GIVEN]].tolist())
        return found


def trained(points: Dataset, name: str, folder: Path) -> Model:
    """Return astec trained on the points; load a model that is in the folder already."""
    if not folder.is_dir():
        save_model(
            gandalf.train(Splits(train=points, name=name), "astec", seed=SEED, device="cpu").model, folder
        )
    return load_network(folder)


def figures(ids: Ints, test: Dataset, unseen: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Score the labels ranked for each test point, best first; the last labels are those held out.

    `unseen` says of each of those whether its text is none of the training points' either.
    """
    truth, first_new = test.targets.toarray() > 0, test.num_labels - len(unseen)
    asked = truth[:, first_new:].sum(1)  # shape: (N,)
    hits = np.take_along_axis(truth, np.maximum(ids, 0), 1) & (ids >= 0)  # shape: (N, TOP)
    of_new = hits & (ids >= first_new)
    has = asked > 0
    strange = np.concatenate([np.zeros(first_new, dtype=bool), unseen, [False]])  # -1, no label, is not
    asked_strange = truth[:, strange[:-1]].sum(1)
    found_strange = (of_new & strange[ids]).sum(1)[asked_strange > 0]
    recall = {f"R@{k}": 100 * float((of_new[has, :k].sum(1) / asked[has]).mean()) for k in (1, 5, 10)}
    return {
        **recall,
        "R@10, unseen text": 100 * float((found_strange / asked_strange[asked_strange > 0]).mean()),
        "P@1": 100 * float(hits[has, 0].mean()),
        "P@1, all points": 100 * float(hits[:, 0].mean()),
        "P@1, other points": 100 * float(hits[~has, 0].mean()),
        "new label first": 100 * float((ids[:, 0] >= first_new).mean()),
    }


def predicted(model: Model, test: Dataset) -> Ints:
    """Return the best labels of the test points."""  # shape: (N, TOP)
    texts, _ = test.need_texts("predicting")
    return Predictor(model).predict(texts, TOP, test.exclude)[0]


def zero_shot(encode: Callable[[Sequence[str]], torch.Tensor], test: Dataset) -> Ints:
    """Rank all labels, known and new, by the cosine of their text and the point's, without any row."""
    texts, label_texts = test.need_texts("predicting")
    points, labels = (torch.nn.functional.normalize(encode(each)) for each in (texts, label_texts))
    head = Table(len(label_texts), labels.shape[1])
    head.load_state_dict({"rows": labels, "bias": torch.zeros(len(label_texts))})
    return top_k(points, head, TOP, exclude=test.exclude)[0]


def pretrained() -> Callable[[Sequence[str]], torch.Tensor]:
    """Return a function of texts to vectors: the transformer that NGAME and Renee begin with, as it comes."""
    folder, tokens = model_folder(None), pretrained_tokens(None, 32)
    encoder = build_encoder({"kind": "transformer", "config": read_config(folder)}, tokens.size)
    assert isinstance(encoder, Transformer)
    encoder.start_from(folder)
    encoder.renumber(tokens.tokenizer_ids)
    return lambda texts: encode_tokens(encoder, token_table(tokens, texts))


def in_parts(model: Model, texts: Sequence[str]) -> dict[str, Model]:
    """Return models with labels added by text in simpler ways, to tell what each part is worth."""
    known, rng = known_labels(model), np.random.default_rng(SEED)
    row_map = fit_row_map(known.vectors, known.rows, rng)
    evidence = Evidence.of_texts(model.vectors(texts).numpy())
    plain = row_map(evidence.vectors), np.full(len(texts), known.biases.mean())
    rows = {
        "ridge map as it is": plain,
        "ridge map, matched": matched(replace(row_map, explained=1.0), known, rng)(evidence),
        "discriminant, matched": matched(replace(row_map, explained=0.0), known, rng)(evidence),
    }
    return {name: given(model, texts, *each) for name, each in rows.items()}


def given(model: Model, texts: Sequence[str], rows: Floats, biases: Floats) -> Model:
    """Return the model with labels of these rows."""
    added = model.add_labels(texts)
    with torch.no_grad():
        added.head.rows[-len(texts) :] = torch.from_numpy(rows).float()
        added.head.bias[-len(texts) :] = torch.from_numpy(biases).float()
    return added


def measured(cut: Cut, without: Model, full: Model) -> dict[str, dict[str, float]]:
    """Return the figures of each way to come by the held-out labels."""
    assert cut.splits.test is not None
    test = keep_labels(cut.splits.test, cut.order)
    texts, examples = cut.texts(cut.held), cut.examples(np.random.default_rng(SEED))
    near = cut.neighbours()
    models = {
        "by text": without.add_labels(texts),
        f"text and {GIVEN} examples": without.add_labels(texts, examples=examples),
        f"text and {GIVEN} neighbours": without.add_labels(texts, neighbours=near),
        "text, examples and neighbours": without.add_labels(texts, examples=examples, neighbours=near),
        **in_parts(without, texts),
    }
    ids = {"not added": predicted(without, keep_labels(cut.splits.test, cut.known))}
    ids |= {name: predicted(model, test) for name, model in models.items()}
    ids["zero-shot: cosine of the model's own text vectors"] = zero_shot(without.vectors, test)
    ids["zero-shot: cosine of MiniLM's vectors, not trained on the set"] = zero_shot(pretrained(), test)
    place = np.argsort(cut.order)  # from a label's number in the data to its number in `test`
    ids["trained on all labels"] = place[predicted(full, cut.splits.test)]
    unseen = ~is_label_text(texts, cut.splits.train.texts or [])
    return {name: figures(each, test, unseen) for name, each in ids.items()}


def main() -> None:
    """Print the table and keep it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="man")
    parser.add_argument("--models", type=Path, help="folder in which models are kept and found again")
    parser.add_argument("--validation", action="store_true", help="on training points held out")
    asked = parser.parse_args()
    splits = gandalf.load(asked.data)
    cut = Cut.of(validation(splits), SEED + 1) if asked.validation else Cut.of(splits, SEED)
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.models or Path(temporary)
        without = trained(cut.train(), cut.splits.name, folder / "without")
        full = trained(cut.splits.train, cut.splits.name, folder / "full")
        rows = measured(cut, without, full)
    columns = list(next(iter(rows.values())))
    print(
        table(
            ["", *columns], [[name, *(f"{row[each]:.1f}" for each in columns)] for name, row in rows.items()]
        )
    )
    about: dict[str, Any] = {"data": cut.splits.name, "held_out": len(cut.held), "seed": SEED, "rows": rows}
    about |= {"test_points": points_with(cut), "all_test_points": len(cut.splits.test or ())}
    print(keep("_".join(["new_labels", cut.splits.name, *["validation"] * asked.validation]), about))


def validation(splits: Splits) -> Splits:
    """Return the set with training points held out in place of the test split."""
    parts = hold_out_points(splits.train, 0.1, SEED + 1)
    return replace(splits, train=parts.rest, test=parts.held)


def points_with(cut: Cut) -> int:
    """Count the test points that have a held-out label."""
    assert cut.splits.test is not None
    return int((np.diff(cut.splits.test.targets[:, cut.held].indptr) > 0).sum())


if __name__ == "__main__":
    main()
