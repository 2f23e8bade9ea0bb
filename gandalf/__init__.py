"""Extreme multi-label classification of short text with label text."""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gandalf.train  # loaded now, so that loading it later cannot hide the function of that name
from gandalf.augment.label_points import Keep, augment, label_points
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.export import export
from gandalf.data.load import load
from gandalf.data.synthetic import synthetic
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, LabelGraph, label_graph
from gandalf.graph.postulate import diagnose
from gandalf.metrics.evaluate import evaluate
from gandalf.systems import recipe

if TYPE_CHECKING:
    from gandalf.estimator import GandalfClassifier
    from gandalf.model import load_model
    from gandalf.predict.predictor import Predictor
    from gandalf.runs.start import train
else:
    del gandalf, train  # `gandalf.train` is the function, as `gandalf.augment` is

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

# What needs PyTorch is imported when it is first asked for.
_ENGINE = {
    "GandalfClassifier": "gandalf.estimator",
    "Predictor": "gandalf.predict.predictor",
    "load_model": "gandalf.model",
    "train": "gandalf.runs.start",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever has that name
    if name not in _ENGINE:
        raise AttributeError(f"module 'gandalf' has no attribute {name!r}")
    try:
        found = getattr(import_module(_ENGINE[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "gandalf":
            raise
        needed = f"gandalf.{name} needs {error.name}; pip install 'gandalf-xmc[train]'"
        raise ImportError(needed, name=error.name) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_ENGINE})
