"""Results to terminal tables and plots."""
