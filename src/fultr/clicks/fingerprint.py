"""A click log's fingerprint, by which a ranker's file says which log it was trained on.

It is made of what any layout of a log tells alike: each page's query, its length and the ranks of its clicks. The order
of pages, users, and what documents and features are called make no difference.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from fultr.clicks.impressions import ImpressionLog

_DIGITS = 32  # hexadecimal


def fingerprint(log: ImpressionLog) -> str:
    """The same text for logs of the same queries with the same clicks, and another one, in practice, for all others.

    >>> log = ImpressionLog.from_arrays(["a", "b"], [[7, 8], [9, -1]], [[0, 1], [1, 0]])
    >>> again = ImpressionLog.from_arrays(["b", "a"], [[1, -1], [2, 3]], [[1, 0], [0, 1]])
    >>> other = ImpressionLog.from_arrays(["b", "a"], [[1, -1], [2, 3]], [[1, 0], [1, 0]])
    >>> fingerprint(log) == fingerprint(again), fingerprint(log) == fingerprint(other)
    (True, False)
    """
    names = np.array([_hash(str(name)) for name in log.query_names.tolist()], np.uint64)
    marks = np.array([_hash(f"{what} {k}") for what in ("click", "length") for k in range(log.ranks + 1)], np.uint64)
    pages = marks[log.ranks + 1 + log.shown.sum(axis=1)]
    for k in range(log.ranks):
        pages += log.clicks[:, k] * marks[k]
    made = _mixed(_mixed(pages) + names[log.queries])
    return hashlib.sha256(np.sort(made).astype("<u8").tobytes()).hexdigest()[:_DIGITS]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of a number depends on all of its bits: the last steps of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
