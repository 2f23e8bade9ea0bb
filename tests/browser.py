"""Debian's chromium by Playwright, on loopback alone."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import pytest

OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps"),
)


def chromium() -> str:
    """Where it is; without it the test is skipped."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("there is no chromium here; on Debian: apt-get install chromium")
    return found


@contextmanager
def open_browser():
    """A browser that is closed at the end."""
    path = chromium()
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(OPTIONS))
        try:
            yield browser
        finally:
            browser.close()
