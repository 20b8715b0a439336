"""Pages that a reader of a published log found, one after the other: what all these readers share."""

from __future__ import annotations

import warnings
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from fultr.clicks.file_tables import FileTable
from fultr.core.errors import FultrError


@dataclass
class PagesRead:
    """Columns to which pages are added, and counts of what was left out."""

    path: Path
    word: str = "line"
    queries: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    clicks: array[int] = field(default_factory=lambda: array("b"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[int] = field(default_factory=lambda: array("q"))
    left_out: dict[str, int] = field(default_factory=dict)

    def add(self, number: int, query: str, user: str, documents: list[str]) -> int:
        """A page without clicks; returns where its clicks begin."""
        begin = len(self.documents)
        self.queries.append(query)
        self.users.append(user)
        self.documents += documents
        self.clicks.extend([0] * len(documents))
        self.lengths.append(len(documents))
        self.numbers.append(number)
        return begin

    def leave_out(self, what: str) -> None:
        """Count something that does not become part of the log."""
        self.left_out[what] = self.left_out.get(what, 0) + 1

    def table(self) -> FileTable:
        """The pages as a table; a warning says what was left out."""
        if self.left_out:
            said = ", ".join(f"{count:,} {what}" for what, count in self.left_out.items())
            warnings.warn(f"{self.path}: left out: {said}", stacklevel=4)
        if not self.queries:
            raise FultrError(f"{self.path}: expected impressions, found none")
        offsets = pa.array(np.r_[0, np.cumsum(np.array(self.lengths, np.int64))].astype(np.int32))
        columns = {
            "query": pa.array(self.queries),
            "user": pa.array(self.users),
            "documents": pa.ListArray.from_arrays(offsets, pa.array(self.documents, pa.string())),
            "clicks": pa.ListArray.from_arrays(offsets, pa.array(np.array(self.clicks, np.int8))),
        }
        return FileTable(self.path, columns, np.array(self.numbers, np.int64), self.word)
