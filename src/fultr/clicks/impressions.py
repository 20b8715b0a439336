"""An existing click log: result pages with their clicks, and the counts that estimates start from.

A page is one impression: a query, the documents displayed from rank 1, and which of them were clicked. A document's
relevance depends on the query, so everything is counted by (query, document) pair.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fultr.clicks.ids import digests_of, mixed
from fultr.clicks.log import ClickLog, Display, Records
from fultr.core.arrays import Bools, Float32s, Float64s, Int32s, Int64s, UInt8s, UInt64s
from fultr.core.errors import FultrError

_MOST_PLACES = 1 << 26  # of all pages: half a gigabyte for each whole number
_MOST_EMPTY = 20  # places for each displayed document, in larger logs


@dataclass(frozen=True, eq=False)
class ImpressionLog:
    """Impressions with their clicks. Queries, users and (query, document) pairs are numbered from 0.

    Attributes:
        queries: int32 [impressions].
        documents: int32 [impressions, K], the pair at each rank; -1 past the last document of a shorter page.
        clicks: uint8 [impressions, K].
        users: int32 [impressions], or None if it is not known who searched.
        query_of_pair: int32 [pairs].
        query_names: what the log calls each query.
        document_names: what the log calls the document of each pair.
        features: float32 [pairs, features], or None if the log has none.
        user_names: what the log calls each user; None if it is not known who searched, or nobody gave names.
        feature_names: what the features are called; None if they have no names.
        times: float64 [impressions], when each was made, in seconds since 1970; None if that is not known.

    >>> log = ImpressionLog.from_arrays(["a", "a", "b"], [[7, 8], [8, 7], [7, -1]], [[1, 0], [0, 0], [1, 0]])
    >>> log.documents.tolist(), log.query_of_pair.tolist()
    ([[0, 1], [1, 0], [2, -1]], [0, 0, 1])
    """

    queries: Int32s
    documents: Int32s
    clicks: UInt8s
    users: Int32s | None
    query_of_pair: Int32s
    query_names: NDArray[Any]
    document_names: NDArray[Any]
    features: Float32s | None = None
    user_names: NDArray[Any] | None = None
    feature_names: tuple[str, ...] | None = None
    times: Float64s | None = None

    def __post_init__(self) -> None:
        if not self.impressions or not self.ranks:
            raise FultrError("click log: expected impressions, found none")
        if self.clicks.shape != self.documents.shape:
            raise FultrError(f"clicks: expected shape {self.documents.shape}, found {self.clicks.shape}")
        if np.any((self.clicks != 0) & (self.clicks != 1)):
            raise FultrError("clicks: expected 0 or 1")
        if np.any(self.clicks[self.documents < 0]):
            raise FultrError("clicks: found a click at a rank without a document")
        if self.features is not None and not np.all(np.isfinite(self.features)):
            raise FultrError("features: expected finite numbers")

    @classmethod
    def from_arrays(
        cls,
        queries: ArrayLike,
        documents: ArrayLike,
        clicks: ArrayLike,
        users: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> ImpressionLog:
        """A log from any ids of queries and users, and whole numbers for documents [impressions, K], -1 for none.

        Features [impressions, K, features] are those of the displayed documents; if those of a pair differ between
        pages, their mean is used.
        """
        query_names, query = np.unique(np.asarray(queries), return_inverse=True)
        shown = np.asarray(documents)
        if shown.ndim != 2 or not np.issubdtype(shown.dtype, np.integer) or len(shown) != query.size:
            raise FultrError(f"documents: expected {query.size} rows of whole numbers, found shape {shown.shape}")
        names, code = np.unique(shown, return_inverse=True)
        owner, pairs = number_pairs(query[:, np.newaxis], code.reshape(shown.shape), shown >= 0)
        user_names, who = (None, None) if users is None else np.unique(np.asarray(users), return_inverse=True)
        values = None if features is None else np.asarray(features, np.float32)
        if values is not None and (values.ndim != 3 or values.shape[:2] != shown.shape):
            raise FultrError(f"features: expected {shown.shape} vectors of one length, found shape {values.shape}")
        return cls(
            query.astype(np.int32),
            pairs,
            np.asarray(clicks, np.uint8),
            None if who is None else who.astype(np.int32),
            owner[0].astype(np.int32),
            query_names,
            names[owner[1]],
            None if values is None else mean_by_pair(values[shown >= 0], pairs[shown >= 0], owner[0].size),
            user_names,
        )

    @property
    def impressions(self) -> int:
        """How many pages the log holds."""
        return self.queries.size

    @property
    def ranks(self) -> int:
        """K, the length of the longest page."""
        return self.documents.shape[1]

    @property
    def pairs(self) -> int:
        """How many (query, document) pairs there are."""
        return self.query_of_pair.size

    @cached_property
    def shown(self) -> Bools:
        """Where there is a document, [impressions, K]."""
        shown: Bools = self.documents >= 0
        return shown

    @cached_property
    def query_digests(self) -> UInt64s:
        """A number for each query that is made of its id."""
        return digests_of(self.query_names)

    @cached_property
    def pair_digests(self) -> UInt64s:
        """A number for each pair that is made of the ids of its query and of its document."""
        return mixed(mixed(self.query_digests[self.query_of_pair]) + digests_of(self.document_names))

    def records(self) -> Records:
        """What the log displayed and what was clicked, to train on as on simulated clicks or a device's log.

        A client is a user who has impressions, in the order of their numbers; if it is not known who searched, there is
        one client. A client's impressions are in the order of the log. A query of the display is a query with the
        documents that it displayed: impressions of the same query with the same documents in the same order share it.
        The features of a document are those of its pair, that is, their mean where they differ from page to page.

        >>> log = ImpressionLog.from_arrays([1, 2, 1], [[7], [8], [7]], [[1], [0], [0]], [5, 3, 3], np.ones((3, 1, 2)))
        >>> found = log.records().log
        >>> found.offsets.tolist(), found.queries.tolist(), found.clicks.ravel().tolist()
        ([0, 2, 3], [1, 0, 0], [0, 0, 1])
        """
        if self.features is None:
            raise FultrError("click log: expected features of the documents, to train on; found none")
        users = np.zeros(self.impressions, np.int32) if self.users is None else self.users
        order = np.argsort(users, kind="stable")
        counts = np.unique(users, return_counts=True)[1]
        pages, page = np.unique(np.c_[self.queries, self.documents], axis=0, return_inverse=True)
        log = ClickLog(page.ravel()[order].astype(np.int32), self.clicks[order], np.r_[0, np.cumsum(counts)])
        return Records(log, Display.of_rows(self.features, pages[:, 1:].astype(np.int64)))

    def take(self, rows: NDArray[Any]) -> ImpressionLog:
        """Some of the impressions; queries, users and pairs keep their numbers."""
        return replace(
            self,
            queries=self.queries[rows],
            documents=self.documents[rows],
            clicks=self.clicks[rows],
            users=None if self.users is None else self.users[rows],
            times=None if self.times is None else self.times[rows],
        )

    def numbers_in(self, other: ImpressionLog) -> tuple[Int64s, Int64s]:
        """The number in another log of each query and of each pair of this one; -1 for those it lacks."""
        queries = _numbers(self.query_names.tolist(), other.query_names.tolist())
        return queries, _numbers(self._pair_names(), other._pair_names())

    def _pair_names(self) -> list[tuple[Hashable, Hashable]]:
        return list(zip(self.query_names[self.query_of_pair].tolist(), self.document_names.tolist(), strict=True))

    @cached_property
    def cell_of_entry(self) -> tuple[Int64s, Int64s]:
        """Distinct pair * K + rank, ascending, and for each displayed document in turn which of them it is."""
        entries = (self.documents.astype(np.int64) * self.ranks + np.arange(self.ranks))[self.shown]
        cells, inverse = np.unique(entries, return_inverse=True)
        return cells, inverse

    def cells(self, times: Float64s | None = None) -> Cells:
        """Impressions and clicks of each pair at each rank where it was shown.

        Args:
            times: how often each impression counts, [impressions]; once if None.
        """
        cells, inverse = self.cell_of_entry
        weights = np.ones(self.shown.sum()) if times is None else np.repeat(times, self.shown.sum(axis=1))
        shown = summed(weights, inverse, cells.size)
        clicked = summed(weights * self.clicks[self.shown], inverse, cells.size)
        return Cells(
            cells // self.ranks, cells % self.ranks, shown, clicked, np.ones(self.pairs), self.ranks, self._scaled
        )

    @cached_property
    def _scaled(self) -> Float64s | None:
        """Features with mean 0 and variance 1 over pairs; those that do not vary are 0."""
        if self.features is None:
            return None
        scaled = self.features.astype(np.float64)
        scaled -= scaled.mean(axis=0)
        spread = scaled.std(axis=0)
        scaled /= np.where(spread > 1e-12, spread, np.inf)
        return scaled


def check_lengths(pages: int, documents: int, longest: int, where: Callable[[], str]) -> None:
    """Refuse a few long pages among many short ones: a log has as many places on each page as the longest needs.

    Args:
        pages: how many there are.
        documents: displayed on all of them.
        longest: documents of the longest page.
        where: what errors call that page.

    >>> check_lengths(200_000, 1_000_000, 5_000, lambda: "log.csv, line 7")
    Traceback (most recent call last):
    fultr.core.errors.FultrError: log.csv, line 7: 5,000 documents on a page, where pages have 5.0 on average: ...
    """
    places = pages * longest
    if places > _MOST_PLACES and places > _MOST_EMPTY * documents:
        raise FultrError(
            f"{where()}: {longest:,} documents on a page, where pages have {documents / pages:.1f} on average: too "
            f"long for a log of {pages:,} pages; leave such pages out, or cut them"
        )


def _numbers(names: Sequence[Hashable], others: Sequence[Hashable]) -> Int64s:
    at: dict[Hashable, int] = {}
    for i, name in enumerate(others):
        at.setdefault(name, i)  # the first of a document that a page displayed twice
    return np.array([at.get(name, -1) for name in names], np.int64)


def summed(values: Float64s, groups: Int32s | Int64s, size: int) -> Float64s:
    """Sums of the values of each of `size` groups.

    >>> summed(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2]), 3).tolist()
    [1.0, 0.0, 6.0]
    """
    sums: Float64s = np.bincount(groups, values, size).astype(np.float64, copy=False)
    return sums


def number_pairs(queries: NDArray[Any], codes: NDArray[Any], shown: Bools) -> tuple[tuple[Int64s, Int64s], Int32s]:
    """Number the distinct pairs of a query and a document's code.

    Returns:
        Query and code of each pair, and the pairs' numbers where `shown`, -1 elsewhere.
    """
    span = int(codes.max(initial=0)) + 1
    keys, inverse = np.unique((queries * np.int64(span) + codes)[shown], return_inverse=True)
    numbers = np.full(shown.shape, -1, np.int32)
    numbers[shown] = inverse
    return (keys // span, keys % span), numbers


def mean_by_pair(features: Float32s, pairs: Int32s | Int64s, size: int) -> Float32s:
    """The mean features of each of `size` pairs, of which each occurs.

    >>> mean_by_pair(np.array([[1], [2], [4]], np.float32), np.array([1, 0, 1]), 2).tolist()
    [[2.0], [2.5]]
    """
    times = np.bincount(pairs, minlength=size)
    means: Float32s = np.empty((size, features.shape[1]), np.float32)
    for i, column in enumerate(features.T):  # so that only one column at a time is float64
        means[:, i] = np.bincount(pairs, column, size) / times
    return means


@dataclass(frozen=True, eq=False)
class Cells:
    """How often each pair was shown and clicked at each rank: all that estimating examination needs from a log.

    One cell for each pair and rank where it was shown, ordered by pair, then rank. Counts may be fractions, or 0, as a
    bootstrap makes them.

    Attributes:
        pair: [cells].
        rank: [cells], from 0.
        impressions: [cells].
        clicks: [cells].
        copies: [pairs], how many times each pair counts, as if there were that many pairs with the same counts.
        ranks: K.
        features: [pairs, features] scaled to mean 0 and variance 1, or None.
    """

    pair: Int64s
    rank: Int64s
    impressions: Float64s
    clicks: Float64s
    copies: Float64s
    ranks: int
    features: Float64s | None = None

    @cached_property
    def weight(self) -> Float64s:
        """How many times each cell counts."""
        return self.copies[self.pair]

    def by_rank(self) -> tuple[Float64s, Float64s]:
        """Impressions and clicks at each rank."""
        shown = summed(self.weight * self.impressions, self.rank, self.ranks)
        return shown, summed(self.weight * self.clicks, self.rank, self.ranks)

    def by_pair(self) -> tuple[Float64s, Float64s]:
        """Impressions and clicks of each pair."""
        return self.sum_by_pair(self.impressions), self.sum_by_pair(self.clicks)

    def sum_by_pair(self, values: Float64s) -> Float64s:
        """Sum one number per cell over the cells of each pair."""
        return summed(values, self.pair, self.copies.size)

    def ranks_of_pair(self) -> Int64s:
        """At how many different ranks each pair was shown."""
        return np.bincount(self.pair[self.impressions > 0], minlength=self.copies.size)

    def check_clicks(self) -> None:
        """Refuse a log without a single click."""
        if not np.any(self.weight * self.clicks):
            raise FultrError(
                "click log: no document was clicked, so examination cannot be estimated; collect more clicks"
            )
