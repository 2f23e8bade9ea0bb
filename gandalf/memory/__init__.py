"""Keep training points beside a model: their vectors are keys, their targets are values."""
