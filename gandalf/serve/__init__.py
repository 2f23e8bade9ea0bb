"""A model behind HTTP, and a page to ask it."""
