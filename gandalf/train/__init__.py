"""The one training loop and its parts."""
