"""A classifier with scikit-learn's manners: fit, predict, predict_proba, score, get_params, set_params."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.formats.texts import clean
from gandalf.data.indicators import LabelTexts, indicators, known_names, texts_of_labels
from gandalf.errors import DataError
from gandalf.model import Part, load_model, save_model
from gandalf.predict.predictor import Predictor
from gandalf.runs.start import changed, train
from gandalf.systems import AUTO, recipe

TOP = 100  # labels looked at for each text
FEW = 100  # points: of fewer, none is held out for validation


class GandalfClassifier:
    """Texts in, labels out, for people who live in scikit-learn; scikit-learn itself is not needed.

    `system` names a recipe, `targets` what label points are trained towards, `epochs` how long to train,
    `settings` any other changes of the recipe such as `"encoder.dim=200"`; `gandalf config` lists them.
    Targets are by default what the recipe says, but each label itself below 100 texts, and none where
    labels have no texts. `predict` gives the labels whose probability is at least `threshold`.
    `system="auto"` searches for the best model as `gandalf train` does; `"search.minutes=2"` is its budget.
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
    ) -> None:
        self.system, self.targets, self.epochs = system, targets, epochs
        self.seed, self.device = seed, device
        self.threshold, self.settings = threshold, settings

    def fit(
        self,
        texts: Sequence[str],
        labels: Any,  # noqa: ANN401  lists of names, or a matrix of any library
        label_texts: LabelTexts | None = None,
    ) -> GandalfClassifier:
        """Train on texts and their labels: lists of names or numbers, or an N x L indicator matrix.

        `label_texts` maps names to texts, or lists the texts of labels 0 to L - 1. By default names are
        their own texts. After this `model_` is the trained model and `classes_` the labels' names.
        """
        found = indicators(labels, known_names(label_texts))
        points = Dataset(
            found.targets,
            texts=_as_texts(texts),
            label_texts=[clean(text) for text in texts_of_labels(found.names, label_texts)],
            label_ids=[str(name) for name in found.names],
        )
        points.need_probabilities()
        if not points.targets.nnz:
            raise DataError("no text has a label", remedy="give at least one")
        own_texts = label_texts is not None or any(isinstance(name, str) for name in found.names)
        settings = self._settings(len(points), own_texts)
        chosen = changed(recipe(self.system), *settings, **self._changes())
        self.model_: Part = train(Splits(points), chosen).model
        self.classes_ = found.classes
        return self

    def predict(self, texts: Sequence[str]) -> csr_array:
        """N x L indicators of the labels that are at least as probable as the threshold, 100 at most."""
        found = self._matrix(texts, TOP, self.threshold)
        return csr_array((np.ones(found.nnz, dtype=np.int8), found.indices, found.indptr), shape=found.shape)

    def predict_proba(self, texts: Sequence[str], top: int = TOP) -> csr_array:
        """N x L probabilities, sparse: only each text's `top` most probable labels have an entry."""
        return self._matrix(texts, top, None)

    def predict_top(self, texts: Sequence[str], k: int = 5) -> list[list[Any]]:
        """Names of the k most probable labels of each text, best first."""
        k = min(k, self._fitted.num_labels)
        ids, _ = Predictor(self._fitted).predict(_as_texts(texts), k)
        names = self.classes_.tolist()
        return [[names[label] for label in row if label >= 0] for row in ids.tolist()]

    def score(self, texts: Sequence[str], labels: Any) -> float:  # noqa: ANN401  as in `fit`
        """P@1 as a share: of how many texts the most probable label is one of theirs."""
        best, _ = Predictor(self._fitted).predict(_as_texts(texts), 1)
        # A label that was not trained can only be missed.
        truth = indicators(labels, self.classes_.tolist(), drop_others=True).targets.astype(bool)
        if len(best) != truth.shape[0]:
            raise DataError(f"there are {len(best):,} texts and the labels of {truth.shape[0]:,}")
        return float(np.mean(truth[np.arange(len(best)), best[:, 0]] & (best[:, 0] >= 0)))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model's folder, for `gandalf predict` and `gandalf.load_model`."""
        save_model(self._fitted, folder, overwrite=overwrite)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the classifier was made with, by name."""
        return {name: getattr(self, name) for name in _defaults()}

    def set_params(self, **params: Any) -> GandalfClassifier:  # noqa: ANN401  as in `__init__`
        """Change some of it."""
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
        """A model is kept as the files of its folder, since modules cannot be pickled."""
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
        """What scikit-learn wants to know, and alone asks for."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=True, single_output=False),
            classifier_tags=ClassifierTags(multi_class=False, multi_label=True),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
        )

    @property
    def _fitted(self) -> Part:
        if not self.__sklearn_is_fitted__():
            raise DataError("the classifier has not been trained", remedy="call fit first")
        return self.model_

    def _changes(self) -> dict[str, object]:
        given = {"epochs": self.epochs, "targets": self.targets}
        given = {name: value for name, value in given.items() if value is not None}
        if self.system == AUTO and given:
            what = f"{next(iter(given))} says how one system is trained, and system={AUTO!r} tries several"
            raise DataError(what, remedy="leave it out, or name a system")
        return {"seed": self.seed, "device": self.device} | given

    def _settings(self, points: int, own_texts: bool) -> list[str]:
        """The caller's settings, after what the data ask for."""
        if not own_texts and self.targets not in (None, "none"):
            what = (
                f"targets={self.targets!r} makes training points of label texts, and these labels have none"
            )
            raise DataError(what, remedy="give label_texts")
        few = points < FEW
        asked = ["validation.share=0"] if few else []
        if self.targets is None and self.system != AUTO and (few or not own_texts):
            # Too few to choose by; that a label's text has that label is sure.
            asked.append(f"targets.targets={'self' if own_texts else 'none'}")
        given = [self.settings] if isinstance(self.settings, str) else self.settings
        return [*asked, *given]

    def _matrix(self, texts: Sequence[str], top: int, threshold: float | None) -> csr_array:
        model = self._fitted
        ids, scores = Predictor(model).predict(
            _as_texts(texts), min(top, model.num_labels), threshold=threshold
        )
        kept = ids >= 0
        starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        found = csr_array((scores[kept], ids[kept], starts), shape=(len(ids), model.num_labels))
        found.sort_indices()
        return found


def _defaults() -> dict[str, Any]:
    parameters = inspect.signature(GandalfClassifier).parameters
    return {name: each.default for name, each in parameters.items()}


def _as_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise DataError("the texts are one string", remedy="write [text]")
    found = list(texts)
    for at, text in enumerate(found):
        if not isinstance(text, str):
            raise DataError(f"text {at:,} is not a string but {text!r:.60}")
    return [clean(text) for text in found]
