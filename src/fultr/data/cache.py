"""An on-disk cache of data sets, so that a file is parsed, or a data set generated, once.

The cache is the folder `$FULTR_CACHE`, else `$XDG_CACHE_HOME/fultr`, else `~/.cache/fultr`; `FULTR_CACHE=off` turns it
off. An entry is a folder of .npy files and a manifest with their sizes. It is written under a temporary name and then
renamed, so it is either complete or absent; if two processes make the same entry, the second discards its own.
Nothing is ever removed to make room, except by `clear_cache`.

Memory: the features of a cached data set are mapped from disk, read-only, and take memory only as they are touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fultr.core.files import cache_folder, is_abandoned, writer_tag
from fultr.data.ranking import RankingData

_FORMAT = 1  # part of every key: raise it when the reader, the generator or the files of an entry change
_MANIFEST = "manifest.json"
_UNFINISHED = "unfinished"
_STALE_SECONDS = 24 * 3600


def clear_cache() -> int:
    """Remove every entry; returns how many bytes that freed. Data that is mapped in some process stays usable there.

    >>> import tempfile
    >>> from unittest.mock import patch
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, FULTR_CACHE=folder):
    ...     made = cached({"kind": "example"}, lambda: [RankingData.from_arrays([[1.0]], [1], [1])])
    ...     freed = clear_cache()
    >>> freed > 0
    True
    """
    folder = cache_folder()
    freed = 0
    for entry in folder.glob("*-*/") if folder else ():
        if (entry / _MANIFEST).exists() or entry.name.startswith(_UNFINISHED):
            with suppress(OSError):
                freed += sum(file.stat().st_size for file in entry.iterdir())
            shutil.rmtree(entry, ignore_errors=True)
    return freed


def file_identity(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What distinguishes a file from others and from its own earlier content, without reading it: for use in a key.

    >>> sorted(file_identity("."))
    ['inode', 'mtime_ns', 'path', 'size']
    """
    resolved = Path(path).resolve()
    stat = resolved.stat()
    return {"path": str(resolved), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino}


def cached(key: Mapping[str, Any], make: Callable[[], list[RankingData]]) -> list[RankingData]:
    """The data sets stored under `key`; if there are none, those that `make` returns, which are stored.

    If the cache cannot be written there is a warning, not an error, and the result of `make` is returned.

    Args:
        key: everything that the result depends on, as JSON values.
        make: makes the data sets; called only if they are not in the cache.

    >>> import tempfile
    >>> from unittest.mock import patch
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, FULTR_CACHE=folder):
    ...     for _ in range(2):
    ...         cached({"kind": "example"}, lambda: print("made") or [RankingData.from_arrays([[1.0]], [1], [1])])
    made
    [RankingData(1 query, 1 document, 1 feature)]
    [RankingData(1 query, 1 document, 1 feature)]
    """
    folder = cache_folder()
    if folder is None:
        return make()
    text = json.dumps({"format": _FORMAT, "key": dict(key)}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    entry = folder / f"{key.get('kind', 'data')}-{hashlib.sha256(text.encode()).hexdigest()[:40]}"
    found = _load(entry)
    if found is not None:
        return found
    made = make()
    try:
        _store(entry, text, made)
    except OSError as error:
        warnings.warn(f"{folder}: not cached: {error.strerror or error}", stacklevel=2)
        return made
    return _load(entry) or made


def _load(entry: Path) -> list[RankingData] | None:
    """The data sets of an entry, or None if there is no such entry or it is damaged."""
    try:
        manifest = json.loads((entry / _MANIFEST).read_bytes())
        if any((entry / name).stat().st_size != size for name, size in manifest["sizes"].items()):
            return None
        return [
            RankingData(
                **{
                    field.name: _array(entry / f"{i}-{field.name}.npy")
                    for field in fields(RankingData)
                    if f"{i}-{field.name}.npy" in manifest["sizes"]
                }
            )
            for i in range(manifest["data_sets"])
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _array(file: Path) -> np.ndarray[Any, Any]:
    mapped = file.name.endswith("-features.npy")
    array: np.ndarray[Any, Any] = np.asarray(np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False))
    array.flags.writeable = False
    return array


def _store(entry: Path, key: str, made: list[RankingData]) -> None:
    """Write an entry under a temporary name, then rename it."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    _remove_left_overs(entry.parent)
    unfinished = entry.parent / f"{_UNFINISHED}-{writer_tag()}"
    unfinished.mkdir()
    try:
        sizes = {}
        for i, data in enumerate(made):
            for name, array in data.arrays().items():
                file = unfinished / f"{i}-{name}.npy"
                with file.open("wb") as stream:
                    np.save(stream, array, allow_pickle=False)
                    _sync(stream.fileno(), stream.flush)
                sizes[file.name] = file.stat().st_size
        with (unfinished / _MANIFEST).open("w") as manifest:
            json.dump({"key": json.loads(key), "data_sets": len(made), "sizes": sizes}, manifest, indent=1)
            _sync(manifest.fileno(), manifest.flush)
        _move(unfinished, entry)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _sync(descriptor: int, flush: Callable[[], None]) -> None:
    flush()
    os.fsync(descriptor)


def _move(unfinished: Path, entry: Path) -> None:
    """Rename an entry into place, unless a good one exists by now; a damaged one is moved away first."""
    if entry.exists() and _load(entry) is None:
        entry.rename(unfinished.with_name(unfinished.name + "-damaged"))
        shutil.rmtree(unfinished.with_name(unfinished.name + "-damaged"), ignore_errors=True)
    try:
        unfinished.rename(entry)
    except OSError:
        if _load(entry) is None:
            raise


def _remove_left_overs(folder: Path) -> None:
    """Remove what processes left behind that were killed while writing."""
    for left in folder.glob(f"{_UNFINISHED}-*/"):
        with suppress(OSError):
            if is_abandoned(left.name.removeprefix(f"{_UNFINISHED}-")) or (
                time.time() - left.stat().st_mtime > _STALE_SECONDS
            ):
                shutil.rmtree(left, ignore_errors=True)
