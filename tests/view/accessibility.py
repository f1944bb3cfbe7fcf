"""The rules of Lighthouse for a page, as far as a browser tells them without Lighthouse."""

from __future__ import annotations

from pathlib import Path

from tests.report.chromium import Page

_SCRIPT = Path(__file__).with_suffix(".js").read_text()


def faults_of(page: Page) -> list[str]:
    """The faults of the page that is open, a rule and an element each."""
    found: list[str] = page.evaluate(_SCRIPT)
    return found
