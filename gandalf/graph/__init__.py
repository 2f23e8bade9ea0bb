"""Build label graphs from training points, and diagnose them."""
