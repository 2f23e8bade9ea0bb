"""Augment a Dataset: append label points, draw points, replace words."""
