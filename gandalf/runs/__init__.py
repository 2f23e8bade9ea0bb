"""Train a model: from a data set and a recipe to a model folder."""
