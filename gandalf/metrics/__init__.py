"""(predictions, truth) to numbers."""
