"""Extreme multi-label classification of short text with label text."""

__version__ = "0.1.0"
