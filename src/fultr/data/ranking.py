"""Documents grouped by query, and how they are prepared for training.

Memory: a `RankingData` holds its feature array, plus 4 bytes per document and 16 per query. `take`, `split` and
`filter` copy the documents they keep; `normalise` copies all. With `overwrite=True`, `filter` and `normalise` work in
place and need only a few extra rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from fultr.core.arrays import Bools, Float32s, Int32s, Int64s, UInt64s
from fultr.core.checks import MAX_GRADE
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, generator
from fultr.core.threads import chunk_bounds, run_chunks, run_ranges


@dataclass(frozen=True, eq=False)
class RankingData:
    """Queries and their documents; the documents of query i are rows `offsets[i]` to `offsets[i + 1]`.

    Attributes:
        features: float32 [documents, features], row-major.
        labels: int32 [documents], relevance grades from 0.
        offsets: int64 [queries + 1].
        query_ids: int64 [queries].
        feature_ids: int64 [features], ascending: the ids that the columns have in a LETOR file.
        users: int64 [queries], who asked each query, by number; None: not known.

    >>> data = RankingData.from_arrays([[1.0, 5.0], [3.0, 5.0], [0.0, 2.0]], labels=[0, 2, 1], query_ids=[7, 7, 9])
    >>> data
    RankingData(2 queries, 3 documents, 2 features)
    >>> data.normalise().features.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    >>> data.filter()  # query 9 has only one grade: nothing to rank
    RankingData(1 query, 2 documents, 2 features)
    """

    features: Float32s
    labels: Int32s
    offsets: Int64s
    query_ids: Int64s
    feature_ids: Int64s
    users: Int64s | None = None

    def __post_init__(self) -> None:
        documents, width = self.features.shape
        for name, dtype, shape in (
            ("features", np.float32, (documents, width)),
            ("labels", np.int32, (documents,)),
            ("offsets", np.int64, (self.query_ids.size + 1,)),
            ("query_ids", np.int64, (self.offsets.size - 1,)),
            ("feature_ids", np.int64, (width,)),
            ("users", np.int64, (self.query_ids.size,)),
        ):
            array = getattr(self, name)
            if array is None and name == "users":
                continue
            if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
                raise ValueError(
                    f"{name}: expected contiguous {np.dtype(dtype)} {shape}, found {array.dtype} {array.shape}"
                )
        if self.offsets[0] != 0 or self.offsets[-1] != documents or np.any(np.diff(self.offsets) < 1):
            raise ValueError("offsets: expected 0 to the number of documents, at least one document per query")
        if self.labels.min() < 0 or self.labels.max() > MAX_GRADE:
            raise ValueError(f"labels: expected grades 0 to {MAX_GRADE}")

    @classmethod
    def from_arrays(cls, features: ArrayLike, labels: ArrayLike, query_ids: ArrayLike) -> RankingData:
        """Data from one row, grade and query id per document; a query's documents must be adjacent.

        Copies `features` only if it is not float32 and row-major already.
        """
        matrix = np.ascontiguousarray(features, np.float32)
        if matrix.ndim != 2:
            raise FultrError(f"features: expected two dimensions, found {matrix.ndim}")
        for chunk in np.array_split(matrix, max(1, matrix.size // 1_000_000)):
            if not np.isfinite(chunk).all():
                raise FultrError(
                    "features: expected finite float32 values, found NaN, infinity or a value beyond float32"
                )
        grades = np.asarray(labels)
        if grades.shape != matrix.shape[:1] or np.any(grades != np.floor(grades)) or grades.size == 0:
            raise FultrError("labels: expected one whole-number grade per document, and at least one document")
        if grades.min() < 0 or grades.max() > MAX_GRADE:
            raise FultrError(f"labels: expected grades 0 to {MAX_GRADE}, found {grades.min()} to {grades.max()}")
        ids = np.asarray(query_ids, np.int64)
        if ids.shape != grades.shape:
            raise FultrError("query_ids: expected one per document")
        firsts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
        if np.unique(ids[firsts]).size != firsts.size:
            raise FultrError("query_ids: expected the documents of a query to be adjacent")
        return cls(
            features=matrix,
            labels=grades.astype(np.int32),
            offsets=np.r_[firsts, ids.size].astype(np.int64),
            query_ids=ids[firsts],
            feature_ids=np.arange(1, matrix.shape[1] + 1),
        )

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return self.query_ids.size

    @property
    def documents(self) -> int:
        """How many documents there are, over all queries."""
        return self.labels.size

    @property
    def width(self) -> int:
        """How many features a document has."""
        return int(self.features.shape[1])

    def __repr__(self) -> str:
        def some(n: int, one: str, many: str) -> str:
            return f"{n:,} {one if n == 1 else many}"

        return (
            f"RankingData({some(self.queries, 'query', 'queries')}, "
            f"{some(self.documents, 'document', 'documents')}, {some(self.width, 'feature', 'features')})"
        )

    def take(self, queries: ArrayLike) -> RankingData:
        """The given queries (indices, in the order given), copied."""
        chosen = np.asarray(queries, np.int64)
        sizes = np.diff(self.offsets)[chosen]
        offsets = np.r_[0, np.cumsum(sizes)]
        rows = np.repeat(self.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return RankingData(
            np.take(self.features, rows, axis=0),
            self.labels[rows],
            offsets,
            self.query_ids[chosen],
            self.feature_ids,
            None if self.users is None else self.users[chosen],
        )

    def split(
        self, shares: Sequence[float] = (0.6, 0.2, 0.2), seed: int = 0, *, order: Int64s | None = None
    ) -> tuple[RankingData, ...]:
        """Split the queries into parts with the given shares of them; copies each part.

        Args:
            shares: of the parts; by default those to train on, for validation and for testing.
            seed: of a split at random.
            order: queries (indices), of which the first part has the first ones, and so on; None: at random.

        >>> data = RankingData.from_arrays([[0.0]] * 10, labels=[0] * 10, query_ids=range(10))
        >>> [part.queries for part in data.split()]
        [6, 2, 2]
        """
        if abs(sum(shares) - 1) > 1e-9 or min(shares) <= 0:
            raise FultrError(f"shares: expected positive numbers that add up to 1, found {list(shares)}")
        order = generator(seed, Purpose.SPLIT).permutation(self.queries) if order is None else order
        edges = np.rint(np.cumsum([0.0, *shares]) * order.size).astype(int)
        if np.any(np.diff(edges) < 1):
            raise FultrError(f"{order.size} queries are too few to split into shares {list(shares)}")
        return tuple(self.take(np.sort(order[a:b])) for a, b in pairwise(edges))

    def mixed_queries(self) -> Bools:
        """For each query: do its documents differ in grade? (Section 4, Dataset: the others are filtered out.)"""
        low: Int32s = np.minimum.reduceat(self.labels, self.offsets[:-1])
        high: Int32s = np.maximum.reduceat(self.labels, self.offsets[:-1])
        mixed: Bools = low != high
        return mixed

    def filter(self, *, overwrite: bool = False) -> RankingData:
        """Drop the queries whose documents all have the same grade; if there are none, return this data itself.

        Args:
            overwrite: move the kept rows to the front of this data's own feature array and return a view of it,
                instead of copying; this data must not be used afterwards.
        """
        keep = np.flatnonzero(self.mixed_queries())
        if keep.size == 0:
            raise FultrError("every query has documents of only one grade: there is nothing to rank")
        if keep.size == self.queries:
            return self
        if not overwrite:
            return self.take(keep)
        self._check_writable()
        _move_queries(self.features, self.offsets, keep)
        sizes = np.diff(self.offsets)[keep]
        labels = self.labels[np.repeat(np.isin(np.arange(self.queries), keep), np.diff(self.offsets))]
        offsets = np.r_[0, np.cumsum(sizes)]
        users = None if self.users is None else self.users[keep]
        return RankingData(self.features[: labels.size], labels, offsets, self.query_ids[keep], self.feature_ids, users)

    def normalise(self, *, overwrite: bool = False, threads: int | None = None) -> RankingData:
        """Scale each feature to [0, 1] within each query; a feature that is constant in a query becomes 0.

        Args:
            overwrite: scale this data's own feature array instead of a copy.
            threads: how many threads to use; all cores if None.
        """
        if overwrite:
            self._check_writable()
        features = self.features if overwrite else self.features.copy()
        run_ranges(lambda a, b: _normalise_queries(features, self.offsets, a, b), self.queries, threads)
        return replace(self, features=features)

    def _check_writable(self) -> None:
        if not self.features.flags.writeable:
            raise ValueError("overwrite=True: these features are read-only (mapped from the cache)")

    def fingerprint(self) -> str:
        """A short text that identifies this data: it depends on every grade, id, feature and user.

        Of data that cannot change, as those mapped from the cache, it is computed once.
        """
        if any(array.flags.writeable for array in self.arrays().values()):
            return self._digest()
        return self._lasting_digest

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name: all that there are."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in every.items() if array is not None}

    @cached_property
    def _lasting_digest(self) -> str:
        return self._digest()

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for array in (self.labels, self.offsets, self.query_ids, self.feature_ids, _checksums(self.features)):
            digest.update(array.tobytes())
        if self.users is not None:
            digest.update(self.users.tobytes())
        return digest.hexdigest()[:16]

    def describe(self) -> Description:
        """Counts that characterise a data set."""
        sizes = np.diff(self.offsets)
        return Description(
            queries=self.queries,
            documents=self.documents,
            features=self.width,
            grades=tuple(np.bincount(self.labels).tolist()),
            documents_per_query=self.documents / self.queries,
            fewest_documents=int(sizes.min()),
            most_documents=int(sizes.max()),
            mixed_queries=int(self.mixed_queries().sum()),
            feature_bytes=self.features.nbytes,
        )


@dataclass(frozen=True)
class Description:
    """The result of `RankingData.describe`; `str()` of it is for people.

    >>> data = RankingData.from_arrays([[1.0], [2.0], [4.0]], labels=[0, 1, 1], query_ids=[1, 1, 2])
    >>> print(data.describe())
    2 queries (1 with documents of different grades), 3 documents (1 to 2 per query, 1.50 on average),
    1 feature, grades 0: 33.3%, 1: 66.7%; features take 0.0 MB
    """

    queries: int
    documents: int
    features: int
    grades: tuple[int, ...]
    documents_per_query: float
    fewest_documents: int
    most_documents: int
    mixed_queries: int
    feature_bytes: int

    def __str__(self) -> str:
        shares = ", ".join(f"{g}: {n / self.documents:.1%}" for g, n in enumerate(self.grades))
        return (
            f"{self.queries:,} queries ({self.mixed_queries:,} with documents of different grades), "
            f"{self.documents:,} documents ({self.fewest_documents:,} to {self.most_documents:,} per query, "
            f"{self.documents_per_query:.2f} on average), "
            f"{self.features:,} feature{'' if self.features == 1 else 's'}, grades {shares}; "
            f"features take {self.feature_bytes / 1e6:,.1f} MB"
        )


@dataclass(frozen=True, eq=False)
class Splits:
    """A data set in three parts, for training, choosing parameters and reporting; all have the same columns.

    Attributes:
        train: queries to train on.
        valid: queries to choose parameters by.
        test: queries to report on.
        name: what people call it.
        normalised: are the features scaled to [0, 1] within each query? Rankers trained on it remember.
    """

    train: RankingData
    valid: RankingData
    test: RankingData
    name: str
    normalised: bool = True

    def __post_init__(self) -> None:
        for part in (self.valid, self.test):
            if not np.array_equal(part.feature_ids, self.train.feature_ids):
                raise FultrError("train, valid and test: expected the same features in all three")

    def __iter__(self) -> Iterator[RankingData]:
        return iter((self.train, self.valid, self.test))

    def __repr__(self) -> str:
        return f"Splits({self.name}: train {self.train!r}, valid {self.valid!r}, test {self.test!r})"


@njit(nogil=True, cache=True)
def _normalise_queries(features: Float32s, offsets: Int64s, begin: int, end: int) -> None:
    width = features.shape[1]
    low, high = np.empty(width, np.float32), np.empty(width, np.float32)
    for q in range(begin, end):
        first, last = offsets[q], offsets[q + 1]
        low[:] = features[first]
        high[:] = features[first]
        for d in range(first + 1, last):
            for f in range(width):
                low[f] = min(low[f], features[d, f])
                high[f] = max(high[f], features[d, f])
        for d in range(first, last):
            for f in range(width):
                # In float64, since the range of float32 values may overflow; a constant feature gives 0 / 1.
                span = np.float64(high[f]) - np.float64(low[f])
                features[d, f] = (np.float64(features[d, f]) - low[f]) / (span if span > 0 else 1.0)


def _checksums(features: Float32s) -> UInt64s:
    """A checksum of each of 256 parts, in which every value's position counts."""
    bits = features.reshape(-1).view(np.uint32)
    bounds = chunk_bounds(bits.size, 256)
    sums = np.zeros(len(bounds), np.uint64)

    def work(i: int) -> None:
        begin, end = bounds[i]
        sums[i] = _checksum(bits[begin:end])

    run_chunks(work, len(bounds))
    return sums


@njit(nogil=True, cache=True)
def _checksum(bits: NDArray[np.uint32]) -> np.uint64:
    total = np.uint64(0)
    for i in range(bits.size):
        total += np.uint64(bits[i]) * np.uint64(2 * i + 1)
    return total


@njit(nogil=True, cache=True)
def _move_queries(features: Float32s, offsets: Int64s, keep: Int64s) -> None:
    """Move the rows of the queries in `keep` (ascending) to the front."""
    row = 0
    for q in keep:
        for d in range(offsets[q], offsets[q + 1]):
            if row != d:
                features[row] = features[d]
            row += 1
