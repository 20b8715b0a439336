"""A click log's fingerprint, by which a ranker's file says which log it was trained on.

It is made of what any layout of a log tells alike: each page's query, its length and the ranks of its clicks. The order
of pages, users, and what documents and features are called make no difference.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fultr.clicks.ids import digest_of, mixed
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
    marks = np.array(
        [digest_of(f"{what} {k}") for what in ("click", "length") for k in range(log.ranks + 1)], np.uint64
    )
    pages = marks[log.ranks + 1 + log.shown.sum(axis=1)]
    for k in range(log.ranks):
        pages += log.clicks[:, k] * marks[k]
    made = mixed(mixed(pages) + log.query_digests[log.queries])
    return hashlib.sha256(np.sort(made).astype("<u8").tobytes()).hexdigest()[:_DIGITS]
