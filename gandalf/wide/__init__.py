"""The wide part of a model, and the arithmetic of a mix: everything that predicts without PyTorch."""
