"""What several tests need."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("FULTR_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """The folder of a real data set; the test is skipped where it is not to be had."""

    def folder(name: str) -> Path:
        given = os.environ.get("FULTR_DATA")
        root = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
        if not (root / name).is_dir():
            pytest.skip(f"real data set {name} is not here: set FULTR_DATA to the folder that holds it")
        return root / name

    return folder
