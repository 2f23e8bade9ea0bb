"""Predict without PyTorch: wide models, mixes of probabilities, and checks of model folders."""
