"""The log of the Yandex relevance prediction challenge (Internet Mathematics 2011, at WSDM 2012).

Tab-separated lines in order of time: a query's page, `session time Q query region url1 ... url10`, or a click on a
result of the session's page, `session time C url`. There are no users: a session is one person's, and stands for one.
A query is asked in a region: both together are the query here.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from fultr.clicks.file_tables import FileTable
from fultr.clicks.published.pages import PagesRead
from fultr.core.errors import FultrError

_ELSEWHERE = "clicks on what the session's pages did not show"


def is_yandex(cells: list[str]) -> bool:
    """Does a line look like one of this log?

    >>> is_yandex("10 0 Q 174 0 1625 1627".split()), is_yandex("a x,y 0,1".split())
    (True, False)
    """
    if len(cells) < 4 or cells[2] not in ("Q", "C"):
        return False
    return cells[1].strip().isdigit() and (cells[2] == "C" or len(cells) > 5)


def read_yandex(path: Path, text: mmap.mmap) -> FileTable:
    """The pages of such a log."""
    pages = PagesRead(path)
    session = ""
    own: list[tuple[list[str], int]] = []  # of the session: documents of each page, and where its clicks begin
    text.seek(0)
    for number, raw in enumerate(iter(text.readline, b""), 1):
        try:
            cells = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            raise FultrError(f"{path}, line {number}: expected UTF-8 text, found the bytes {raw[:8]!r}") from None
        if cells == [""]:
            continue
        kind = cells[2] if len(cells) > 3 else ""
        if kind not in ("Q", "C") or (kind == "Q" and len(cells) < 6):
            found = "\t".join(cells)[:60]
            raise FultrError(
                f"{path}, line {number}: expected session, time, Q, query, region and results, or session, time, C and "
                f"result, with tabs between them; found {found!r}"
            )
        if cells[0] != session:
            session, own = cells[0], []
        if kind == "Q":
            shown = [cell for cell in cells[5:] if cell]
            if shown:
                own.append((shown, pages.add(number, f"{cells[3]}_{cells[4]}", session, shown)))
            else:
                pages.leave_out("pages without results")
            continue
        where = next(((begin, at) for at, begin in reversed(own) if cells[3] in at), None)
        if where is None:
            pages.leave_out(_ELSEWHERE)
        else:
            pages.clicks[where[0] + where[1].index(cells[3])] = 1
    return pages.table()
