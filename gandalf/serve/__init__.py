"""Serve a model by HTTP, with a page for people."""
