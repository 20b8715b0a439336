"""A device's rankers: those that it has been given, and which of them is in use.

The folder holds one file per version (NAME.json), the last release that the device accepted (release.json), and the
name of the version in use, a line of text (current). Every file is replaced whole, and `current` last, so that at any
moment an application finds a ranker that was checked. Whatever goes wrong, the ranker in use stays in use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fultr.core.errors import FultrError
from fultr.core.files import locked, make_folder, written_whole
from fultr.device.current import write_current
from fultr.rankers.release import MOST_RELEASE_BYTES, RELEASE_FILE, Release, Released, ReleaseKey, open_release
from fultr.rankers.versions import Version, Versions, is_version_name, version_of_bytes

KEPT = 20  # versions besides the one in use: impressions name the version that made them
_CURRENT = "current"

Fetch: TypeAlias = Callable[[str, int], bytes]


@dataclass(frozen=True)
class Taken:
    """What came of looking for a release.

    Attributes:
        version: the name of the version in use now, None if there is none.
        changed: was another one in use before?
        refused: why the release was not taken, in one line; "" if it was.
    """

    version: str | None
    changed: bool
    refused: str


def take_release(folder: Path, fetch: Fetch, key: ReleaseKey, features: Sequence[str] | int, identity: bytes) -> Taken:
    """Look for a release, and use the version that it has for this device.

    Args:
        folder: of this device's rankers.
        fetch: gets a file of the server by its name, "release.json" or "versions/NAME.json", of at most this many
            bytes; it may raise whatever it likes.
        key: what the device was enrolled with.
        features: those of its log: their names, or how many there are.
        identity: decides whether a candidate is for this device; its public key.
    """
    before: str | None = None
    try:
        make_folder(folder)
        with locked(folder / ".lock"):
            before = _current(folder)
            wanted = _accepted(folder, fetch, key).version_for(identity)
            _stored(folder, fetch, wanted, features)
            if wanted.name != before:
                _touch(folder, before)
                write_current(folder, wanted.name)
            _forget(folder, wanted.name)
    except FultrError as error:
        return Taken(before, False, str(error))
    return Taken(wanted.name, wanted.name != before, "")


def _current(folder: Path) -> str | None:
    """The name of the version in use; None if there is none, or no file of that name."""
    try:
        name = (folder / _CURRENT).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return name if is_version_name(name) and (folder / f"{name}.json").is_file() else None


def _accepted(folder: Path, fetch: Fetch, key: ReleaseKey) -> Release:
    """The server's release, if it is signed and no older than the last one."""
    data = _fetched(fetch, RELEASE_FILE, MOST_RELEASE_BYTES)
    release, file = open_release(data, key), folder / RELEASE_FILE
    seen = _seen(file, key)
    if seen is not None and release.serial < seen.serial:
        raise FultrError(f"release: has serial {release.serial}, older than {seen.serial}, which was here before")
    if seen is not None and release.serial == seen.serial and release != seen:
        raise FultrError(f"release: there are two with serial {release.serial}; the first one is kept")
    if release != seen:
        with written_whole(file) as temporary:
            temporary.write_bytes(data)
    return release


def _seen(file: Path, key: ReleaseKey) -> Release | None:
    """The last accepted release; None if there is none of this key: a new key starts anew."""
    try:
        return open_release(file.read_bytes(), key)
    except (OSError, FultrError):
        return None


def _stored(folder: Path, fetch: Fetch, wanted: Released, features: Sequence[str] | int) -> None:
    """Have a version's file in the folder, fetched if need be, and check that this device can use it."""
    file = folder / f"{wanted.name}.json"
    try:
        data = file.read_bytes()
    except OSError:
        data = b""
    there = wanted.matches(data)
    if not there:
        data = _fetched(fetch, f"versions/{file.name}", wanted.size)
        if not wanted.matches(data):
            raise FultrError(f"{file.name}: is not the file that was signed: {len(data):,} bytes of {wanted.size:,}")
    version = version_of_bytes(data, file.name)
    if version.name != wanted.name:
        raise FultrError(f"{file.name}: holds version {version.name}")
    _check_features(version, features)
    if not there:
        with written_whole(file) as temporary:
            temporary.write_bytes(data)


def _fetched(fetch: Fetch, name: str, most: int) -> bytes:
    try:
        data = fetch(name, most)
    except Exception as error:  # of whatever the network is made of: the ranker in use must survive it
        raise FultrError(f"{name}: cannot be fetched: {' '.join(str(error).split())[:200]}") from None
    if len(data) > most:
        raise FultrError(f"{name}: expected at most {most:,} bytes, found {len(data):,}")
    return data


def _check_features(version: Version, features: Sequence[str] | int) -> None:
    """Refuse a ranker for other features than the log's: by their names if both have names, else by their number."""
    width = features if isinstance(features, int) else len(features)
    if len(version.ranker.feature_names) != width:
        raise FultrError(
            f"{version.name}: ranks by {len(version.ranker.feature_names)} features, and the log has {width}"
        )
    if isinstance(features, int) or not version.ranker.named:
        return
    for number, (ours, theirs) in enumerate(zip(features, version.ranker.feature_names, strict=True), 1):
        if ours != theirs:
            raise FultrError(f"{version.name}: its feature {number} is {theirs!r}, and the log's is {ours!r}")


def _touch(folder: Path, name: str | None) -> None:
    """Note that a version was in use until now."""
    if name is not None:
        with suppress(OSError):
            os.utime(folder / f"{name}.json")


def _forget(folder: Path, current: str) -> None:
    """Delete the versions that have not been in use for longest, but for some."""
    files = [folder / f"{name}.json" for name in Versions(folder).list() if name != current]
    with suppress(OSError):
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns)[: max(0, len(files) - KEPT)]:
            file.unlink()
