"""Whose keys may take part in a secure sum: a list that the federation has signed.

A server that could add devices of its own to a cohort would see through the masks that they have in common with the
others. So a device masks only with keys of a list that is signed (Ed25519) with the key that it was enrolled with, the
one that signs releases; and the list's serial number never goes back.

A list is one file: a line with the signature in hexadecimal digits, then the text that was signed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from fultr.core.checks import number_fits
from fultr.core.errors import FultrError
from fultr.federated.privacy.masks import KEY_BYTES, SumKey
from fultr.rankers.release import ReleaseKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = "fultr enrolment 1"
MOST_BYTES = 8_000_000
"""Of a list: 100,000 devices."""

_LINE = 129  # bytes of the signature's line


@dataclass(frozen=True)
class Enrolment:
    """The devices of a federation that can take part in secure sums.

    Attributes:
        serial: from 1; a device takes no list with a lower one than it has seen.
        federation: its name.
        devices: their numbers, ascending.
        keys: their public keys, all different.

    >>> Enrolment(1, "pilot", (0, 4), (b"a" * 32, b"b" * 32)).key_of(4) == b"b" * 32
    True
    """

    serial: int
    federation: str
    devices: tuple[int, ...]
    keys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not number_fits(self.serial, whole=True, least=1, most=2**53):
            raise FultrError("enrolment: serial: expected a whole number from 1")
        if not isinstance(self.federation, str) or not 0 < len(self.federation) <= 100:
            raise FultrError("enrolment: federation: expected a name")
        numbers = self.devices
        if not all(number_fits(number, whole=True, least=0, most=10**9) for number in numbers):
            raise FultrError("enrolment: devices: expected whole numbers from 0")
        if any(one >= other for one, other in pairwise(numbers)):
            raise FultrError("enrolment: devices: expected ascending numbers")
        if len(self.keys) != len(numbers) or any(len(key) != KEY_BYTES for key in self.keys):
            raise FultrError(f"enrolment: keys: expected {KEY_BYTES} bytes for each device")
        if len(set(self.keys)) < len(self.keys):
            raise FultrError("enrolment: keys: two devices have the same")

    def key_of(self, device: int) -> bytes:
        """The public key of a device."""
        if device not in self._keys:
            raise FultrError(f"device {device} is not enrolled for secure sums")
        return self._keys[device]

    @cached_property
    def _keys(self) -> dict[int, bytes]:
        return dict(zip(self.devices, self.keys, strict=True))

    def to_bytes(self) -> bytes:
        """The text that is signed."""
        keys = b"".join(self.keys).hex()
        head = {"format": FORMAT, "serial": self.serial, "federation": self.federation}
        return json.dumps({**head, "devices": self.devices, "keys": keys}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Enrolment:
        """Read what `to_bytes` wrote; anything else is refused."""
        try:
            given = json.loads(data.decode())
            if given.pop("format") != FORMAT or set(given) != {"serial", "federation", "devices", "keys"}:
                raise ValueError
            raw, devices = bytes.fromhex(given["keys"]), tuple(given["devices"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise FultrError(f"enrolment: expected a list of devices in the format {FORMAT!r}") from None
        keys = tuple(raw[i : i + KEY_BYTES] for i in range(0, len(raw), KEY_BYTES))
        return cls(given["serial"], given["federation"], devices, keys)


@dataclass(frozen=True, eq=False)
class SumIdentity:
    """What a device needs to take part in secure sums.

    Attributes:
        key: its own.
        federation: whose lists of devices it believes, as it was enrolled.
    """

    key: SumKey
    federation: ReleaseKey


def sign_enrolment(enrolment: Enrolment, key: Ed25519PrivateKey) -> bytes:
    """The file of a list."""
    text = enrolment.to_bytes()
    return key.sign(text).hex().encode() + b"\n" + text


def read_enrolment(data: bytes) -> Enrolment:
    """The list in a file of one's own, whoever signed it."""
    return Enrolment.from_bytes(_split(data)[1])


@lru_cache(maxsize=2)
def open_enrolment(data: bytes, key: ReleaseKey) -> Enrolment:
    """The list in a file, if the federation that the key belongs to has signed it."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signature, text = _split(data)
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature, text)
    except InvalidSignature:
        raise FultrError(f"enrolment: was not signed with the key of the federation {key.federation!r}") from None
    enrolment = Enrolment.from_bytes(text)
    if enrolment.federation != key.federation:
        raise FultrError(f"enrolment: is for the federation {enrolment.federation!r}, expected {key.federation!r}")
    return enrolment


def _split(data: bytes) -> tuple[bytes, bytes]:
    if len(data) > MOST_BYTES:
        raise FultrError(f"enrolment: expected at most {MOST_BYTES:,} bytes, found {len(data):,}")
    if re.fullmatch(rb"[0-9a-f]{128}\n", data[:_LINE]) is None:
        raise FultrError("enrolment: expected a signature, and the text that was signed")
    return bytes.fromhex(data[: _LINE - 1].decode()), data[_LINE:]
