"""AOL4FOLTR: searches of 10,000 users of AOL in 2006 (Gregoriadis, Kang and Pouwelse, CIKM 2025), a folder.

`letor.txt` has a line `click qid:N 1:v ... 103:v` for each of about 20 results of a search; `metadata.csv` says of each
`qid`, which is one search, its `user_id`, `timestamp`, `query`, `target_doc_id` (what was clicked) and
`candidate_doc_ids`. The files and their columns are taken from the data set's description (zenodo.org/records/15689455)
and from the code that writes and loads it (github.com/mg98/aol4foltr: create_metadata.py, postprocess_metadata.py,
ltr/types.py, docs/howto.md, LetorDataset.py, by which a feature that is not a number is 0).

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
from fultr.clicks.published.aol_metadata import Searches, read_searches
from fultr.clicks.repeated import Repeated, on_one_page, without_repeated
from fultr.core.arrays import Bools, Int64s, UInt8s
from fultr.core.compressed import SUFFIXES
from fultr.core.errors import FultrError
from fultr.core.system import available_memory

if TYPE_CHECKING:
    from fultr.data.letor.reader import LetorFile

_NOT_A_NUMBER = ("nan", "NaN", "-nan")
_LONGEST_PAGE = 10_000
_COPIES = 3  # of the features that there are at one time
_NAME_BYTES = 150  # of a document's name, with what refers to it
_ORDER = (
    "results are in the order of the file, not the one that users saw, which AOL4FOLTR does not record: an estimate of "
    "examination says nothing about users; train without one (--propensity none)"
)


def aol_files(path: Path) -> tuple[Path, Path] | None:
    """The two files, if this is the data set's folder, or its file letor*.txt with metadata.csv beside it; else None.

    >>> aol_files(Path("clicks.tsv")) is None
    True
    """
    if not path.is_dir():
        metadata = _first(path.parent, "metadata.csv")
        return (path, metadata) if metadata is not None and re.match(r"letor.*\.txt", path.name) else None
    found = [_first(path, name) for name in ("letor.txt", "metadata.csv")]
    if found[0] is None or found[1] is None:
        missing = "letor.txt" if found[0] is None else "metadata.csv"
        raise FultrError(
            f"{path}: expected the file of a click log, or a folder of AOL4FOLTR with letor.txt and metadata.csv; "
            f"it is a folder, and has no {missing}"
        )
    return found[0], found[1]


def _first(folder: Path, name: str) -> Path | None:
    """The file of this name, plain or compressed."""
    return next((folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()), None)


def read_aol(letor: Path, metadata: Path, repeated: Repeated) -> ImpressionLog:
    """The pages of the data set, in order of time, with users, times and features.

    A query is its text, as far as metadata has it, else its qid. A document's id is what stands behind # in its line,
    or else in metadata, if the candidates there are a list in the order of the lines; one without an id is its own.

    Args:
        letor: the file of features and clicks.
        metadata: the file of users, times and queries.
        repeated: what becomes of pages that display a document twice, see `fultr.read_click_log`.
    """
    from fultr.data.letor.reader import LetorFile  # compiled; nothing else of this package needs it

    file = LetorFile(letor, merge=True, sentinel=_NOT_A_NUMBER)
    ids = file.feature_ids
    if not ids.size:
        raise FultrError(f"{letor}: expected feature:value in some line, found none")
    needed, available = file.documents * (_COPIES * 4 * ids.size + _NAME_BYTES), available_memory()
    if needed > available:
        raise FultrError(
            f"{letor}: {file.documents:,} documents with {ids.size} features would take {needed / 1e9:,.1f} GB of "
            f"memory, {available / 1e9:,.1f} GB are available; put the first part of its lines into a folder of its own"
        )
    data = file.read(ids)
    sizes = np.diff(data.offsets)
    if sizes.max() > _LONGEST_PAGE:
        qid = data.query_ids[np.argmax(sizes)]
        raise FultrError(f"{letor}, qid {qid}: expected at most {_LONGEST_PAGE:,} results, found {sizes.max():,}")
    searches = read_searches(metadata, data.query_ids)
    clicks = (data.labels > 0).astype(np.uint8)
    names = np.array(list(_documents(file, searches, data.query_ids, data.offsets, clicks)), object)
    known = _known(letor, metadata, searches)
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
        feature_names=tuple(f"f{i}" for i in ids.tolist()),
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


def _known(letor: Path, metadata: Path, searches: Searches) -> Bools:
    """Which searches metadata names a user of; others are left out, and a warning counts them."""
    missing, nameless = searches.query < 0, (searches.query >= 0) & (searches.user < 0)
    known: Bools = ~missing & ~nameless
    said = [f"{missing.sum():,} pages whose qid {metadata.name} does not have"] if missing.any() else []
    said += [f"{nameless.sum():,} pages without a user"] if nameless.any() else []
    if not known.any():
        raise FultrError(f"{letor}: expected searches that {metadata} has, with users; found {' and '.join(said)}")
    if searches.repeated:
        said.append(f"{searches.repeated:,} lines of {metadata.name} whose qid an earlier one has")
    if said:
        warnings.warn(f"{letor}: left out: {', '.join(said)}", stacklevel=4)
    return known


def _documents(file: LetorFile, searches: Searches, queries: Int64s, offsets: Int64s, clicks: UInt8s) -> Iterator[str]:
    """The id of each document."""
    comments = file.comments()
    for page, qid in enumerate(queries.tolist()):
        begin, end = int(offsets[page]), int(offsets[page + 1])
        listed = searches.listed(page, np.flatnonzero(clicks[begin:end]).tolist(), end - begin)
        for rank in range(end - begin):
            said = re.match(r"(?:docid\s*=\s*)?(\S+)", comments[begin + rank]) if comments else None
            yield said[1] if said else listed[rank] if listed else f"{qid}:{rank + 1}"
