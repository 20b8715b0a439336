"""The file metadata.csv of AOL4FOLTR: a line for each search, read one after the other."""

from __future__ import annotations

import csv
import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fultr.core.arrays import Float64s, Int64s
from fultr.core.compressed import map_text
from fultr.core.errors import FultrError

CALLED = {
    "qid": ("qid", "query_id"),
    "user": ("user_id", "user", "userid", "anonid"),
    "time": ("timestamp", "time", "query_time", "querytime"),
    "query": ("query", "query_text", "raw_query"),
    "target": ("target_doc_id", "target", "clicked_doc_id"),
    "candidates": ("candidate_doc_ids", "candidates", "doc_ids"),
}
"""What a column may be called; the first of these names that there is. The first two columns are needed."""

_LATEST = 1e11  # seconds since 1970
_SHOWN = 60  # characters of a wrong value


@dataclass
class Searches:
    """What metadata says of the searches of a LETOR file, in the file's order.

    Attributes:
        query: int64 [searches], which of `query_names`; -1: metadata does not have the search.
        user: int64 [searches], which of `user_names`; -1: metadata does not say.
        times: seconds since 1970; None: there are none.
        query_names: what was searched for.
        user_names: by whom.
        targets: the id of the document that was clicked, by search.
        candidates: the ids of all documents, as written, by search.
        repeated: how many lines have the qid of an earlier one.
    """

    query: Int64s
    user: Int64s
    times: Float64s | None
    query_names: np.ndarray[Any, Any]
    user_names: np.ndarray[Any, Any]
    targets: dict[int, str] = field(default_factory=dict)
    candidates: dict[int, str] = field(default_factory=dict)
    repeated: int = 0

    def listed(self, search: int, clicked: Sequence[int], documents: int) -> list[str] | None:
        """The ids of a search's documents; None if they are no list, or do not fit what was clicked.

        A set in curly brackets, as Python writes it, has no order.
        """
        written = self.candidates.get(search, "").strip()
        if not written.startswith("["):
            return None
        ids = re.findall(r"[^\s,'\"\[\]]+", written)
        target = self.targets.get(search)
        if len(ids) != documents or (target is not None and [ids[at] for at in clicked] != [target]):
            return None
        return ids


def read_searches(path: Path, queries: Int64s, *, documents: bool = True) -> Searches:
    """What the file says of searches with these ids; lines of others are passed over.

    Args:
        path: of the file, comma- or tab-separated, plain or compressed.
        queries: the ids, all different.
        documents: keep the documents' ids too, which are most of the file.
    """
    lines = _lines(path, map_text(path))
    first = next(lines)
    delimiter = "\t" if "\t" in first else ","
    rows = csv.reader(_again(first, lines), delimiter=delimiter, strict=True)
    wanted = {qid: at for at, qid in enumerate(queries.tolist())}
    query, user = np.full(queries.size, -1, np.int64), np.full(queries.size, -1, np.int64)
    times = np.zeros(queries.size)
    query_names: dict[str, int] = {}
    user_names: dict[str, int] = {}
    found = Searches(query, user, None, np.empty(0, object), np.empty(0, object))
    try:
        names = next(rows)
        at = _columns(path, names)
        for cells in rows:
            if not cells:
                continue
            if len(cells) != len(names):
                shown = delimiter.join(cells)[:_SHOWN]
                raise FultrError(
                    f"{path}, line {rows.line_num}: expected {len(names)} columns as in the first line, found "
                    f"{len(cells)}: {shown!r}"
                )
            search = wanted.get(_whole(path, rows.line_num, names[at["qid"]], cells[at["qid"]]))
            if search is None:
                continue
            if query[search] >= 0:
                found.repeated += 1
                continue
            text = cells[at["query"]].strip() if "query" in at else ""
            query[search] = query_names.setdefault(text or f"qid {queries[search]}", len(query_names))
            if who := cells[at["user"]].strip():
                user[search] = user_names.setdefault(who, len(user_names))
            if "time" in at:
                times[search] = _seconds(path, rows.line_num, names[at["time"]], cells[at["time"]])
            if "target" in at and documents:
                found.targets[search] = cells[at["target"]].strip()
            if "candidates" in at and documents:
                found.candidates[search] = cells[at["candidates"]]
    except csv.Error as error:
        raise FultrError(f"{path}, line {rows.line_num}: expected cells with commas between them: {error}") from None
    found.times = times if "time" in at else None
    found.query_names, found.user_names = np.array([*query_names], object), np.array([*user_names], object)
    return found


def _again(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from lines


def _lines(path: Path, text: mmap.mmap) -> Iterator[str]:
    text.seek(0)
    for number, raw in enumerate(iter(text.readline, b""), 1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            found = raw[error.start : error.start + 4]
            raise FultrError(f"{path}, line {number}: expected UTF-8 text, found the bytes {found!r}") from None


def _columns(path: Path, given: Sequence[str]) -> dict[str, int]:
    """Where each column of the table above is."""
    names = [name.strip().lower() for name in given]
    found = {}
    for meaning, called in CALLED.items():
        name = next((name for name in called if name in names), None)
        if name is not None and names.count(name) > 1:
            raise FultrError(f"{path}, line 1: expected one column {name}, found {names.count(name)}")
        if name is not None:
            found[meaning] = names.index(name)
        elif meaning in ("qid", "user"):
            there = ", ".join(names)[:80]
            raise FultrError(f"{path}, line 1: expected a column {' or '.join(called)}, found {there!r}")
    return found


def _whole(path: Path, line: int, name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise FultrError(f"{path}, line {line}: expected a whole number as {name}, found {text[:_SHOWN]!r}") from None


def _seconds(path: Path, line: int, name: str, text: str) -> float:
    """Seconds since 1970; a time without a zone is UTC."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            time = datetime.fromisoformat(text.strip())
        except ValueError:
            time = None
        seconds = np.nan if time is None else (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    if not abs(seconds) <= _LATEST:
        said = "a time such as 2006-03-01 16:01:20, or seconds since 1970"
        raise FultrError(f"{path}, line {line}: expected {said}, as {name}; found {text[:_SHOWN]!r}")
    return seconds
