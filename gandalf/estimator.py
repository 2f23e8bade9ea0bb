"""Define a classifier with scikit-learn's interface: fit, predict, predict_proba, score, get_params,
set_params."""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.formats.texts import clean
from gandalf.data.in_memory import (
    Classes,
    LabelTexts,
    Name,
    as_mapping,
    classes_of,
    indicators,
    known_names,
    text_list,
    texts_of_labels,
)
from gandalf.errors import DataError
from gandalf.model import Part, load_model, save_model
from gandalf.model.save import list_files, write_json
from gandalf.model_folder import read_json
from gandalf.predict.embedding import Embedded, embed
from gandalf.predict.predictor import Predictor, Probabilities
from gandalf.runs.start import changed, train
from gandalf.systems import AUTO, recipe
from gandalf.train.logs import Listener

TOP = 100  # most labels predicted for a text
FEW = 100  # with fewer points, none is held out for validation
DENSE = 1 << 30  # most bytes of an array with the probabilities of all labels
ABOUT = "classifier.json"  # file in a model folder: parameters, and which label names are numbers


class GandalfClassifier:
    """A classifier from texts to labels with scikit-learn's interface; scikit-learn itself is not needed.

    `system` names a recipe, `targets` the kind of targets of label points, `epochs` the length of training,
    and `settings` other changes of the recipe such as `"encoder.dim=200"` (see `gandalf config`). By default,
    targets are those of the recipe; with fewer than 100 texts they are `self`, and without label texts
    `none`. `predict` returns the labels whose probability is at least `threshold`. `system="auto"` searches
    for the best model as `gandalf train` does, within a budget such as `"search.minutes=2"`.

    With `verbose` above 0, the progress of training is printed. Each of `callbacks` is called as
    `callback(kind, step, values)` with the loss (kind "train") and held-out figures (kind "validation").
    Texts may be a list, a Series, an Arrow array, or a frame or array with one column.
    """

    def __init__(
        self,
        system: str = "astec",
        targets: str | None = None,
        epochs: float | None = None,
        seed: int = 0,
        device: str = "auto",
        threshold: float = 0.5,
        settings: Sequence[str] = (),
        verbose: int = 0,
        callbacks: Sequence[Listener] = (),
    ) -> None:
        self.system, self.targets, self.epochs = system, targets, epochs
        self.seed, self.device = seed, device
        self.threshold, self.settings = threshold, settings
        self.verbose, self.callbacks = verbose, callbacks

    def fit(
        self,
        texts: Sequence[str],
        labels: Any,  # noqa: ANN401  lists of names, or a matrix of any library
        label_texts: LabelTexts | None = None,
    ) -> GandalfClassifier:
        """Train on texts and their labels: lists of names or numbers, one name each, or an N x L matrix.

        `label_texts` maps names to texts (a dictionary, or a Series whose index holds the names), or lists
        the texts of labels 0 to L - 1. By default, the names are the texts. `fit` sets `model_`, the trained
        model, and `classes_`, the names of the labels.
        """
        if labels is None:
            raise DataError("fit requires y to be passed, but the target y is None", remedy="give labels")
        label_texts = None if label_texts is None else as_mapping(label_texts)
        found = indicators(labels, known_names(label_texts))
        points = Dataset(
            found.targets,
            texts=text_list(texts),
            label_texts=[clean(text) for text in texts_of_labels(found.names, label_texts)],
            label_ids=[str(name) for name in found.names],
        )
        points.need_probabilities()
        if not points.targets.nnz:
            raise DataError("no text has a label", remedy="give at least one")
        own_texts = label_texts is not None or any(isinstance(name, str) for name in found.names)
        settings = self._settings(len(points), own_texts)
        chosen = changed(recipe(self.system), *settings, **self._changes())
        tell = print if self.verbose else None
        listeners = [*self.callbacks, _print_event] if self.verbose else list(self.callbacks)
        self.model_: Part = train(Splits(points), chosen, tell=tell, listeners=listeners).model
        self.classes_: Classes = found.classes
        return self

    def predict(self, texts: Sequence[str]) -> csr_array:
        """Return N x L indicators of the labels with at least the threshold's probability, at most 100 for a
        text."""
        found = self._matrix(texts, TOP, self.threshold)
        return csr_array((np.ones(found.nnz, dtype=np.int8), found.indices, found.indptr), shape=found.shape)

    def predict_proba(self, texts: Sequence[str], top: int | None = None) -> Probabilities | csr_array:
        """Return N x L probabilities: an array of all labels, or with `top` a sparse matrix of the most
        probable.

        An array above 1 GiB is refused; use `top=100` instead.
        """
        if top is not None:
            return self._matrix(texts, top, None)
        asked, labels = text_list(texts), self._fitted.num_labels
        if 4 * len(asked) * labels > DENSE:
            what = f"probabilities of {labels:,} labels for {len(asked):,} texts are too many for an array"
            raise DataError(what, remedy=f"give top={TOP} for a sparse matrix, or fewer texts")
        dense: Probabilities = self._matrix(asked, labels, None).toarray()
        return dense

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Return N x dim vectors of length 1: dense for a network, sparse for a linear model of words."""
        return embed(self._fitted, text_list(texts))

    def predict_top(self, texts: Sequence[str], k: int = 5) -> list[list[Any]]:
        """Return the names of the k most probable labels of each text, best first."""
        k = min(k, self._fitted.num_labels)
        ids, _ = Predictor(self._fitted).predict(text_list(texts), k)
        names = self.classes_.tolist()
        return [[names[label] for label in row if label >= 0] for row in ids.tolist()]

    def score(self, texts: Sequence[str], labels: Any) -> float:  # noqa: ANN401  as in `fit`
        """Return P@1 as a share: the share of texts whose most probable label is true."""
        best, _ = Predictor(self._fitted).predict(text_list(texts), 1)
        # Drop labels that are not in the model, because no prediction can hit them.
        truth = indicators(labels, self.classes_.tolist(), drop_others=True).targets.astype(bool)
        if len(best) != truth.shape[0]:
            raise DataError(f"there are {len(best):,} texts, but labels of {truth.shape[0]:,} texts")
        return float(np.mean(truth[np.arange(len(best)), best[:, 0]] & (best[:, 0] >= 0)))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model folder, for `gandalf predict`, `gandalf.load_model` and `load`."""
        save_model(self._fitted, folder, overwrite=overwrite)
        params = {name: value for name, value in self.get_params().items() if name != "callbacks"}
        numbers = [isinstance(name, int) for name in self.classes_.tolist()]
        about = {"params": params, "number_names": numbers[0] if len(set(numbers)) == 1 else numbers}
        write_json(about, Path(folder) / ABOUT)
        list_files(Path(folder), ABOUT)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> GandalfClassifier:
        """Read a classifier from a folder of `save`, or from any model folder.

        Callbacks are not stored. For a model of `gandalf train`, the names are label ids, or label texts
        without ids.
        """
        model, path = load_model(folder, device), Path(folder) / ABOUT
        about: dict[str, Any] = {"params": {"system": model.config.get("system")}}
        about = read_json(path) if path.is_file() else about
        try:
            params: dict[str, Any] = {**about["params"]}
            if "settings" in params:
                params["settings"] = tuple(params["settings"])  # JSON has no tuples
            found = cls(**params)
            found.classes_ = _classes(model, about.get("number_names"))
        except (KeyError, TypeError, ValueError) as error:
            remedy = "delete it to go without it, or save the classifier again"
            raise DataError(f"does not describe a classifier ({error})", remedy=remedy, file=path) from error
        found.model_ = model
        return found

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in _defaults()}

    def set_params(self, **params: Any) -> GandalfClassifier:  # noqa: ANN401  as in `__init__`
        """Set parameters by name."""
        for name, value in params.items():
            if name not in _defaults():
                what = f"a {type(self).__name__} has no parameter {name!r}"
                raise DataError(what, remedy=f"there are {', '.join(_defaults())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = {name: value for name, value in self.get_params().items() if value != _defaults()[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, with the model as the files of its folder, since modules cannot be
        pickled."""
        state = dict(self.__dict__)
        if "model_" in state:
            with tempfile.TemporaryDirectory() as folder:
                save_model(state["model_"], Path(folder) / "model")
                files = (path for path in Path(folder).rglob("*") if path.is_file())
                state["model_"] = {
                    path.relative_to(Path(folder) / "model").as_posix(): path.read_bytes() for path in files
                }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "model_" in state:
            with tempfile.TemporaryDirectory() as folder:
                for name, content in state["model_"].items():
                    (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                    (Path(folder) / name).write_bytes(content)
                self.model_ = load_model(folder)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  scikit-learn's own type
        """Return the tags that scikit-learn asks for.

        The estimator type is not "classifier". For a classifier, scikit-learn reads the targets to choose
        folds, which fails if they are lists, and it treats two labels as the two classes of one label, but
        here labels are independent.
        """
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, multi_output=True, single_output=False),
            classifier_tags=ClassifierTags(multi_class=False, multi_label=True),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
        )

    @property
    def _fitted(self) -> Part:
        if not self.__sklearn_is_fitted__():
            raise _not_fitted()("the classifier has not been trained", remedy="call fit first")
        return self.model_

    def _changes(self) -> dict[str, object]:
        given = {"epochs": self.epochs, "targets": self.targets}
        given = {name: value for name, value in given.items() if value is not None}
        if self.system == AUTO and given:
            what = f"{next(iter(given))} applies to a single system, but system={AUTO!r} tries several"
            raise DataError(what, remedy="leave it out, or name a system")
        return {"seed": self.seed, "device": self.device} | given

    def _settings(self, points: int, own_texts: bool) -> list[str]:
        """Return the settings: those that the data need, then those of the caller."""
        if not own_texts and self.targets not in (None, "none"):
            what = f"targets={self.targets!r} needs label texts, but these labels have none"
            raise DataError(what, remedy="give label_texts")
        few = points < FEW
        asked = ["validation.share=0"] if few else []
        if self.targets is None and self.system != AUTO and (few or not own_texts):
            # With few points, use only the target that is certain: a label text has its own label.
            asked.append(f"targets.targets={'self' if own_texts else 'none'}")
        given = [self.settings] if isinstance(self.settings, str) else self.settings
        return [*asked, *given]

    def _matrix(self, texts: Sequence[str], top: int, threshold: float | None) -> csr_array:
        model = self._fitted
        ids, scores = Predictor(model).predict(
            text_list(texts), min(top, model.num_labels), threshold=threshold
        )
        kept = ids >= 0
        starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        found = csr_array((scores[kept], ids[kept], starts), shape=(len(ids), model.num_labels))
        found.sort_indices()
        return found


def _defaults() -> dict[str, Any]:
    parameters = inspect.signature(GandalfClassifier).parameters
    return {name: each.default for name, each in parameters.items()}


def _not_fitted() -> type[DataError]:
    """Return the error type for an untrained classifier; if scikit-learn is loaded, also its
    NotFittedError."""
    if "sklearn" not in sys.modules:
        return DataError
    from sklearn.exceptions import NotFittedError

    return type("NotFittedError", (DataError, NotFittedError), {})


def _classes(model: Part, number_names: bool | list[bool] | None) -> Classes:
    """Return the names of the model's labels, as numbers if they were numbers."""
    names: list[Name] = list(model.label_texts if model.label_ids is None else model.label_ids)
    if len(set(names)) < len(names):
        names = list(range(len(names)))
    elif number_names:
        which = [True] * len(names) if number_names is True else number_names
        names = [int(name) if number else name for name, number in zip(names, which, strict=True)]
    return classes_of(names)


def _print_event(kind: str, step: int, values: Mapping[str, Any]) -> None:
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    print(f"{kind} {step:,}: {', '.join(f'{name} {value:.4g}' for name, value in numbers.items())}")  # noqa: T201
