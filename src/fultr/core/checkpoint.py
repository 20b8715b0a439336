"""The state of a run in one file, written atomically: arrays, and the settings that they belong to."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fultr.core.errors import FultrError
from fultr.core.files import written_whole


def save_checkpoint(path: Path, settings: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays and settings; a kill at any moment leaves either the old file or the new one."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        np.savez(file, settings=np.array(json.dumps(settings, sort_keys=True)), allow_pickle=False, **arrays)


def load_checkpoint(path: Path, settings: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Read the arrays of a checkpoint that was made with the same settings; refuse any other.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.npz"
    >>> save_checkpoint(path, {"rounds": 5}, {"weights": np.zeros(2)})
    >>> load_checkpoint(path, {"rounds": 5})["weights"].tolist()
    [0.0, 0.0]
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        found = json.loads(str(arrays.pop("settings")))
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile):
        raise FultrError(f"{path}: expected a checkpoint written by fultr; delete it to start again") from None
    wanted = json.loads(json.dumps(settings))
    if found != wanted:
        different = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
        raise FultrError(
            f"{path}: this checkpoint belongs to a run with other settings (they differ in {', '.join(different)}); "
            "name another file, or delete this one to start again"
        )
    return arrays
