"""Extreme multi-label classification of short text with label text."""

__version__ = "0.1.0"

from gandalf.augment.label_points import Keep, augment, label_points
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.export import export
from gandalf.data.load import load
from gandalf.data.synthetic import synthetic
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, LabelGraph, label_graph
from gandalf.graph.postulate import diagnose
from gandalf.metrics.evaluate import evaluate

__all__ = [
    "DataError",
    "Dataset",
    "GraphOptions",
    "Keep",
    "LabelGraph",
    "Splits",
    "augment",
    "diagnose",
    "evaluate",
    "export",
    "label_graph",
    "label_points",
    "load",
    "synthetic",
]
