"""AOL4FOLTR as a click log: a search is a page, see `fultr.data.aol` for its files.

Results were looked up when the data set was made: their order is not the one that users saw, which nobody recorded.
It stands for ranks here, since pages need some, and a warning says so.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fultr.clicks.frames import pages_of
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.repeated import Repeated, on_one_page, without_repeated
from fultr.core.arrays import Int64s, UInt8s
from fultr.core.errors import FultrError
from fultr.data.aol import aol_files, known_searches, read_results
from fultr.data.aol_metadata import Searches, read_searches

if TYPE_CHECKING:
    from fultr.data.letor.reader import LetorFile

_LONGEST_PAGE = 10_000
_COPIES = 3  # of the features that there are at one time
_NAME_BYTES = 150  # of a document's name, with what refers to it
_ORDER = (
    "results are in the order of the file, not the one that users saw, which AOL4FOLTR does not record: an estimate of "
    "examination says nothing about users; train without one (--propensity none)"
)


def aol_log_files(path: Path) -> tuple[Path, Path] | None:
    """The two files of the data set, see `aol_files`; None: this is no folder, and none of them.

    >>> aol_log_files(Path("clicks.tsv")) is None
    True
    """
    files = aol_files(path)
    if files is None and path.is_dir():
        missing = "metadata.csv" if any(path.glob("letor.txt*")) else "letor.txt"
        raise FultrError(
            f"{path}: expected the file of a click log, or a folder of AOL4FOLTR with letor.txt and metadata.csv; "
            f"it is a folder, and has no {missing}"
        )
    return files


def read_aol(letor: Path, metadata: Path, repeated: Repeated) -> ImpressionLog:
    """The pages of the data set, in order of time, with users, times and features.

    A query is its text, as far as metadata has it, else its qid. A document's id is what stands behind # in its line,
    or else in metadata, if the candidates there are a list in the order of the lines; one without an id is its own.

    Args:
        letor: the file of features and clicks.
        metadata: the file of users, times and queries.
        repeated: what becomes of pages that display a document twice, see `fultr.read_click_log`.
    """
    file, data = read_results(letor, copies=_COPIES, other_bytes=_NAME_BYTES)
    sizes = np.diff(data.offsets)
    if sizes.max() > _LONGEST_PAGE:
        qid = data.query_ids[np.argmax(sizes)]
        raise FultrError(f"{letor}, qid {qid}: expected at most {_LONGEST_PAGE:,} results, found {sizes.max():,}")
    searches = read_searches(metadata, data.query_ids)
    clicks = (data.labels > 0).astype(np.uint8)
    names = np.array(list(_documents(file, searches, data.query_ids, data.offsets, clicks)), object)
    known = known_searches(letor, metadata, searches)
    rows, page = np.flatnonzero(np.repeat(known, sizes)), np.repeat(np.flatnonzero(known), sizes[known])
    rank = rows - data.offsets[page] + 1
    features = data.features if known.all() else data.features[rows]
    clicks, names = clicks[rows], names[rows]
    made = pages_of(features, clicks, query=searches.query[page], rank=rank, user=searches.user[page], document=names)
    pages = np.flatnonzero(known)
    log = replace(
        made.log,
        query_names=searches.query_names[made.log.query_names],
        user_names=searches.user_names[made.user_names],
        feature_names=tuple(f"f{i}" for i in data.feature_ids.tolist()),
        times=None if searches.times is None else searches.times[pages],
    )
    warnings.warn(f"{letor}: {_ORDER}", stacklevel=3)
    without = int((~log.clicks.any(axis=1)).sum())
    if without:
        warnings.warn(f"{letor}: {without:,} of {log.impressions:,} pages have no click; kept", stacklevel=3)
    twice = on_one_page(np.unique(names, return_inverse=True)[1], made.rows)
    if repeated == "refuse" and twice.any():
        qid = data.query_ids[pages[np.argmax(twice)]]
        raise FultrError(f"{letor}, qid {qid}: expected different documents on a page, found one twice")
    if log.times is not None:
        order = np.argsort(log.times, kind="stable")
        log, twice = log.take(order), twice[order]
    return without_repeated(letor, log, twice, repeated)


def _documents(file: LetorFile, searches: Searches, queries: Int64s, offsets: Int64s, clicks: UInt8s) -> Iterator[str]:
    """The id of each document."""
    comments = file.comments()
    for page, qid in enumerate(queries.tolist()):
        begin, end = int(offsets[page]), int(offsets[page + 1])
        listed = searches.listed(page, np.flatnonzero(clicks[begin:end]).tolist(), end - begin)
        for rank in range(end - begin):
            said = re.match(r"(?:docid\s*=\s*)?(\S+)", comments[begin + rank]) if comments else None
            yield said[1] if said else listed[rank] if listed else f"{qid}:{rank + 1}"
