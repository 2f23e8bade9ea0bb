"""Hold a trained model, and read and write it as a folder of plain files.

Names are imported at their first use, so that reading the facts of a folder does not import PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "Calibration": "calibration",
    "Mix": "mix",
    "Model": "model",
    "ModelWithMemory": "with_memory",
    "Part": "part",
    "Trees": "trees",
    "load_model": "load",
    "load_network": "load",
    "save_model": "save",
    "write_model": "save",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  any exported name
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
