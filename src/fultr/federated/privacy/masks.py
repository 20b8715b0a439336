"""Keys that two devices of a round have in common, and the masks that follow from them.

Every device has one X25519 key for sums. Two devices derive from theirs, without a message, the keys of one round:
HKDF with the digest of the session (`fultr.federated.privacy.secure_sum.Session`) as salt. Another round, attempt,
task or cohort gives other keys. A mask is the ChaCha20 keystream of such a key, in numbers of 64 bits.

Primitives are those of `cryptography`, which is imported when it is needed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fultr.core.arrays import UInt64s
from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY_BYTES = 32
SEALED_BYTES = 12 + 32 + 16  # nonce, share, tag
_PAIR, _SELF = b"fultr secure sums 1: pair", b"fultr secure sums 1: self"


class PairKeys(NamedTuple):
    """What two devices have in common in one session.

    Attributes:
        mask: of what the one adds and the other subtracts.
        sending: for what this device encrypts for the other.
        receiving: for what the other encrypts for this one.
    """

    mask: bytes
    sending: bytes
    receiving: bytes


@dataclass(frozen=True, eq=False)
class SumKey:
    """A device's own key for sums.

    Attributes:
        private: X25519.
        agreed: what it has in common with other devices, by their public keys. It is the same in every round, and
            takes longest; it is kept in memory alone.
        derived: the keys of the latest session, by its digest and the other's public key: both messages need them.
            Whoever could read them there could read the private key, too.
    """

    private: X25519PrivateKey
    agreed: dict[bytes, bytes] = field(default_factory=dict, repr=False)
    derived: dict[bytes, dict[bytes, PairKeys]] = field(default_factory=dict, repr=False)

    @classmethod
    def generate(cls) -> SumKey:
        """A new one."""
        return cls(_library().X25519PrivateKey.generate())

    @cached_property
    def public(self) -> bytes:
        """The public half, 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    def pair(self, other: bytes, session: bytes) -> PairKeys:
        """The keys with another device in a session.

        Args:
            other: its public key.
            session: the digest of the session.
        """
        if session not in self.derived:
            self.derived.clear()
            self.derived[session] = {}
        known = self.derived[session]
        if other not in known:
            known[other] = self._derive(other, session)
        return known[other]

    def _derive(self, other: bytes, session: bytes) -> PairKeys:
        if other not in self.agreed:
            try:
                self.agreed[other] = self.private.exchange(_library().X25519PublicKey.from_public_bytes(other))
            except ValueError:  # a point of low order: everyone would know the result
                raise FultrError(f"the key {other.hex()[:16]}... is of no use") from None
        own = self.public
        info = _PAIR + min(own, other) + max(own, other)
        keys = _derived(self.agreed[other], session, info, 3 * KEY_BYTES)
        mask, lower, upper = keys[:KEY_BYTES], keys[KEY_BYTES : 2 * KEY_BYTES], keys[2 * KEY_BYTES :]
        return PairKeys(mask, lower, upper) if own < other else PairKeys(mask, upper, lower)


def self_mask_key(seed: bytes, session: bytes) -> bytes:
    """The key of a device's self-mask, from the seed that it drew for a session."""
    return _derived(seed, session, _SELF, KEY_BYTES)


def mask_of(key: bytes, size: int) -> UInt64s:
    """So many numbers of 64 bits that only who knows the key can tell from random ones.

    A key is used for one mask, so the nonce can be zero.

    >>> mask_of(bytes(32), 2).tobytes().hex()  # the keystream of RFC 8439, A.1, test vector 1
    '76b8e0ada0f13d90405d6ae55386bd28'
    """
    library = _library()
    stream = library.Cipher(library.ChaCha20(key, bytes(16)), None).encryptor().update(bytes(8 * size))
    return np.frombuffer(stream, "<u8").astype(np.uint64, copy=False)


def sealed(key: bytes, share: bytes, about: bytes) -> bytes:
    """A share for one device alone: nonce, ciphertext and tag (ChaCha20-Poly1305).

    Args:
        key: of this direction between two devices, in one session.
        share: what the other is told.
        about: what it must be about, which is authenticated with it.
    """
    nonce = os.urandom(12)
    return nonce + _library().ChaCha20Poly1305(key).encrypt(nonce, share, about)


def unsealed(key: bytes, content: bytes, about: bytes) -> bytes | None:
    """The share that another device sealed; None if it did not."""
    library = _library()
    try:
        share: bytes = library.ChaCha20Poly1305(key).decrypt(content[:12], content[12:], about)
    except library.InvalidTag:
        return None
    return share


def _derived(secret: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    library = _library()
    found: bytes = library.HKDF(library.SHA256(), size, salt, info).derive(secret)
    return found


@cache
def _library() -> Any:
    """The primitives, loaded when they are needed: once, as an import in each call would take as long as its work."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return SimpleNamespace(
        ChaCha20=ChaCha20,
        ChaCha20Poly1305=ChaCha20Poly1305,
        Cipher=Cipher,
        HKDF=HKDF,
        InvalidTag=InvalidTag,
        SHA256=SHA256,
        X25519PrivateKey=X25519PrivateKey,
        X25519PublicKey=X25519PublicKey,
    )
