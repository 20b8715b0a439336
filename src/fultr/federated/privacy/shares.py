"""Shamir's secret sharing: enough shares of a secret give it back, one fewer says nothing about it.

The field is that of the prime 2^255 - 19; a share is 32 bytes, whatever it holds. Randomness comes from `secrets`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

PRIME = 2**255 - 19
"""Secrets and shares are whole numbers below it."""

SHARE_BYTES = 32


def draw_secret() -> int:
    """A secret that nobody can guess."""
    return secrets.randbelow(PRIME)


def split(secret: int, threshold: int, places: Sequence[int]) -> list[int]:
    """Shares of a secret, one for each place.

    Args:
        secret: from 0, below `PRIME`.
        threshold: how many give it back.
        places: whole numbers above 0, all different.

    >>> shares = split(42, 2, [1, 2, 5])
    >>> joined({1: shares[0], 5: shares[2]})
    42
    """
    if not 1 <= threshold <= len(places) or not 0 <= secret < PRIME or min(places) < 1:
        raise ValueError("expected a secret in the field, places above 0 and at least as many as the threshold")
    factors = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    found = []
    for place in places:
        value = 0
        for factor in factors:
            value = (value + factor) * place  # a place is small: one division at the end is quicker than many
        found.append((value + secret) % PRIME)
    return found


def joined(shares: Mapping[int, int]) -> int:
    """The secret of which these are shares, by place: as many as its threshold, or more."""
    weights = _weights(tuple(shares))
    return sum(weight * share for weight, share in zip(weights, shares.values(), strict=True)) % PRIME


def fit(shares: Mapping[int, int], threshold: int) -> bool:
    """Are these, by place, shares of one secret? There must be more of them than its threshold, or anything is.

    >>> shares = dict(zip((1, 2, 5), split(42, 2, [1, 2, 5]), strict=True))
    >>> fit(shares, 2), fit(shares | {2: shares[2] + 1}, 2)
    (True, False)
    """
    weights = _checks(tuple(shares), threshold)
    return sum(weight * share for weight, share in zip(weights, shares.values(), strict=True)) % PRIME == 0


def misfit(shares: Mapping[int, int], threshold: int) -> int | None:
    """The only place without whose share the others are of one secret; None if that is none, or not known."""
    if len(shares) < threshold + 2:  # too few to tell which
        return None
    found = [place for place in shares if fit({i: one for i, one in shares.items() if i != place}, threshold)]
    return found[0] if len(found) == 1 else None


@lru_cache(maxsize=1024)
def _checks(places: tuple[int, ...], threshold: int) -> tuple[int, ...]:
    """Weights with which shares add up to 0, and numbers that nobody could foresee do not.

    Divided differences of order len(places) - 1 are 0 for polynomials of a lower degree: for the one behind the shares
    times any other whose degree makes it one; that is drawn here.
    """
    factors = [secrets.randbelow(PRIME) for _ in range(len(places) - threshold)]
    weights = []
    for place in places:
        under, value = 1, 0
        for other in places:
            if other != place:
                under = under * (place - other) % PRIME
        for factor in factors:
            value = (value * place + factor) % PRIME
        weights.append(value * pow(under, -1, PRIME) % PRIME)
    return tuple(weights)


@lru_cache(maxsize=64)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's: what the shares at these places are multiplied by for the polynomial's value at 0."""
    above, below = 1, []
    for place in places:
        above = above * place % PRIME
        under = place
        for other in places:
            if other != place:
                under = under * (other - place) % PRIME
        below.append(under)
    before = [1]
    for under in below:
        before.append(before[-1] * under % PRIME)
    inverse, weights = pow(before[-1], -1, PRIME), []  # of all at once: an inversion takes long
    for i in reversed(range(len(below))):
        weights.append(above * inverse * before[i] % PRIME)
        inverse = inverse * below[i] % PRIME
    return tuple(reversed(weights))
