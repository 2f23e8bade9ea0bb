"""Predict without PyTorch: wide models, mixes of probabilities, networks of words."""
