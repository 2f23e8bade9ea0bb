"""Dataset to Dataset: label points, sampling."""
