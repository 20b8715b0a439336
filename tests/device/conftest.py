"""What the tests of devices share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a log will be."""
    return tmp_path / "search.db"
