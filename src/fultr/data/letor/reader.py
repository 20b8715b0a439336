"""LETOR text -> RankingData.

A line is `label qid:N feature:value ... # comment`: a grade 0 to 30, a 64-bit query id, features in any order, those
left out being 0. Blank lines and lines with only a comment are skipped; LF or CRLF, blanks or tabs.

Files are mapped into memory and parsed on several threads, in two passes: the first finds queries and feature ids, the
second parses the values straight into their places. Compressed files are first unpacked into an unnamed file in the
cache folder.

Memory: the feature array, plus 4 bytes per document, 24 per query, and 4 MB of text per thread.
"""

from __future__ import annotations

import codecs
import mmap
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s, UInt8s
from fultr.core.checks import MAX_GRADE
from fultr.core.compressed import map_text
from fultr.core.errors import FultrError
from fultr.core.system import available_memory
from fultr.core.threads import run_chunks
from fultr.data.letor.kernels import BAD_FEATURE, BAD_GRADE, BAD_QUERY, DIRECT_IDS, FINE, REPEATED_FEATURE, fill, scan
from fultr.data.ranking import RankingData

_PIECE_BYTES = 4 << 20
_SHOWN_CHARACTERS = 60
_EXPECTED = {
    BAD_GRADE: f"a whole grade 0 to {MAX_GRADE}",
    BAD_QUERY: "qid:N with a 64-bit whole number N",
    BAD_FEATURE: "feature:value",
    REPEATED_FEATURE: "each feature once",
}
# From here on, numbers round to infinity as float32.
_BEYOND_FLOAT32 = (2 - 2**-24) * 2.0**127
_COMES_BACK = 100
_REASONS = (
    (re.compile(rb"[+-]?(s|q)?nan.*|[+-]?\d\.#(qnan|snan|ind).*", re.IGNORECASE), "not a number"),
    (re.compile(rb"[+-]?inf(inity)?|[+-]?\d\.#inf.*", re.IGNORECASE), "infinite"),
    (re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE), "beyond float32"),
)


def read_letor(
    path: str | os.PathLike[str],
    *,
    feature_ids: ArrayLike | None = None,
    merge: bool = False,
    sentinel: str | Sequence[str] | None = None,
    threads: int | None = None,
) -> RankingData:
    r"""Read a LETOR file, plain or compressed (.gz, .xz, .bz2, .zst).

    Args:
        path: the file.
        feature_ids: the ids of the columns, ascending; other ids in the file are ignored. None: the ids that occur in
            the file.
        merge: allow a query to reappear later in the file; its documents go to where it first appeared.
        sentinel: one or several texts that mean "no value", such as "1.79769313486232e+308"; values that equal
            one, as text or as number, become 0.
        threads: how many threads to use; all cores if None. The result is the same for any number.

    Raises:
        FultrError: names the file, the line, the offending text and what was expected there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "data.txt").write_text("0 qid:7 3:0.5 # first\n2 qid:7 1:-2e3\n")
    ...     data = read_letor(Path(folder, "data.txt"))
    >>> data.features.tolist(), data.labels.tolist(), data.feature_ids.tolist()
    ([[0.0, 0.5], [-2000.0, 0.0]], [0, 2], [1, 3])
    """
    return read_letor_files([path], feature_ids=feature_ids, merge=merge, sentinel=sentinel, threads=threads)[0]


def read_letor_files(
    paths: Sequence[str | os.PathLike[str]],
    *,
    feature_ids: ArrayLike | None = None,
    merge: bool = False,
    sentinel: str | Sequence[str] | None = None,
    threads: int | None = None,
) -> list[RankingData]:
    r"""Read several LETOR files that share their columns: the ids that occur in any of them. See `read_letor`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("1 qid:1 1:5\n"), Path(folder, "b.txt").write_text("0 qid:1 9:5\n")
    ...     a, b = read_letor_files([Path(folder, "a.txt"), Path(folder, "b.txt")])
    >>> a.features.tolist(), b.features.tolist(), a.feature_ids.tolist()
    ([[5.0, 0.0]], [[0.0, 5.0]], [1, 9])
    """
    files = [LetorFile(path, merge=merge, sentinel=sentinel, threads=threads) for path in paths]
    if feature_ids is None:
        ids = np.unique(np.concatenate([file.feature_ids for file in files]))
        if ids.size == 0:
            raise FultrError(f"{files[0].path}: expected feature:value in some line, found none")
    else:
        ids = np.array(feature_ids, np.int64)
        if ids.ndim != 1 or np.any(np.diff(ids) <= 0):
            raise FultrError("feature_ids: expected ascending ids")
    documents = sum(file.documents for file in files)
    needed, available = documents * ids.size * 4, available_memory()
    if needed > available:
        raise FultrError(
            f"{', '.join(str(file.path) for file in files)}: {documents:,} documents with {ids.size:,} distinct "
            f"feature ids would take {needed / 1e9:,.1f} GB of memory, {available / 1e9:,.1f} GB are available"
        )
    return [file.read(ids) for file in files]


@dataclass(frozen=True, eq=False)
class _Piece:
    """A range of whole lines, the last byte being a newline; `base` is where `text` starts in the file."""

    text: UInt8s
    begin: int
    end: int
    base: int


@dataclass(frozen=True)
class _Sentinels:
    """What means "no value": `texts` [n, longest] padded with zero bytes, and those of them that are numbers."""

    texts: UInt8s
    values: Float64s
    large: frozenset[bytes]  # numbers beyond float64, which can only be compared as text

    @classmethod
    def of(cls, given: str | Sequence[str] | None) -> _Sentinels:
        texts = [given] if isinstance(given, str) else list(given or ())
        finite, large = [], set()
        for text in texts:
            if not text or "#" in text or text.split() != [text]:
                raise FultrError(f"sentinel: expected text without blanks or #, found {text!r}")
            try:
                if np.isfinite(float(text)):
                    finite.append(float(text))
                else:
                    large.add(_plain_spelling(text.encode()))
            except ValueError:
                continue  # a word such as NULL: matched as text only
        padded = np.array([text.encode() for text in texts], np.bytes_)
        rows = padded.view(np.uint8).reshape(len(texts), -1) if texts else np.empty((0, 0), np.uint8)
        return cls(rows, np.array(finite, np.float64), frozenset(large))

    def number(self, text: bytes) -> float:
        """The number that is written there, 0 if it is a sentinel."""
        value = float(text)
        if value in self.values or (np.isinf(value) and _plain_spelling(text) in self.large):
            return 0.0
        return value


def _plain_spelling(number: bytes) -> bytes:
    return number.lower().replace(b"+", b"")


class LetorFile:
    r"""A LETOR file whose queries and feature ids are known, and whose values have not been read yet.

    Attributes:
        path: the file.
        documents: how many it has.
        feature_ids: int64, ascending: the ids that occur.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write("0 qid:7 3:0.5 # some document\n"), file.flush()
    ...     letor = LetorFile(file.name)
    >>> letor.documents, letor.feature_ids.tolist(), letor.comments()
    (1, [3], ['some document'])
    >>> letor.read([]).labels.tolist()  # without features: checks the file, needs next to no memory
    [0]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        merge: bool = False,
        sentinel: str | Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        self.path = Path(path)
        self._threads = threads
        self._sentinels = _Sentinels.of(sentinel)
        self._map = map_text(self.path)
        self._text: UInt8s = np.frombuffer(self._map, np.uint8)
        self._pieces = _cut(self._map)
        self._errors: dict[int, tuple[int, ...]] = {}  # position in the file: code and details

        count = len(self._pieces)
        rows = np.zeros(count + 1, np.int64)
        runs: list[Int64s] = [np.empty((0, 3), np.int64)] * count
        ids: list[Int64s] = [np.empty(0, np.int64)] * count

        def scan_piece(i: int) -> None:
            piece = self._pieces[i]
            code, at, rows[i + 1], runs[i], direct, others = scan(piece.text, piece.begin, piece.end)
            runs[i][:, 2] += piece.base
            ids[i] = np.concatenate((np.flatnonzero(direct), others))
            self._finish(piece, code, at)

        run_chunks(scan_piece, count, threads)
        self.feature_ids: Int64s = np.unique(np.concatenate([np.empty(0, np.int64), *ids]))
        self._piece_rows = np.cumsum(rows)
        self.documents = int(self._piece_rows[-1])
        self._place(np.concatenate([np.empty((0, 3), np.int64), *runs]), merge)
        if self._errors:  # then an earlier value may be wrong
            self._fill(np.empty(0, np.int64), np.empty((0, 0), np.float32), np.empty(0, np.int32), min(self._errors))
            self._raise_first()
        if self.documents == 0:
            raise FultrError(f"{self.path}: expected documents, found an empty file, blank lines or comments only")

    def read(self, feature_ids: ArrayLike) -> RankingData:
        """Parse the values of the given ids, which become the columns; the whole file is checked in any case."""
        ids = np.array(feature_ids, np.int64)
        features = np.zeros((self.documents, ids.size), np.float32)
        labels = np.empty(self.documents, np.int32)
        self._fill(ids, features, labels, self._text.size)
        self._raise_first()
        return RankingData(features, labels, self._offsets, self._query_ids, ids)

    def comments(self) -> list[str]:
        """What stands behind # in each document's line, in the order of `read`; empty if there is nothing anywhere."""
        found: list[str] = []
        first, target = self._run_first.tolist(), self._run_target.tolist()
        row = run = 0
        self._map.seek(len(codecs.BOM_UTF8) if self._map[:3] == codecs.BOM_UTF8 else 0)
        for raw in iter(self._map.readline, b"") if self._map.find(b"#") >= 0 else ():
            line, _, said = raw.partition(b"#")
            if not line.strip():
                continue
            found = found or [""] * self.documents
            while row >= first[run + 1]:
                run += 1
            found[target[run] + row - first[run]] = said.strip().decode(errors="replace")
            row += 1
        return found

    def _place(self, runs: Int64s, merge: bool) -> None:
        """Find the row for each run of lines of one query, and whether a query reappears."""
        queries, sizes, starts = runs.T
        new = np.flatnonzero(np.diff(queries, prepend=queries[:1] - 1)) if queries.size else np.empty(0, np.int64)
        sizes = np.add.reduceat(sizes, new) if new.size else sizes
        queries, starts = queries[new], starts[new]
        _, first, which = np.unique(queries, return_index=True, return_inverse=True)
        back = np.flatnonzero(first[which] != np.arange(new.size))
        if back.size and not merge:
            at, before = int(starts[back[0]]), int(starts[first[which[back[0]]]])
            self._errors[at] = _COMES_BACK, before, int(queries[back[0]])
        appearance = np.argsort(first)  # of the distinct queries: the order in which they first appear
        place = np.empty_like(appearance)
        place[appearance] = np.arange(appearance.size)
        order = np.argsort(place[which], kind="stable")  # of the runs: by query, then by place in the file
        targets = np.empty_like(sizes)
        targets[order] = np.cumsum(sizes[order]) - sizes[order]
        self._run_first = np.concatenate(([0], np.cumsum(sizes)))
        self._run_target = targets
        self._query_ids = np.ascontiguousarray(queries[np.sort(first)])
        totals = np.bincount(place[which], weights=sizes, minlength=first.size).astype(np.int64)
        self._offsets = np.concatenate(([0], np.cumsum(totals)))

    def _fill(self, ids: Int64s, features: Float32s, labels: Int32s, until: int) -> None:
        """Parse all lines up to the one that holds byte `until`, and record what is wrong with them."""
        limit = self._map.find(b"\n", until) + 1 or self._text.size + 1
        known = self.feature_ids
        direct = np.full(DIRECT_IDS, -1, np.int32)
        direct[known[known < DIRECT_IDS]] = np.flatnonzero(known < DIRECT_IDS)
        at = np.minimum(np.searchsorted(ids, known), max(ids.size - 1, 0))
        columns = np.where(ids[at] == known, at, -1) if ids.size else np.full(known.size, -1)

        def fill_piece(i: int) -> None:
            piece = self._pieces[i]
            end = min(piece.end, limit - piece.base)
            if end <= piece.begin:
                return
            code, at, unsure = fill(
                piece.text,
                piece.begin,
                end,
                self._piece_rows[i],
                self._run_first,
                self._run_target,
                known,
                direct,
                columns,
                self._sentinels.texts,
                self._sentinels.values,
                features,
                labels,
            )
            for row, column, begin, stop in unsure.tolist():
                value = self._sentinels.number(piece.text[begin:stop].tobytes().partition(b":")[2])
                if abs(value) >= _BEYOND_FLOAT32:
                    code, at = BAD_FEATURE, begin
                    break
                if column >= 0:
                    features[row, column] = value
            self._finish(piece, code, at)

        run_chunks(fill_piece, len(self._pieces), self._threads)

    def _finish(self, piece: _Piece, code: int, at: int) -> None:
        """Record a piece's errors, if any, and release its pages (they stay in the system's file cache)."""
        if code != FINE:
            self._errors[piece.base + at] = (code,)
        if hasattr(mmap, "MADV_DONTNEED") and piece.base == 0:
            page = piece.begin // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, page, piece.end - page)

    def _line(self, at: int) -> int:
        """The number of the line that holds byte `at`, counted from 1."""
        steps = range(0, at, _PIECE_BYTES)
        return 1 + sum(int(np.count_nonzero(self._text[i : min(i + _PIECE_BYTES, at)] == 10)) for i in steps)

    def _raise_first(self) -> None:
        if not self._errors:
            return
        at, (code, *details) = min(self._errors.items())
        place = f"{self.path}, line {self._line(at)}"
        if code == _COMES_BACK:
            raise FultrError(
                f"{place}: expected the documents of a query to be adjacent, "
                f"found query {details[1]} of line {self._line(details[0])} again (--merge allows this)"
            )
        token = _token(self._map, at)
        if any(byte < 32 or byte == 127 for byte in token):
            raise FultrError(f"{place}: expected text, found bytes {token[:_SHOWN_CHARACTERS]!r}")
        value = token.partition(b":")[2]
        why = ""
        if code == BAD_FEATURE:
            why = next((f" ({reason})" for pattern, reason in _REASONS if pattern.fullmatch(value)), "")
        text = token.decode(errors="replace")
        shown = repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "...")
        raise FultrError(f"{place}: expected {_EXPECTED[code]}, found {shown if text else 'the end of the line'}{why}")


def _token(text: mmap.mmap, at: int) -> bytes:
    """The text from byte `at` to the next blank, shortened for display."""
    found = re.match(rb"[^ \t\r\n]*", text[at : at + 4 * _SHOWN_CHARACTERS])
    assert found
    return b"" if found[0].startswith(b"#") else found[0]


def _cut(text: mmap.mmap) -> list[_Piece]:
    """Cut a file into pieces of whole lines; a last line without a newline is copied and gets one."""
    array: UInt8s = np.frombuffer(text, np.uint8)
    pieces = []
    begin = len(codecs.BOM_UTF8) if text[:3] == codecs.BOM_UTF8 else 0
    while begin < array.size:
        end = text.find(b"\n", begin + _PIECE_BYTES) + 1 or text.rfind(b"\n", begin) + 1
        if end == 0:
            pieces.append(_Piece(np.frombuffer(text[begin:] + b"\n", np.uint8), 0, array.size - begin + 1, begin))
            break
        pieces.append(_Piece(array, begin, end, 0))
        begin = end
    return pieces
