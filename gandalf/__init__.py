"""Extreme multi-label classification of short text with label text."""

__version__ = "0.2.0"

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gandalf.augment.label_points import Keep, augment, label_points
    from gandalf.data.dataset import Dataset, Splits
    from gandalf.data.export import export
    from gandalf.data.load import load
    from gandalf.data.synthetic import synthetic
    from gandalf.errors import DataError
    from gandalf.estimator import GandalfClassifier
    from gandalf.graph.kind import LabelGraph
    from gandalf.graph.label_graph import GraphOptions, label_graph
    from gandalf.graph.postulate import diagnose
    from gandalf.metrics.evaluate import evaluate
    from gandalf.model import load_model
    from gandalf.predict.predictor import Predictor
    from gandalf.runs.start import train
    from gandalf.systems import recipe

__all__ = [
    "DataError",
    "Dataset",
    "GandalfClassifier",
    "GraphOptions",
    "Keep",
    "LabelGraph",
    "Predictor",
    "Splits",
    "augment",
    "diagnose",
    "evaluate",
    "export",
    "label_graph",
    "label_points",
    "load",
    "load_model",
    "recipe",
    "synthetic",
    "train",
]

# The module of each public name; it is imported on first use.
_HOMES = {
    "DataError": "gandalf.errors",
    "Dataset": "gandalf.data.dataset",
    "GandalfClassifier": "gandalf.estimator",
    "GraphOptions": "gandalf.graph.label_graph",
    "Keep": "gandalf.augment.label_points",
    "LabelGraph": "gandalf.graph.kind",
    "Predictor": "gandalf.predict.predictor",
    "Splits": "gandalf.data.dataset",
    "augment": "gandalf.augment.label_points",
    "diagnose": "gandalf.graph.postulate",
    "evaluate": "gandalf.metrics.evaluate",
    "export": "gandalf.data.export",
    "label_graph": "gandalf.graph.label_graph",
    "label_points": "gandalf.augment.label_points",
    "load": "gandalf.data.load",
    "load_model": "gandalf.model",
    "recipe": "gandalf.systems",
    "synthetic": "gandalf.data.synthetic",
    "train": "gandalf.runs.start",
}


class _Package(ModuleType):
    """The package. `gandalf.train` stays the function even if the subpackage `gandalf.train` is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:  # noqa: ANN401  any public name
    if name not in _HOMES:
        raise AttributeError(f"module 'gandalf' has no attribute {name!r}")
    try:
        found = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "gandalf":
            raise
        needed = f"gandalf.{name} needs {error.name}; pip install 'gandalf-xmc[train]'"
        raise ImportError(needed, name=error.name) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
