"""The counts of a data set, compared with the published ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fultr.core.arrays import Int64s
from fultr.data.aol import parts_by_time
from fultr.data.layouts import PARTS, Layout, Sentinel, _sentinels, find_layout
from fultr.data.letor.reader import LetorFile
from fultr.data.ranking import RankingData

_AOL_PUBLISHED = "AOL4FOLTR is published as 2.6 million queries of 10,000 users, without exact counts to compare with."
_NAMES = {1: ("all",), 2: ("train", "test"), 3: PARTS}  # of the files, by how many there are


@dataclass(frozen=True)
class Published:
    """The counts on a data set's own page, for its first fold if it has folds, and those in the paper.

    Attributes:
        name: of the data set.
        features: how many feature ids occur.
        queries: in train, valid, test.
        documents: in train, valid, test.
        kept: what the paper keeps after filtering: of "train" or "all", the queries and the documents per query.
    """

    name: str
    features: int
    queries: tuple[int, int, int]
    documents: tuple[int, int, int]
    kept: tuple[str, int, float] | None = None


PUBLISHED = (
    Published(
        "Yahoo LTRC set 1", 519, (19_944, 2_994, 6_983), (473_134, 71_083, 165_660), kept=("train", 14_377, 32.51)
    ),
    Published("Istella-S", 220, (19_245, 7_211, 6_562), (2_043_304, 684_076, 681_250), kept=("all", 32_625, 103.73)),
    Published("MSLR-WEB10K", 136, (6_000, 2_000, 2_000), (723_412, 235_259, 241_521)),
    Published("MSLR-WEB30K", 136, (18_919, 6_306, 6_306), (2_270_296, 747_218, 753_611)),
    Published("MQ2007", 46, (1_017, 339, 336), (42_158, 13_813, 13_652)),
    Published("MQ2008", 46, (471, 157, 156), (9_630, 2_707, 2_874)),
)


@dataclass(frozen=True)
class Counts:
    """The counts of one file, or of all files of a data set; `kept_` is after filtering."""

    part: str
    file: str
    queries: int
    documents: int
    features: int
    grades: tuple[int, ...]
    kept_queries: int
    kept_documents: int

    @property
    def documents_per_query(self) -> float:
        """On average, before filtering."""
        return self.documents / self.queries

    @property
    def kept_documents_per_query(self) -> float:
        """On average, after filtering; 0 if no query is left."""
        return self.kept_documents / max(1, self.kept_queries)


@dataclass(frozen=True)
class Comparison:
    """A count and the published one."""

    part: str
    figure: str
    found: float
    published: float
    source: str

    @property
    def agrees(self) -> bool:
        """Are they equal, to the published digits?"""
        return round(self.found, 2) == self.published


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found.

    Attributes:
        source: what was inspected.
        counts: for each file, and for all of them together ("all").
        compared_with: the most similar known data set, None if none has as many features.
        comparisons: count by count.
        users: who asked the queries, where the data say so (AOL4FOLTR): how many they are.
    """

    source: str
    counts: tuple[Counts, ...]
    compared_with: str | None
    comparisons: tuple[Comparison, ...]
    users: int | None = None

    def verdict(self) -> str:
        """One sentence on whether the counts agree."""
        if self.users is not None:
            return f"{self.users:,} users. {_AOL_PUBLISHED}"
        if self.compared_with is None:
            return "No published counts to compare with: no known data set has these file names or as many features."
        differ = sum(not comparison.agrees for comparison in self.comparisons)
        if differ == 0:
            return f"All {len(self.comparisons)} counts agree with those published for {self.compared_with}."
        return (
            f"{differ} of {len(self.comparisons)} counts differ from those published for {self.compared_with}, "
            "the most similar known data set."
        )

    def counts_table(self) -> list[list[str]]:
        """A header and one row for each file and for all."""
        kept = ["queries kept", "documents kept", "per query"]
        rows = [["part", "queries", "documents", "per query", *kept, "features", "grades, %"]]
        for row in self.counts:
            grades = " ".join(f"{100 * n / row.documents:.1f}" for n in row.grades)
            before = [f"{row.queries:,}", f"{row.documents:,}", f"{row.documents_per_query:.2f}"]
            after = [f"{row.kept_queries:,}", f"{row.kept_documents:,}", f"{row.kept_documents_per_query:.2f}"]
            rows.append([row.part, *before, *after, f"{row.features:,}", grades])
        return rows

    def comparison_table(self) -> list[list[str]]:
        """A header and one row for each published count."""
        rows = [["part", "count", "found", "published", "by", "verdict"]]
        for row in self.comparisons:
            figures = [f"{round(row.found, 2):,}", f"{row.published:,}"]
            rows.append([row.part, row.figure, *figures, row.source, "agrees" if row.agrees else "differs"])
        return rows

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        averages = ("documents_per_query", "kept_documents_per_query")
        return {
            "source": self.source,
            "counts": [asdict(row) | {name: getattr(row, name) for name in averages} for row in self.counts],
            "compared_with": self.compared_with,
            "comparisons": [asdict(row) | {"agrees": row.agrees} for row in self.comparisons],
            "users": self.users,
            "verdict": self.verdict(),
        }


def inspect(
    source: str | os.PathLike[str],
    *,
    fold: int = 1,
    merge: bool = False,
    sentinel: Sentinel = "auto",
    threads: int | None = None,
) -> Inspection:
    r"""Count what a data set holds, before and after filtering, and compare it with the published counts.

    Every line is checked; features are not kept, so this needs little memory. For arguments see `load_path`.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write("0 qid:1 1:5\n2 qid:1 1:3\n1 qid:2 1:4\n"), file.flush()
    ...     found = inspect(file.name)
    >>> [(row.part, row.queries, row.documents, row.grades, row.kept_queries) for row in found.counts]
    [('all', 2, 3, (1, 1, 1), 1)]
    """
    layout = find_layout(source, fold=fold)
    counts, ids, users = [], np.empty(0, np.int64), None
    merge = merge or layout.searches is not None
    for part, path in zip(_NAMES[len(layout.files)], layout.files, strict=True):
        file = LetorFile(path, merge=merge, sentinel=_sentinels(layout, sentinel), threads=threads)
        read, found = file.read([]), file.feature_ids
        if layout.searches is None:
            counts.append(_count(part, path.name, read, found.size))
        else:
            parts = parts_by_time(read, path, layout.searches)
            counts += [_count(name, path.name, data, found.size) for name, data in zip(PARTS, parts, strict=True)]
            users = np.unique(np.concatenate([data.users for data in parts if data.users is not None])).size
        ids = np.union1d(ids, found)
    if len(counts) > 1:
        counts.append(_sum(counts, ids))
    published = _nearest(layout, counts[-1]) if len(counts) > 1 and users is None else None
    comparisons = _compare(counts, published, parts=layout.fold in (None, 1)) if published else ()
    return Inspection(str(source), tuple(counts), published.name if published else None, comparisons, users)


def _count(part: str, file: str, data: RankingData, features: int) -> Counts:
    mixed = data.mixed_queries()
    grades = tuple(np.bincount(data.labels).tolist())
    kept = int(np.diff(data.offsets)[mixed].sum())
    return Counts(part, file, data.queries, data.documents, features, grades, int(mixed.sum()), kept)


def _sum(counts: Sequence[Counts], ids: Int64s) -> Counts:
    longest = max(len(row.grades) for row in counts)
    grades = np.sum([row.grades + (0,) * (longest - len(row.grades)) for row in counts], axis=0)
    return Counts(
        part="all",
        file="",
        queries=sum(row.queries for row in counts),
        documents=sum(row.documents for row in counts),
        features=ids.size,
        grades=tuple(grades.tolist()),
        kept_queries=sum(row.kept_queries for row in counts),
        kept_documents=sum(row.kept_documents for row in counts),
    )


def _nearest(layout: Layout, found: Counts) -> Published | None:
    """The known data set of these file names, else that with as many features and the nearest number of queries."""
    if layout.name == "yahoo":
        return PUBLISHED[0]
    known = [published for published in PUBLISHED if published.features == found.features]
    return min(known, key=lambda published: abs(np.log(sum(published.queries) / found.queries)), default=None)


def _compare(counts: Sequence[Counts], published: Published, parts: bool) -> tuple[Comparison, ...]:
    page = "the data set's page"
    rows = []
    for i, row in enumerate(counts):
        if row.part == "all":
            rows.append(Comparison("all", "features", row.features, published.features, page))
        if row.part == "all" or parts:
            queries, documents = published.queries, published.documents
            for figure, found, given in (("queries", row.queries, queries), ("documents", row.documents, documents)):
                rows.append(Comparison(row.part, figure, found, sum(given) if row.part == "all" else given[i], page))
        if published.kept and row.part == published.kept[0]:
            _, kept, per_query = published.kept
            rows.append(Comparison(row.part, "queries kept", row.kept_queries, kept, "the paper"))
            average = row.kept_documents_per_query
            rows.append(Comparison(row.part, "documents per query kept", average, per_query, "the paper"))
    return tuple(rows)
