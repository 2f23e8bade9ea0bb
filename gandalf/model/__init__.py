"""A trained model: tokens, encoder, head and label texts, kept as a folder of plain files."""

from gandalf.model.calibration import Calibration
from gandalf.model.folder import load_model, save_model, write_model
from gandalf.model.model import Model

__all__ = ["Calibration", "Model", "load_model", "save_model", "write_model"]
