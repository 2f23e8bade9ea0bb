"""Train encoders and heads: the one training loop and its parts."""
