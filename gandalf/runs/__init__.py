"""From a data set and a config to a trained model."""
