"""A release: which version of the ranker devices are to use, signed by the federation.

There is a stable version, and perhaps a candidate for a share of the devices. A release contains the SHA-256 of both
versions' files, so that its signature (Ed25519) covers them too: a device needs to trust neither the server's disk nor
the network, only the key that it was enrolled with. Nothing is parsed as a ranker before its hash was found right.

A release is one file: the text that was signed, and the signature. `cryptography` is imported when it is needed.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fultr.core.checks import number_fits, number_words, written
from fultr.core.errors import FultrError
from fultr.rankers.versions import is_version_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = "fultr release 1"
RELEASE_FILE = "release.json"  # beside it, versions/NAME.json
MOST_RELEASE_BYTES = 64_000
MOST_VERSION_BYTES = 17_000_000  # some million weights in decimal, as much as a node reads of an answer
ACTIONS = ("publish", "rollout", "promote", "rollback")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MOST_WHY = 500
_MOST_NAME = 100


@dataclass(frozen=True)
class Released:
    """A version in a release: its name, and the size and SHA-256 of its file.

    >>> Released.of("v0001-1f2ab9", b"{}").size
    2
    """

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, name: str, data: bytes) -> Released:
        """A version by its name and the bytes of its file."""
        return cls(name, len(data), hashlib.sha256(data).hexdigest())

    def matches(self, data: bytes) -> bool:
        """Are these the bytes of its file?"""
        return len(data) == self.size and hashlib.sha256(data).hexdigest() == self.sha256


@dataclass(frozen=True)
class Release:
    """What devices are to use.

    Attributes:
        serial: from 1; a device takes no release with a lower one than it has seen.
        federation: its name.
        stable: the version of all devices that do not use the candidate.
        candidate: a newer version under trial, or None.
        share: the share of devices that use the candidate; 0 without one.
        salt: decides which devices; a new one for every candidate, "" without one.
        action: what led to it, one of `ACTIONS`.
        automatic: was it written without an operator?
        why: for people.
        made: when, in UTC.

    >>> stable, candidate = Released.of("v0001-1f2ab9", b"{}"), Released.of("v0002-0c3a41", b"{ }")
    >>> release = Release(7, "pilot", stable, candidate, 0.25, "5f", "rollout", False, "", "2026-03-02T09:14:00Z")
    >>> Release.from_bytes(release.to_bytes()) == release
    True
    >>> sum(release.version_for(b"device %d" % i) is candidate for i in range(10_000))
    2532
    """

    serial: int
    federation: str
    stable: Released
    candidate: Released | None
    share: float
    salt: str
    action: str
    automatic: bool
    why: str
    made: str

    def to_bytes(self) -> bytes:
        """The text that is signed."""
        return json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Release:
        """Read what `to_bytes` wrote; anything else is refused."""
        given = _json_object(data, "release")
        if given.pop("format", None) != FORMAT:
            raise FultrError(f"release: expected the format {FORMAT!r}")
        _check_keys(given, cls, "release")
        stable = _released(given.pop("stable"), "stable")
        candidate = given.pop("candidate")
        release = cls(
            **given, stable=stable, candidate=None if candidate is None else _released(candidate, "candidate")
        )
        release._check()
        return release

    def version_for(self, identity: bytes) -> Released:
        """The version that a device is to use: the same device is in every larger share too.

        Args:
            identity: the device's own, such as its public key.
        """
        if self.candidate is None:
            return self.stable
        drawn = hashlib.sha256(self.salt.encode() + b"\n" + identity).digest()
        return self.candidate if int.from_bytes(drawn[:8]) < self.share * 2**64 else self.stable

    def _check(self) -> None:
        """Refuse values that no release can have; the dataclass itself says only what their types should be."""
        tried = self.candidate is not None
        _check_number(self.serial, "serial", whole=True, least=1, most=2**53)
        bounds = {"above": 0, "most": 1} if tried else {"least": 0, "most": 0}
        _check_number(self.share, "share", whole=False, **bounds)
        _check(_is_text(self.federation, _MOST_NAME) and self.federation != "", "federation", "a name")
        _check(_is_text(self.salt, _MOST_NAME) and (self.salt != "") == tried, "salt", "a text if there is a candidate")
        _check(isinstance(self.action, str) and self.action in ACTIONS, "action", f"one of {', '.join(ACTIONS)}")
        _check(isinstance(self.automatic, bool), "automatic", "true or false")
        _check(_is_text(self.why, _MOST_WHY), "why", f"a text of at most {_MOST_WHY} characters")
        _check(isinstance(self.made, str) and _TIME.fullmatch(self.made) is not None, "made", "a time in UTC")
        _check(not tried or self.candidate != self.stable, "candidate", "another version than the stable one")


@dataclass(frozen=True)
class ReleaseKey:
    """What a device was enrolled with: the federation's name and the key (Ed25519, 32 bytes) that it signs with."""

    federation: str
    public: bytes

    def to_line(self) -> str:
        """The line of its file, in OpenSSH form with the federation as the comment."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        key = Ed25519PublicKey.from_public_bytes(self.public)
        opened = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return f"{opened.decode()} {self.federation}\n"

    @classmethod
    def read(cls, path: Path) -> ReleaseKey:
        """Read the file that a device was enrolled with."""
        try:
            line = path.read_bytes()
        except OSError as error:
            raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
        require_cryptography("checking a release")
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        words = line.decode("utf-8", "replace").split()
        try:
            key = serialization.load_ssh_public_key(line)
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey) or len(words) != 3:
            raise FultrError(f"{path}: expected an Ed25519 public key in OpenSSH form: ssh-ed25519 KEY FEDERATION")
        return cls(words[2], key.public_bytes_raw())


def sign_release(release: Release, key: Ed25519PrivateKey) -> bytes:
    """The file of a release."""
    text = release.to_bytes()
    return json.dumps({"release": text.decode(), "signature": key.sign(text).hex()}, indent=1).encode() + b"\n"


def open_release(data: bytes, key: ReleaseKey) -> Release:
    """The release in a file, if the federation that the key belongs to has signed it."""
    require_cryptography("checking a release")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    text, signature = _split(data)
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature, text)
    except InvalidSignature:
        raise FultrError(f"release: was not signed with the key of the federation {key.federation!r}") from None
    release = Release.from_bytes(text)
    if release.federation != key.federation:
        raise FultrError(f"release: is for the federation {release.federation!r}, expected {key.federation!r}")
    return release


def read_release(data: bytes) -> Release:
    """The release in a file of one's own, whoever signed it."""
    return Release.from_bytes(_split(data)[0])


def _split(data: bytes) -> tuple[bytes, bytes]:
    """The text that was signed, and the signature."""
    if len(data) > MOST_RELEASE_BYTES:
        raise FultrError(f"release: expected at most {MOST_RELEASE_BYTES:,} bytes, found {len(data):,}")
    given = _json_object(data, "release")
    if given.keys() != {"release", "signature"} or not all(isinstance(value, str) for value in given.values()):
        raise FultrError("release: expected a text release and its signature, and nothing else")
    try:
        return given["release"].encode(), bytes.fromhex(given["signature"])
    except ValueError:
        raise FultrError("release: expected text, and a signature in hexadecimal digits") from None


def _released(given: Any, where: str) -> Released:
    if not isinstance(given, dict):
        raise FultrError(f"release: {where}: expected a version, found {written(given)}")
    _check_keys(given, Released, f"release: {where}")
    released = Released(**given)
    _check(is_version_name(released.name), f"{where}: name", "the name of a version")
    _check_number(released.size, f"{where}: size", whole=True, least=1, most=MOST_VERSION_BYTES)
    digest = released.sha256
    _check(isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) is not None, f"{where}: sha256", "a digest")
    return released


def _json_object(data: bytes, where: str) -> dict[str, Any]:
    try:
        given = json.loads(data.decode())
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise FultrError(f"{where}: expected a JSON object; the file is damaged or incomplete")
    return given


def _check_keys(given: dict[str, Any], record: type, where: str) -> None:
    expected = {field.name for field in fields(record)}
    if odd := sorted(given.keys() ^ expected):
        raise FultrError(
            f"{where}: {written(odd[0], text_expected=True)} is {'missing' if odd[0] in expected else 'unknown'}"
        )


def _check_number(value: object, name: str, **bounds: Any) -> None:
    if not number_fits(value, **bounds):
        raise FultrError(f"release: {name}: expected {number_words(**bounds)}, found {written(value)}")


def _check(fits: bool, name: str, wanted: str) -> None:
    if not fits:
        raise FultrError(f"release: {name}: expected {wanted}")


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and value.isprintable()


def require_cryptography(what: str) -> None:
    """Say what to install if `cryptography` is missing, which something needs."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise FultrError(f"{what} needs cryptography: pip install 'fultr[flower]'") from None
