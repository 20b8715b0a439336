"""Releases by the operator: to a share of the devices, to all of them, and back.

`state/releases` holds every release, one signed file each; the newest one counts. `state/release.json`, which devices
fetch, is a copy of it: if that was interrupted, whoever acts next completes it. Operators who act at the same time take
turns.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fultr.core.checks import check_number
from fultr.core.errors import FultrError
from fultr.core.files import locked, make_folder, written_whole
from fultr.deploy.folder import Deployment, load_deployment
from fultr.deploy.keys import load_signing_key
from fultr.federated.judging import Comparison, verdict
from fultr.rankers.release import (
    MOST_VERSION_BYTES,
    RELEASE_FILE,
    Release,
    Released,
    ReleaseKey,
    open_release,
    read_release,
    sign_release,
)
from fultr.rankers.versions import Versions


@dataclass(frozen=True)
class Step:
    """What an operator's action led to: the release that counts now, and whether it is new or was so already."""

    release: Release
    changed: bool


@dataclass(frozen=True)
class Judged:
    """What a comparison led to.

    Attributes:
        verdict: on the candidate: "better", "worse" or "inconclusive".
        rollback: the release that withdrew the candidate, or None.
        says: one line for people.
    """

    verdict: str
    rollback: Release | None
    says: str


def read_releases(folder: Path) -> tuple[Release, ...]:
    """All releases, oldest first."""
    with _turn(folder) as book:
        return book.releases


def publish_first(folder: Path) -> Release | None:
    """Give the latest version to all devices if nothing has been released yet; None if something has."""
    with _turn(folder) as book:
        if book.releases:
            return None
        return book.write("publish", book.version("latest"), why="the first version").release


def rollout(folder: Path, version: str = "latest", share: float = 0.2) -> Step:
    """Give a version to a share of the devices; the same devices stay in as the share of a candidate grows.

    Args:
        folder: of the deployment.
        version: its name, its number, or "latest".
        share: of the devices, above 0, at most 1.
    """
    check_number("share", share, above=0, most=1)
    with _turn(folder) as book:
        candidate = book.version(version)
        last = book.last
        if last is None:
            raise FultrError(
                f"{folder}: nothing has been released yet, so other devices would have no ranker; give it to all: "
                f"fultr deploy promote {folder} {candidate.name}"
            )
        if candidate.name == last.stable.name:
            return Step(last, False)
        salt = last.salt if last.candidate == candidate else secrets.token_hex(16)
        return book.write("rollout", last.stable, candidate, float(share), salt)


def promote(folder: Path, version: str | None = None) -> Step:
    """Give a version to all devices.

    Args:
        folder: of the deployment.
        version: its name, its number, or "latest"; None: the candidate, or the latest if nothing has been released.
    """
    with _turn(folder) as book:
        last = book.last
        if version is not None:
            return book.write("publish" if last is None else "promote", book.version(version))
        if last is None:
            return book.write("publish", book.version("latest"))
        if last.candidate is None:
            return Step(last, False)
        return book.write("promote", last.candidate)


def rollback(folder: Path, to: str | None = None) -> Step:
    """Withdraw the candidate, or return all devices to a version that was stable before.

    Args:
        folder: of the deployment.
        to: the version, by its name or its number; None: withdraw the candidate. Without a candidate that changes
            nothing: two operators who do so at the same time go back once, not twice.
    """
    with _turn(folder) as book:
        last = book.last
        if last is None:
            raise FultrError(f"{folder}: nothing has been released yet")
        if to is None:
            return book.write("rollback", last.stable) if last.candidate is not None else Step(last, False)
        stable = book.version(to)
        if all(release.stable.name != stable.name for release in book.releases):
            raise FultrError(
                f"{stable.name}: was never given to all devices; to try it: fultr deploy rollout {folder} {stable.name}"
            )
        return book.write("rollback", stable)


def judge_candidate(folder: Path, comparison: Comparison | None, candidate: str, stable: str) -> Judged:
    """Act on a comparison of the candidate with the stable version: if it is worse, withdraw it.

    Args:
        folder: of the deployment.
        comparison: what devices found.
        candidate: the name of the version that was compared; if it is no longer the candidate, nothing is done.
        stable: the name of the version that it was compared with; likewise.
    """
    found = verdict(comparison)
    says = f"{candidate} is {found} than {stable}" if found != "inconclusive" else f"{candidate}: inconclusive"
    if comparison is not None:
        says += f": {comparison}"
    if found != "worse" or comparison is None:
        return Judged(found, None, says)
    if not comparison.steady:
        return Judged(found, None, f"{says}; not withdrawn, as that depends on a single device")
    with _turn(folder) as book:
        last = book.last
        if last is None or last.candidate is None or (last.candidate.name, last.stable.name) != (candidate, stable):
            return Judged(found, None, f"{says}; it is no longer the candidate")
        try:
            release = book.write("rollback", last.stable, automatic=True, why=says).release
        except FultrError as error:  # as when the signing key is not here
            return Judged(found, None, f"{says}; not withdrawn: {error}")
    return Judged(found, release, f"{says}; withdrawn by release {release.serial}")


@dataclass
class _Book:
    """The releases of a deployment, for one who has the turn."""

    deployment: Deployment
    releases: tuple[Release, ...]

    @property
    def last(self) -> Release | None:
        """The one that counts."""
        return self.releases[-1] if self.releases else None

    @property
    def state(self) -> Path:
        """The server's folder."""
        return self.deployment.folder / "state"

    def version(self, name: str) -> Released:
        """A version as it is released, read and checked."""
        found = Versions(self.state / "versions").read(name).name
        data = _bytes(self.state / "versions" / f"{found}.json")
        if len(data) > MOST_VERSION_BYTES:
            raise FultrError(f"{found}: has {len(data):,} bytes; devices take at most {MOST_VERSION_BYTES:,}")
        return Released.of(found, data)

    def write(
        self,
        action: str,
        stable: Released,
        candidate: Released | None = None,
        share: float = 0.0,
        salt: str = "",
        *,
        automatic: bool = False,
        why: str = "",
    ) -> Step:
        """Sign and write the next release, unless the last one says the same, signed with the same key."""
        key, name, last = load_signing_key(self.deployment.superlink / "signing.key"), self.deployment.name, self.last
        asked = (name, stable, candidate, share, salt)
        if last is not None and asked == (last.federation, last.stable, last.candidate, last.share, last.salt):
            with suppress(FultrError):  # if the key was replaced, the same is signed again
                public = ReleaseKey(name, key.public_key().public_bytes_raw())
                return Step(open_release(_bytes(_file(self.state, last.serial)), public), False)
        serial = 1 if last is None else last.serial + 1
        made = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        release = Release(serial, name, stable, candidate, share, salt, action, automatic, why, made)
        signed = sign_release(release, key)
        _write(_file(self.state, serial), signed)
        _write(self.state / RELEASE_FILE, signed)
        self.releases += (release,)
        return Step(release, True)


@contextmanager
def _turn(folder: Path) -> Iterator[_Book]:
    """The releases, while no one else can write any."""
    deployment = load_deployment(folder)
    state = deployment.folder / "state"
    make_folder(state / "releases")
    with locked(state / "releases" / ".lock"):
        files = sorted((state / "releases").glob("r*.json"))
        if files and _bytes(files[-1]) != _bytes(state / RELEASE_FILE):  # the last one was interrupted in between
            _write(state / RELEASE_FILE, _bytes(files[-1]))
        yield _Book(deployment, tuple(map(_read, files)))


def _read(file: Path) -> Release:
    try:
        return read_release(_bytes(file))
    except FultrError as error:
        raise FultrError(f"{file}: {error}") from None


def _bytes(file: Path) -> bytes:
    """A file's content; none if it is missing."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise FultrError(f"{file}: cannot be read: {error.strerror}") from None


def _write(file: Path, data: bytes) -> None:
    with written_whole(file) as temporary:
        temporary.write_bytes(data)


def _file(state: Path, serial: int) -> Path:
    return state / "releases" / f"r{serial:06}.json"
