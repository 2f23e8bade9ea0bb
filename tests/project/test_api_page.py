"""The page of public names is what the code says, and everything on it is typed and documented."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

import gandalf

DOCS = Path(__file__).resolve().parents[2] / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("api_page", DOCS / "api_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    said = "docs/reference/api.md is not current: run python docs/api_page.py"
    assert (DOCS / "reference" / "api.md").read_text("utf-8") == generator().page(), said


@pytest.mark.parametrize("name", gandalf.__all__)
def test_every_public_name_is_documented_and_typed(name):
    found = getattr(gandalf, name)
    assert inspect.getdoc(found)
    members = (
        [found]
        if not inspect.isclass(found)
        else [
            value
            for key, value in vars(found).items()
            if inspect.isfunction(value) and not key.startswith("_")
        ]
    )
    for each in members:
        assert inspect.getdoc(each), each
        signature = inspect.signature(each)
        empty = inspect.Signature.empty
        assert signature.return_annotation is not empty, each
        untyped = [p for p in signature.parameters.values() if p.annotation is empty and p.name != "self"]
        assert not untyped, (each, untyped)
