"""What was displayed and clicked."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fultr.core.arrays import Bools, Float32s, Int32s, Int64s, UInt8s
from fultr.core.checks import check_number, check_seed

if TYPE_CHECKING:
    from fultr.clicks.log_kernels import Links


@dataclass(frozen=True, eq=False)
class ClickLog:
    """Impressions of some clients, in the order in which they were made; client u's are `offsets[u]:offsets[u + 1]`.

    All impressions are kept, not only the clicked ones: propensity estimation needs them.

    Attributes:
        queries: int32 [impressions], which query (an index into the `Display`) was shown.
        clicks: uint8 [impressions, K], 1 where the document at that rank was clicked.
        offsets: int64 [clients + 1].
    """

    queries: Int32s
    clicks: UInt8s
    offsets: Int64s

    @property
    def clients(self) -> int:
        """How many clients the log holds."""
        return self.offsets.size - 1

    def clicks_by_client(self) -> Int64s:
        """How many clicks each client made."""
        total = np.r_[0, np.cumsum(self.clicks.sum(axis=1, dtype=np.int64))]
        return np.diff(total[self.offsets])


@dataclass(frozen=True, eq=False)
class Display:
    """What each query displays, and the documents that its pairs are formed with.

    Attributes:
        features: float32 [rows, features or more]; columns past the features are 0.
        offsets: int64 [queries + 1]: the rows that query q's clicked documents are compared with.
        shown: int64 [queries, K]: the row displayed at each rank; -1 past the last document.
        documents: int64 [queries, K]: the same as rows of the data set.
        versions: how many logging policies are in use; query q of version v has number v x queries + q.
        recorded_ranks: `other_ranks`, where a log recorded them and nobody has the versions' rankings.
    """

    features: Float32s
    offsets: Int64s
    shown: Int64s
    documents: Int64s
    versions: int = 1
    recorded_ranks: Int64s | None = None

    @classmethod
    def of_rows(
        cls, features: Float32s, documents: Int64s, versions: int = 1, recorded_ranks: Int64s | None = None
    ) -> Display:
        """Queries that display these rows of `features`, [queries, K], -1 for none; pairs are the displayed ones.

        The rows are copied into one block, those of a query one after the other.

        >>> found = Display.of_rows(np.float32([[5], [6], [7]]), np.array([[2, 0], [1, -1]]))
        >>> found.features[:, 0].tolist(), found.offsets.tolist(), found.shown.tolist()
        ([7.0, 5.0, 6.0], [0, 2, 3], [[0, 1], [2, -1]])
        """
        there = documents >= 0
        offsets = np.r_[0, np.cumsum(there.sum(axis=1))]
        shown = np.where(there, np.cumsum(there).reshape(there.shape) - 1, -1)
        return cls(packed(features, documents[there]), offsets, shown, documents, versions, recorded_ranks)

    @cached_property
    def other_ranks(self) -> Int64s:
        """[queries, K, versions] at which rank each version has the document displayed at each rank; -1: nowhere."""
        if self.recorded_ranks is not None:
            return self.recorded_ranks
        queries = self.queries // self.versions
        shown = self.documents.reshape(self.versions, queries, self.ranks)
        found = np.full((self.versions, queries, self.ranks, self.versions), -1)
        for v in range(self.versions):
            same = (self.documents.reshape(self.versions, queries, self.ranks, 1) == shown[v][:, np.newaxis]) & (
                self.documents.reshape(self.versions, queries, self.ranks, 1) >= 0
            )
            found[..., v] = np.where(same.any(axis=3), same.argmax(axis=3), -1)
        return found.reshape(self.queries, self.ranks, self.versions)

    @cached_property
    def links(self) -> Links:
        """Documents that versions display at different ranks, versions in use with equal shares."""
        from fultr.clicks.log_kernels import links_of  # compiled: only estimation needs it

        ranks = self.other_ranks
        if ranks.shape[:2] != self.shown.shape:
            raise ValueError(f"recorded_ranks: expected shape {self.shown.shape} x versions, found {ranks.shape}")
        return links_of(ranks, np.full(ranks.shape[2], 1 / ranks.shape[2]))

    @cached_property
    def longest(self) -> int:
        """The largest number of documents that a clicked one is compared with."""
        return int(np.diff(self.offsets).max(initial=0))

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return self.shown.shape[0]

    @property
    def ranks(self) -> int:
        """How many documents a query displays at most: K."""
        return self.shown.shape[1]


@dataclass(frozen=True, eq=False)
class Records:
    """What was displayed and clicked: all that training, estimation and evaluation start from.

    Simulation, a device's log and a click-log file yield them alike.

    Attributes:
        log: impressions and clicks of one or more clients, in order.
        display: what the queries of the log displayed. Where impressions were logged, a "query" of it is a query with
            the documents that it displayed: those with the same documents in the same order share one.
        impressions: int64 [impressions], numbers that tell them apart for ever; None: they are not told apart.
        versions: of the ranker that made each impression; empty if that is not known.
        left_out: impressions that were asked for, but whose features are described in another way.
    """

    log: ClickLog
    display: Display
    impressions: Int64s | None = None
    versions: tuple[str, ...] = ()
    left_out: int = 0

    @property
    def clients(self) -> int:
        """How many clients they are of."""
        return self.log.clients

    def split(self, share: float, seed: int = 0) -> tuple[Records, Records]:
        """What to train on, and a share of the impressions that is held out.

        An impression's side depends on its number and the seed alone: it stays there in every later training.
        """
        from fultr.core.streams import Purpose, uniforms  # compiled: only training needs it

        check_number("share", share, least=0, most=1)
        check_seed(seed)
        numbers = np.arange(self.log.queries.size) if self.impressions is None else self.impressions
        held_out = uniforms(seed, int(Purpose.HELD_OUT), 0, numbers) < share
        return self.take(~held_out), self.take(held_out)

    def take(self, chosen: Bools) -> Records:
        """Some of the impressions, with all that was displayed."""
        before = np.r_[0, np.cumsum(chosen)]
        log = ClickLog(self.log.queries[chosen], self.log.clicks[chosen], before[self.log.offsets])
        numbers = None if self.impressions is None else self.impressions[chosen]
        versions = tuple(itertools.compress(self.versions, chosen.tolist()))
        return replace(self, log=log, impressions=numbers, versions=versions)


def packed(features: Float32s, rows: Int64s) -> Float32s:
    """The given rows, copied to lie one after the other, each padded with zeros to whole cache lines."""
    block = aligned_rows(rows.size, features.shape[1])
    block[:, : features.shape[1]] = features[rows]
    return block


def aligned_rows(rows: int, features: int) -> Float32s:
    """Zeros: room for this many rows of features, each of whole cache lines."""
    lines = -(-features // 16)
    memory = np.zeros(rows * lines * 16 + 16, np.float32)
    skip = -(memory.ctypes.data // 4) % 16
    return memory[skip : skip + rows * lines * 16].reshape(rows, lines * 16)
