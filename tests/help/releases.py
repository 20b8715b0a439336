"""Versions, keys and signed releases in a folder, as a server has them; and a device that fetches them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fultr.device.store import Taken, take_release
from fultr.rankers.ranker import Ranker
from fultr.rankers.release import RELEASE_FILE, Release, Released, ReleaseKey, sign_release
from fultr.rankers.versions import Versions

NAMES = ("title", "age", "length")
MADE = "2026-03-02T09:14:00Z"


def write_version(state: Path, seed: int, names: tuple[str, ...] | None = NAMES) -> str:
    """Write a ranker of three features as the next version; its name."""
    ranker = Ranker(np.random.default_rng(seed).standard_normal(3).astype(np.float32), np.arange(1, 4))
    return Versions(state / "versions").write(
        ranker, parent=None, configuration={}, metrics={}, feature_names=names
    ).name  # fmt: skip


@dataclass
class Server:
    """A server's state, and the requests that it gets."""

    state: Path
    signer: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    asked: list[str] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> ReleaseKey:
        """What devices are enrolled with."""
        return ReleaseKey("pilot", self.signer.public_key().public_bytes_raw())

    def released(self, name: str) -> Released:
        """A version as a release has it."""
        return Released.of(name, self.file(name).read_bytes())

    def file(self, name: str) -> Path:
        """A version's file."""
        return self.state / "versions" / f"{name}.json"

    def release(self, serial: int, stable: str, candidate: str | None = None, share: float = 0.0, **others) -> Release:
        """Sign a release and serve it."""
        tried = None if candidate is None else self.released(candidate)
        salt = "" if candidate is None else "5f"
        made = Release(serial, "pilot", self.released(stable), tried, share, salt, "promote", False, "", MADE)
        made = replace(made, **others)
        (self.state / RELEASE_FILE).write_bytes(sign_release(made, self.signer))
        return made

    def fetch(self, name: str, most: int) -> bytes:
        """What a device calls."""
        self.asked.append(name)
        self.limits[name] = most
        return (self.state / name).read_bytes()

    def take(self, folder: Path, features=NAMES, identity: bytes = b"device", key: ReleaseKey | None = None) -> Taken:
        """A device looks for a release."""
        return take_release(folder, self.fetch, key or self.key, features, identity)
