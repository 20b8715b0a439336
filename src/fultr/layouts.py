"""The folders in which public data sets come, and the figures they should have.

Memory: `load_path` needs the feature arrays once; filtering and normalising happen within them. A single file is copied
when it is split, which takes its feature array once more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fultr.cache import cached, file_identity
from fultr.data import RankingData, Splits
from fultr.errors import FultrError
from fultr.letor import LetorFile, read_letor_files
from fultr.letor_files import SUFFIXES, unpack
from fultr.types import Int64s

PARTS = ("train", "valid", "test")
ISTELLA_SENTINEL = "1.79769313486232e+308"
_SHARES = (0.6, 0.2, 0.2)
_YAHOO_NAMES = ("set1.train.txt", "set1.valid.txt", "set1.test.txt")
_PLAIN_NAMES = (("train.txt", "vali.txt", "test.txt"), ("train.txt", "valid.txt", "test.txt"))

Sentinel = str | Sequence[str] | None


@dataclass(frozen=True)
class Layout:
    """Where the files of a data set are.

    Attributes:
        name: "yahoo", "istella", or the name of the folder or file.
        files: train, valid and test; or one file that is yet to be split.
        fold: which of several folds this is, None if there is one division only.
    """

    name: str
    files: tuple[Path, ...]
    fold: int | None = None


def find_layout(source: str | os.PathLike[str], *, fold: int = 1) -> Layout:
    """Recognise a data set by its file names.

    Args:
        source: a LETOR file, or a folder with set1.train.txt, set1.valid.txt and set1.test.txt (Yahoo), or train.txt,
            vali.txt (or valid.txt) and test.txt, directly, in `sample/` (Istella-S) or in `Fold1/` to `Fold5/` (MSLR,
            MQ2007, MQ2008); each file may end in .gz, .xz, .bz2 or .zst.
        fold: which fold to take, where there are folds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("train.txt", "vali.txt.gz", "test.txt"):
    ...         _ = Path(folder, name).write_text("")
    ...     [file.name for file in find_layout(folder).files]
    ['train.txt', 'vali.txt.gz', 'test.txt']
    """
    path = Path(source)
    folds = any((path / f"Fold{i}").is_dir() for i in range(1, 6))
    if not path.exists():
        raise FultrError(f"{path}: no such file or folder")
    if fold != 1 and not folds:
        raise FultrError(f"{path}: expected a folder Fold{fold}, found no folds")
    if not path.is_dir():
        return Layout(path.name, (path,))
    name = path.resolve().name
    if files := _find(path, _YAHOO_NAMES):
        return Layout("yahoo", files)
    if folds:
        chosen = path / f"Fold{fold}"
        for names in _PLAIN_NAMES:
            if files := _find(chosen, names):
                return Layout(f"{name}/Fold{fold}", files, fold)
        raise FultrError(f"{chosen}: expected train.txt, vali.txt (or valid.txt) and test.txt")
    for names in _PLAIN_NAMES:
        if files := _find(path / "sample", names):
            return Layout("istella", files)
        if files := _find(path, names):
            istella = "istella" in name.lower() or name == "sample" or _last_feature(files[0]) == b"220"
            number = re.fullmatch(r"Fold([1-5])", name)
            return Layout("istella" if istella else name, files, int(number[1]) if number else None)
    raise FultrError(
        f"{path}: expected {', '.join(_YAHOO_NAMES)}, or train.txt, vali.txt (or valid.txt) and test.txt, there or in "
        f"sample/ or Fold1/ to Fold5/, each perhaps with {', '.join(SUFFIXES[1:])}; found no such files"
    )


def _find(folder: Path, names: Sequence[str]) -> tuple[Path, ...]:
    """The files of the given names, each with the first suffix there is; empty if one is missing."""
    candidates = [[folder / (name + suffix) for suffix in SUFFIXES] for name in names]
    found = [next((file for file in files if file.is_file()), None) for files in candidates]
    return tuple(file for file in found if file) if all(found) else ()


def _last_feature(path: Path) -> bytes:
    """The id of the last feature in the first line of a file, b"" if there is no such thing."""
    try:
        with path.open("rb") as file:
            start = b"".join(islice(unpack(file, path.suffix if path.suffix in SUFFIXES else ""), 1))
    except Exception:  # a damaged file: the reader will say so
        return b""
    line = start.partition(b"\n")[0].partition(b"#")[0]
    return line.split()[-1].partition(b":")[0] if line.split() else b""


def load_path(
    source: str | os.PathLike[str],
    *,
    fold: int = 1,
    normalise: bool = True,
    filter: bool = True,
    merge: bool = False,
    sentinel: Sentinel = "auto",
    cache: bool = True,
    seed: int = 0,
    threads: int | None = None,
) -> Splits:
    r"""Load a data set from its folder (see `find_layout`), or a single LETOR file, split 60/20/20 by query.

    Args:
        source: the folder or file.
        fold: which fold to take, where there are folds.
        normalise: scale each feature to [0, 1] within each query.
        filter: drop the queries whose documents all have the same grade.
        merge: allow that a query comes back later in a file.
        sentinel: texts that stand for "no value" and become 0; "auto" is 1.79769313486232e+308 for Istella-S and
            nothing for others.
        cache: keep the result in the on-disk cache, and take it from there if nothing has changed.
        seed: decides how a single file is split.
        threads: how many threads to use; all cores if None.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "five.txt")
    ...     _ = file.write_text("".join(f"{grade} qid:{q} 1:{q + grade}\n" for q in range(5) for grade in (0, 2)))
    ...     load_path(file, cache=False)
    Splits(five.txt: train RankingData(3 queries, 6 documents, 1 feature),
        valid RankingData(1 query, 2 documents, 1 feature), test RankingData(1 query, 2 documents, 1 feature))
    """
    layout = find_layout(source, fold=fold)
    sentinels = _sentinels(layout, sentinel)
    identities = [file_identity(file) for file in layout.files]

    def make() -> list[RankingData]:
        parts = read_letor_files(layout.files, merge=merge, sentinel=sentinels, threads=threads)
        if [file_identity(file) for file in layout.files] != identities:
            raise FultrError(f"{source}: changed while it was being read")
        for i, file in enumerate(layout.files):
            try:
                parts[i] = parts[i].filter(overwrite=True) if filter else parts[i]
            except FultrError as error:
                raise FultrError(f"{file}: {error}") from error
            parts[i] = parts[i].normalise(overwrite=True, threads=threads) if normalise else parts[i]
        if len(parts) > 1:
            return parts
        try:
            return list(parts[0].split(_SHARES, seed))
        except FultrError as error:
            raise FultrError(f"{source}: {error}") from error

    key = {
        "kind": "letor",
        "files": identities,
        "normalise": normalise,
        "filter": filter,
        "merge": merge,
        "sentinels": sentinels,
        "seed": seed if len(layout.files) == 1 else None,
    }
    train, valid, test = cached(key, make) if cache else make()
    return Splits(train, valid, test, Path(source).resolve().name, normalise)


def _sentinels(layout: Layout, given: Sentinel) -> list[str]:
    if given == "auto":
        return [ISTELLA_SENTINEL] if layout.name == "istella" else []
    return [given] if isinstance(given, str) else list(given or ())


@dataclass(frozen=True)
class Published:
    """The figures that a data set's own page gives, of its first fold if it has folds, and those of the paper.

    Attributes:
        name: of the data set.
        features: how many feature ids occur.
        queries: of train, valid, test.
        documents: of train, valid, test.
        kept: what the paper keeps after filtering: of "train" or of "all", queries, documents per query.
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
    """What one file, or all files of a data set together, hold; `kept_` is after filtering."""

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
    """A figure of the data beside the published one."""

    part: str
    figure: str
    found: float
    published: float
    source: str

    @property
    def agrees(self) -> bool:
        """Are they the same, to the published digits?"""
        return round(self.found, 2) == self.published


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found.

    Attributes:
        source: what was inspected.
        counts: for each file, and for all of them together ("all").
        compared_with: the known data set it is nearest to, None if there is none with as many features.
        comparisons: figure by figure.
    """

    source: str
    counts: tuple[Counts, ...]
    compared_with: str | None
    comparisons: tuple[Comparison, ...]

    def verdict(self) -> str:
        """One sentence on whether the figures agree."""
        if self.compared_with is None:
            return "No published figures to compare with: neither the files' names nor the number of features is known."
        differ = sum(not comparison.agrees for comparison in self.comparisons)
        if differ == 0:
            return f"All {len(self.comparisons)} figures agree with those published for {self.compared_with}."
        return (
            f"{differ} of {len(self.comparisons)} figures differ from those published for {self.compared_with}, "
            "the nearest of the known data sets."
        )

    def counts_table(self) -> list[list[str]]:
        """A heading and one row for each file and for all."""
        kept = ["queries kept", "documents kept", "per query"]
        rows = [["part", "queries", "documents", "per query", *kept, "features", "grades, %"]]
        for row in self.counts:
            grades = " ".join(f"{100 * n / row.documents:.1f}" for n in row.grades)
            before = [f"{row.queries:,}", f"{row.documents:,}", f"{row.documents_per_query:.2f}"]
            after = [f"{row.kept_queries:,}", f"{row.kept_documents:,}", f"{row.kept_documents_per_query:.2f}"]
            rows.append([row.part, *before, *after, f"{row.features:,}", grades])
        return rows

    def comparison_table(self) -> list[list[str]]:
        """A heading and one row for each published figure."""
        rows = [["part", "figure", "found", "published", "by", "verdict"]]
        for row in self.comparisons:
            figures = [f"{round(row.found, 2):,}", f"{row.published:,}"]
            rows.append([row.part, row.figure, *figures, row.source, "agrees" if row.agrees else "differs"])
        return rows

    def as_dict(self) -> dict[str, Any]:
        """Everything, as values that JSON can carry."""
        averages = ("documents_per_query", "kept_documents_per_query")
        return {
            "source": self.source,
            "counts": [asdict(row) | {name: getattr(row, name) for name in averages} for row in self.counts],
            "compared_with": self.compared_with,
            "comparisons": [asdict(row) | {"agrees": row.agrees} for row in self.comparisons],
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
    r"""Count what a data set holds, before and after filtering, and compare it with the published figures.

    Every line is checked; features are not kept, so this needs little memory. Arguments as for `load_path`.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write("0 qid:1 1:5\n2 qid:1 1:3\n1 qid:2 1:4\n"), file.flush()
    ...     found = inspect(file.name)
    >>> [(row.part, row.queries, row.documents, row.grades, row.kept_queries) for row in found.counts]
    [('all', 2, 3, (1, 1, 1), 1)]
    """
    layout = find_layout(source, fold=fold)
    counts, ids = [], np.empty(0, np.int64)
    for part, path in zip(PARTS if len(layout.files) > 1 else ("all",), layout.files, strict=True):
        file = LetorFile(path, merge=merge, sentinel=_sentinels(layout, sentinel), threads=threads)
        counts.append(_count(part, path.name, file.read([]), file.feature_ids.size))
        ids = np.union1d(ids, file.feature_ids)
    if len(counts) > 1:
        counts.append(_sum(counts, ids))
    published = _nearest(layout, counts[-1]) if len(counts) > 1 else None
    comparisons = _compare(counts, published, parts=layout.fold in (None, 1)) if published else ()
    return Inspection(str(source), tuple(counts), published.name if published else None, comparisons)


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
