"""A real browser that a test types and clicks in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from help.browser import find_chromium

from fultr.cli import chromium
from fultr.cli.chromium import Page


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser with one tab; without one that can be installed, the test is skipped."""
    with chromium.browser(find_chromium(), profile) as page:
        yield page
