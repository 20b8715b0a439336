"""Secure sums: the server learns the sum of what a cohort's devices send, and nothing else of it.

Two messages a round (Bonawitz et al. 2017, Bell et al. 2020; docs/secure-sums.md goes through it):

1. A device adds to its vector, modulo 2^64, a mask for each of its neighbours in the cohort, which the neighbour
   subtracts; and a mask of its own, from a seed that it draws and splits into shares for its neighbours.
2. The server says whose vectors arrived. Of those, devices reveal their shares of the seeds; of the others, the keys of
   the masks that they have in common with them. Never both of one device: its vector would lie open.

Everything here is a plain value or a function of plain values: what a device sends, keeps and checks, and how the
server takes the masks away. Who carries the messages is for others to know.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np

from fultr.core.arrays import Bools, Int64s, UInt64s
from fultr.core.errors import FultrError
from fultr.federated.privacy.fixed_point import added
from fultr.federated.privacy.masks import KEY_BYTES, SumKey, mask_of, sealed, self_mask_key, unsealed
from fultr.federated.privacy.shares import PRIME, SHARE_BYTES, draw_secret, fit, joined, misfit, split

LEAST_DEVICES = 3
"""Of a cohort. The sum of two tells each of them what the other sent."""

MOST_DEVICES = 10_000
"""Of a cohort."""

FULL = 300
"""Up to this many devices, all are neighbours; the more neighbours, the more of them may drop out or collude."""

DEGREE = 60
"""Neighbours of a device in a larger cohort."""

MISSING = b"\xff" * SHARE_BYTES
"""What a device reveals instead of a share that it could not read; no share looks like that."""

_SESSION, _RING = b"fultr secure sums 1: session", b"fultr secure sums 1: ring"


def threshold(neighbourhood: int) -> int:
    """How many of a neighbourhood, the device itself included, must take part to the end.

    More than two thirds. A server that tells devices different survivors can then see a sum of no fewer than
    `hidden_among` devices; with a bare majority it could see single vectors.

    >>> [threshold(n) for n in (3, 4, 5, 30, 61, 300)]
    [3, 4, 4, 21, 41, 201]
    """
    return max(2 * neighbourhood // 3 + 1, (neighbourhood + LEAST_DEVICES + 1) // 2)


def hidden_among(neighbourhood: int) -> int:
    """The fewest devices, none of them colluding, whose sum a server can see that tells different devices differently.

    Let A be the devices of such a sum and v one of them. The server needs the shares of v's seed from t devices that
    were told that v survived; and the mask between v and each neighbour u outside A, which u reveals if it was told
    that v dropped out, or v if it was told that u did. v was told of at least t survivors; those outside A must
    therefore have been told that v dropped out. So at most n - (t - |A|) devices give shares of v's seed, and t are
    needed: |A| >= 2 t - n.

    >>> [hidden_among(n) for n in (3, 4, 5, 30, 61, 300)]
    [3, 4, 3, 12, 21, 102]
    """
    return 2 * threshold(neighbourhood) - neighbourhood


@dataclass(frozen=True)
class Session:
    """One attempt at one sum, as all its devices see it. What differs for two of them gives them no mask in common.

    Attributes:
        run: 16 bytes that the server drew when it started.
        round: t, from 0.
        attempt: at this round, from 1.
        task: SHA-256 of the task's bytes.
        members: public keys of the cohort's devices, in the order of their numbers.
        least: devices that must survive, beyond what the protocol itself needs: this many shares of noise must be in
            the sum. It follows from the task.
    """

    run: bytes
    round: int
    attempt: int
    task: bytes
    members: tuple[bytes, ...]
    least: int = 0

    def __post_init__(self) -> None:
        n = len(self.members)
        if not LEAST_DEVICES <= n <= MOST_DEVICES:
            raise FultrError(f"a secure sum of {n} devices, expected {LEAST_DEVICES} to {MOST_DEVICES:,}")
        if n < self.least:
            raise FultrError(f"a secure sum of {n} devices, and {self.least} must add their share of the noise")
        if len(set(self.members)) < n:
            raise FultrError("two devices of a secure sum have the same key")
        if len(self.run) != 16 or len(self.task) != 32 or {*map(len, self.members)} != {KEY_BYTES}:
            raise FultrError("expected 16 bytes for the run, 32 for the task's digest and 32 for each key")
        if not (0 <= self.round < 2**62 and 1 <= self.attempt < 2**62):
            raise FultrError("expected a round from 0 and an attempt from 1")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all of it: every part has a fixed length, or the rest."""
        numbers = self.round.to_bytes(8, "big") + self.attempt.to_bytes(8, "big")
        return hashlib.sha256(_SESSION + self.run + numbers + self.task + b"".join(self.members)).digest()

    def neighbourhood(self, place: int) -> list[int]:
        """Places of a device's neighbours and its own, ascending.

        In a large cohort all stand in a ring, in an order that follows from the digest as from random numbers;
        neighbours are the 30 before and the 30 after.
        """
        n = len(self.members)
        if n <= FULL:
            return self._everyone
        if place not in self._near:
            ring, at = self._ring
            steps = np.arange(-DEGREE // 2, DEGREE // 2 + 1)
            self._near[place] = np.sort(ring[(at[place] + steps) % n]).tolist()
        return self._near[place]

    @cached_property
    def _everyone(self) -> list[int]:
        return list(range(len(self.members)))

    @cached_property
    def _near(self) -> dict[int, list[int]]:
        return {}

    @cached_property
    def _ring(self) -> tuple[Int64s, Int64s]:
        """The places in the order of the ring, and where in it each of them stands."""
        key = hashlib.sha256(_RING + self.digest).digest()
        ring = np.argsort(mask_of(key, len(self.members)), kind="stable")
        return ring, np.argsort(ring)

    def place_of(self, key: bytes) -> int:
        """Where a device stands, by its public key."""
        try:
            return self.members.index(key)
        except ValueError:
            raise FultrError("this device is not one of the cohort") from None

    def objection(self, survivors: Bools, place: int | None = None) -> str | None:
        """Why too few survived for a sum, in words: of the whole cohort, or in the neighbourhood of one device."""
        n, there = len(self.members), int(survivors.sum())
        if survivors.shape != (n,):
            return f"expected {n} devices, found {survivors.size}"
        if there < (needed := max(threshold(n), self.least)):
            return f"{there} of {n} devices are left, and {needed} are needed"
        for each in np.flatnonzero(survivors).tolist() if place is None else [place]:
            near = self.neighbourhood(each)
            if (left := int(survivors[near].sum())) < threshold(len(near)):
                return f"{left} of {len(near)} neighbours are left, and {threshold(len(near))} are needed"
            if len(near) == n:
                break  # all have the same neighbours
        return None


@dataclass(frozen=True, eq=False)
class Masked:
    """What a device sends first.

    Attributes:
        vector: its own plus all masks, modulo 2^64.
        shares: of the seed of its own mask: encrypted, for each neighbour in the order of places, `SEALED_BYTES` each.
    """

    vector: UInt64s
    shares: tuple[bytes, ...]


def mask_vector(session: Session, key: SumKey, vector: Int64s) -> tuple[Masked, bytes]:
    """A device's first message, and what it keeps for its second: its own share of its seed, and no more.

    Whoever calls this sees to it that a device does so once in a session.
    """
    place = session.place_of(key.public)
    near = session.neighbourhood(place)
    seed = draw_secret()
    shares = dict(zip(near, split(seed, threshold(len(near)), [i + 1 for i in near]), strict=True))
    total = vector.view(np.uint64) + mask_of(self_mask_key(_bytes(seed), session.digest), vector.size)
    given = []
    for other in near:
        if other == place:
            continue
        pair = key.pair(session.members[other], session.digest)
        _add(total, pair.mask, place < other)
        given.append(sealed(pair.sending, _bytes(shares[other]), _about(session, place, other)))
    return Masked(total, tuple(given)), _bytes(shares[place])


def reveal(
    session: Session, key: SumKey, own_share: bytes, survivors: Bools, shares: Sequence[bytes]
) -> tuple[bytes, ...]:
    """A device's second message: for each of its neighbourhood, in the order of places, 32 bytes.

    Of a survivor, itself included, the share of its seed; of a device that dropped out, the key of the mask that both
    have in common.

    Args:
        session: as in the first message.
        key: the device's.
        own_share: what it kept.
        survivors: whose first message arrived, by place.
        shares: what its surviving neighbours sealed for it, in the order of places.
    """
    place = session.place_of(key.public)
    if why := session.objection(survivors, place):
        raise FultrError(why)
    if not survivors[place]:
        raise FultrError("this device is said to have dropped out")
    near = session.neighbourhood(place)
    if len(shares) != int(survivors[near].sum()) - 1:
        raise FultrError(f"{len(shares)} shares for {int(survivors[near].sum()) - 1} surviving neighbours")
    given, found = iter(shares), list[bytes]()
    for other in near:
        if other == place:
            found.append(own_share)
            continue
        pair = key.pair(session.members[other], session.digest)
        if survivors[other]:
            found.append(unsealed(pair.receiving, next(given), _about(session, other, place)) or MISSING)
        else:
            found.append(pair.mask)
    return tuple(found)


def shares_for(session: Session, place: int, first: Mapping[int, Masked]) -> tuple[bytes, ...]:
    """What the surviving neighbours of a device sealed for it, in the order of places: for the second message."""
    found = []
    for other in session.neighbourhood(place):
        if other != place and other in first:
            at = session.neighbourhood(other).index(place)
            found.append(first[other].shares[at - (other < place)])  # it has none for itself
    return tuple(found)


def unmask(
    session: Session,
    first: Mapping[int, Masked],
    second: Mapping[int, Sequence[bytes]],
    without: Mapping[int, int] | None = None,
) -> UInt64s:
    """The sum of the survivors' vectors modulo 2^64; an error if what devices revealed is not enough for it.

    Args:
        session: the session.
        first: what arrived of the first messages, by place.
        second: what arrived of the second, likewise.
        without: for a place, that of the device whose share of its seed is not to be used.
    """
    survivors = np.isin(np.arange(len(session.members)), list(first))
    if why := session.objection(survivors):
        raise FultrError(why)
    if set(second) - set(first):
        raise FultrError("a device that had dropped out revealed something")
    told = {i: dict(zip(session.neighbourhood(i), second[i], strict=True)) for i in second}
    total = added(first[i].vector for i in sorted(first))
    for i in sorted(first):
        near = session.neighbourhood(i)
        left_out = None if without is None else without.get(i)
        _add(total, self_mask_key(_seed(told, i, near, left_out), session.digest), False)
        for other in near:
            if survivors[other]:
                continue
            if i not in told:
                raise FultrError("a device was lost that has a mask in common with one that dropped out")
            _add(total, told[i][other], other < i)
    return total


def misfits(
    session: Session, first: Mapping[int, Masked], second: Mapping[int, Sequence[bytes]]
) -> tuple[dict[int, int], list[int]]:
    """Which shares of seeds do not fit with the others, and who must have lied, where a sum came to nothing.

    There are more shares than a seed needs, and all lie on one polynomial. If one does not, either the device that
    revealed it lied or the one that made it: whoever has most of its shares wrong did.

    Returns:
        For each seed with one such share, by place, the place of the device that revealed it; and the places of devices
        that have most of what they revealed, or made, wrong.
    """
    told = {i: dict(zip(session.neighbourhood(i), second[i], strict=True)) for i in second}
    odd, lost, given, wrong = dict[int, int](), list[int](), Counter[int](), Counter[int]()
    for i in sorted(first):
        near = session.neighbourhood(i)
        shares, needed = _shares(told, i, near), threshold(len(near))
        given.update(place - 1 for place in shares)
        if len(shares) == needed or (len(shares) > needed and fit(shares, needed)):
            continue
        found = misfit(shares, needed)
        if found is None:
            lost.append(i)
        else:
            odd[i] = found - 1
            wrong[found - 1] += 1
    made_up = lost if 2 * len(lost) < len(first) else []  # else more than one of those that revealed shares lied
    return odd, sorted({i for i in wrong if 2 * wrong[i] > given[i]} | set(made_up))


def _add(total: UInt64s, key: bytes, adds: bool) -> None:
    """Add or subtract the mask of a key; of two devices, the one that comes first in the cohort adds theirs."""
    mask = mask_of(key, total.size)
    if adds:
        total += mask
    else:
        total -= mask


def _seed(
    told: Mapping[int, Mapping[int, bytes]], place: int, near: Sequence[int], without: int | None = None
) -> bytes:
    """The seed of a survivor's own mask."""
    needed, shares = threshold(len(near)), _shares(told, place, [other for other in near if other != without])
    if len(shares) < needed:
        raise FultrError(f"{len(shares)} shares of a device's seed are left, and {needed} are needed")
    return _bytes(joined(dict(islice(shares.items(), needed))))


def _shares(told: Mapping[int, Mapping[int, bytes]], place: int, near: Sequence[int]) -> dict[int, int]:
    """What was revealed of the shares of a survivor's seed, by 1 + the place of the device that did."""
    shares = {other + 1: int.from_bytes(told[other][place], "big") for other in near if other in told}
    return {at: share for at, share in shares.items() if share < PRIME}


def _bytes(number: int) -> bytes:
    return number.to_bytes(SHARE_BYTES, "big")


def _about(session: Session, sender: int, receiver: int) -> bytes:
    return session.digest + session.members[sender] + session.members[receiver]
