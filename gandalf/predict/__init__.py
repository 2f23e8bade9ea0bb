"""Predict labels and probabilities of texts, exactly or by an index, and write them to files."""
