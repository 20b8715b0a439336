"""AOL4FOLTR: searches of 10,000 users of AOL in 2006 (Gregoriadis, Kang and Pouwelse, CIKM 2025), a folder.

`letor.txt` has a line `click qid:N 1:v ... 103:v` for each of about 20 results of a search; `metadata.csv` says of each
`qid`, which is one search, its `user_id`, `timestamp`, `query`, `target_doc_id` (what was clicked) and
`candidate_doc_ids`. The files and their columns are taken from the data set's description (zenodo.org/records/15689455)
and from the code that writes and loads it (github.com/mg98/aol4foltr: create_metadata.py, postprocess_metadata.py,
ltr/types.py, docs/howto.md, LetorDataset.py, by which a feature that is not a number is 0).

As judged data, the document that was clicked is the relevant one. Searches are split by time, the last fifth being for
testing, as in the data set's own experiment (experiment.py): a ranker learns from what was searched before. Each search
keeps its user.

Memory: the features twice, while they are split.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fultr.core.arrays import Bools
from fultr.core.compressed import SUFFIXES
from fultr.core.errors import FultrError
from fultr.core.system import available_memory
from fultr.data.aol_metadata import CALLED, Searches, read_searches

if TYPE_CHECKING:
    from fultr.data.letor.reader import LetorFile
    from fultr.data.ranking import RankingData

NOT_A_NUMBER = ("nan", "NaN", "-nan")


def aol_files(path: Path) -> tuple[Path, Path] | None:
    """The two files, if this is the data set's folder, or its file letor*.txt with metadata.csv beside it; else None.

    >>> aol_files(Path("clicks.tsv")) is None
    True
    """
    folder = path if path.is_dir() else path.parent
    metadata = _first(folder, "metadata.csv")
    letor = _first(path, "letor.txt") if path.is_dir() else path if re.match(r"letor.*\.txt", path.name) else None
    return (letor, metadata) if letor is not None and metadata is not None else None


def _first(folder: Path, name: str) -> Path | None:
    """The file of this name, plain or compressed."""
    return next((folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()), None)


def read_results(
    letor: Path,
    *,
    copies: int,
    other_bytes: int = 0,
    sentinel: Sequence[str] = NOT_A_NUMBER,
    threads: int | None = None,
) -> tuple[LetorFile, RankingData]:
    """The file of features and clicks, and what it holds; refused before it is read, if it does not fit into memory.

    Args:
        letor: the file.
        copies: of the features, that there will be at one time.
        other_bytes: that each document takes besides.
        sentinel: texts that stand for "no value" and become 0.
        threads: how many threads to use; all cores if None.
    """
    from fultr.data.letor.reader import LetorFile  # compiled; readers of click logs do without, but for this one

    file = LetorFile(letor, merge=True, sentinel=sentinel, threads=threads)
    ids = file.feature_ids
    if not ids.size:
        raise FultrError(f"{letor}: expected feature:value in some line, found none")
    needed, available = file.documents * (copies * 4 * ids.size + other_bytes), available_memory()
    if needed > available:
        raise FultrError(
            f"{letor}: {file.documents:,} documents with {ids.size} features would take {needed / 1e9:,.1f} GB of "
            f"memory, {available / 1e9:,.1f} GB are available; put the first part of its lines into a folder of its "
            "own, with metadata.csv"
        )
    return file, file.read(ids)


def known_searches(letor: Path, metadata: Path, searches: Searches) -> Bools:
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


def parts_by_time(data: RankingData, letor: Path, metadata: Path) -> list[RankingData]:
    """The first 60%, the next 20% and the last 20% of the searches, each with its user; copied.

    Args:
        data: what `letor` holds.
        letor: the file of features and clicks.
        metadata: the file of users and times.
    """
    searches = read_searches(metadata, data.query_ids, documents=False)
    known = np.flatnonzero(known_searches(letor, metadata, searches))
    if searches.times is None:
        raise FultrError(
            f"{metadata}, line 1: expected a column {' or '.join(CALLED['time'])}, since searches are split by time"
        )
    order = known[np.argsort(searches.times[known], kind="stable")]
    try:
        return list(replace(data, users=searches.user).split(order=order))
    except FultrError as error:
        raise FultrError(f"{letor}: {error}") from error
