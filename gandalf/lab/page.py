"""A page of a report: a template with its slots filled, and the style that all pages share."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from string import Template


def filled(template: str, slots: Mapping[str, str]) -> str:
    """The page of that template; one file that needs no other."""
    folder = resources.files("gandalf.lab")
    style = (folder / "page.css").read_text("utf-8").rstrip()
    return Template((folder / template).read_text("utf-8")).substitute(slots, style=style)
