"""Define encoders, which turn token ids into vectors, and heads, which turn label ids into rows."""
