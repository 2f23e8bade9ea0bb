"""A trained model: tokens, encoder, head and label texts, kept as a folder of plain files."""

from gandalf.model.calibration import Calibration
from gandalf.model.load import load_model, load_network
from gandalf.model.mix import Mix
from gandalf.model.model import Model
from gandalf.model.part import Part
from gandalf.model.save import save_model, write_model
from gandalf.model.trees import Trees
from gandalf.model.with_memory import ModelWithMemory

__all__ = [
    "Calibration",
    "Mix",
    "Model",
    "ModelWithMemory",
    "Part",
    "Trees",
    "load_model",
    "load_network",
    "save_model",
    "write_model",
]
