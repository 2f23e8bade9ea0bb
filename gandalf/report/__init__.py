"""Show results as terminal tables and plots."""
