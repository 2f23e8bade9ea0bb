"""Texts become labels and probabilities: exact top k, calibration, and whole files."""
