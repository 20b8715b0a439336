"""Logs of devices for tests: of three features, keeping everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fultr import DeviceLog

PAGE = [[0.5, 1.0, -2.0], [0.25, 0.0, 4.0]]


def opened(path: Path, **options: Any) -> DeviceLog:
    return DeviceLog.open(path, **{"features": 3, "retention": None, **options})


def files_of(path: Path) -> list[Path]:
    return [file for ending in ("", "-wal", "-shm", "-journal") if (file := Path(f"{path}{ending}")).exists()]


def raw_bytes(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in files_of(path))
