"""What the page asks and tells: requests and answers in JSON. Texts of files go as text, never as markup."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fultr.app.background import Background
from fultr.app.collector import Collector
from fultr.app.match import match
from fultr.app.ranking import CHOICES, DISPLAYED, EXPLORATION, Finder, Found, reasons
from fultr.app.readers import KINDS
from fultr.app.text import fold, shown
from fultr.app.visits import Visits
from fultr.app.words import Narrowed
from fultr.core.errors import FultrError
from fultr.device.current import read_current
from fultr.device.personal import LEAST_QUERIES

_MOST_BODY = 10_000  # bytes of a request
_MOST_QUERY = 200
_LISTED = 200  # searches, and tasks, that the privacy page lists
_READ = 100_000  # characters of a document that the page shows
Asked: TypeAlias = dict[str, Any]


class Api:
    """The functions behind the page's addresses."""

    def __init__(
        self, finder: Finder, visits: Visits, background: Background, collector: Collector | None = None
    ) -> None:
        """Answer from these; the collector is told of every search."""
        self._finder, self._visits, self._background = finder, visits, background
        self._collector = collector or Collector()

    def routes(self) -> list[Route]:
        """The addresses, relative to the page's."""
        asks: dict[str, Callable[[Asked], Any]] = {
            "search": self.search,
            "more": self.more,
            "why": self.why,
            "status": self.status,
            "privacy": self.privacy,
        }
        tells: dict[str, Callable[[Asked], Any]] = {
            "shown": self.shown,
            "open": self.open,
            "closed": self.closed,
            "forget": self.forget,
            "pause": self.pause,
            "choose": self.choose,
        }
        return [
            *(Route(f"/api/{name}", partial(_asked, function), methods=["GET"]) for name, function in asks.items()),
            *(Route(f"/api/{name}", partial(_told, function), methods=["POST"]) for name, function in tells.items()),
            Route("/api/export", self.export, methods=["GET"]),
        ]

    def search(self, asked: Asked) -> Any:
        """The best results for what was typed."""
        text = str(asked.get("q", ""))[:_MOST_QUERY]
        kinds = tuple(kind for kind in str(asked.get("kinds", "")).split(",") if kind in KINDS)
        results = self._finder.find(text, Narrowed(kinds, _number(asked, "since"), _number(asked, "until")))
        answer = {
            "id": self._visits.searched(text, results),
            "version": results.version,
            "count": len(results),
            "results": self._listed(results, 0, DISPLAYED),
        }
        self._collector.answered()
        return answer

    def more(self, asked: Asked) -> Any:
        """The results below those that are shown at first."""
        return {"results": self._listed(self._known(asked), DISPLAYED, len(self._known(asked)))}

    def _listed(self, results: Found, start: int, end: int) -> list[dict[str, Any]]:
        listed = []
        for index in range(start, min(end, len(results))):
            document = results[index].document
            piece = self._finder.shown_passage(results[index])
            folder, _, name = shown(document.path).rpartition("/")
            listed.append(
                {
                    "index": index,
                    "name": name,
                    "folder": folder,
                    "title": document.title,
                    "kind": document.kind,
                    "time": document.time,
                    "passage": piece.text,
                    "marks": piece.marks,
                }
            )
        return listed

    def why(self, asked: Asked) -> Any:
        """What the features add to a result's score."""
        results, index = self._known(asked), self._index(asked)
        return {"version": results.version, "reasons": [asdict(reason) for reason in reasons(results, index)]}

    def shown(self, told: Asked) -> Any:
        """Results have been on display for a while."""
        self._visits.shown(str(told.get("id")))
        return {}

    def open(self, told: Asked) -> Any:
        """A result is opened: on the page, or in the application that the system has for it."""
        results, index = self._known(told), self._index(told)
        document = results[index].document
        if told.get("how") == "application":
            launch(document.path)
            self._visits.opened(str(told.get("id")), index)
            return {}
        text = self._finder.index.catalogue.texts([document.id]).get(document.id)
        if text is None:
            raise FultrError("this document has just been removed from the index")
        self._visits.opened(str(told.get("id")), index)
        text = text[:_READ]
        places = match(results[index].query, fold(text)).places
        return {"text": text, "marks": [(place.start, place.end) for place in places], "cut": document.length > _READ}

    def closed(self, told: Asked) -> Any:
        """What was open on the page was closed."""
        self._visits.closed()
        return {}

    def status(self, asked: Asked) -> Any:
        """What is indexed, and what is going on."""
        catalogue = self._finder.index.catalogue
        progress = self._background.progress
        return {
            "folders": list(map(shown, catalogue.folders())),
            "documents": catalogue.counts(),
            "kinds": KINDS,
            "problem": shown(self._background.problem),
            "indexing": None if progress is None else [progress.done, progress.total],
            "paused": self._visits.paused,
        }

    def privacy(self, asked: Asked) -> Any:
        """What is logged, what left the device, and which ranker is in use."""
        log = self._finder.search.log
        stats, history = log.stats(), log.history()
        return {
            "paused": self._visits.paused,
            "folder": shown(str(self._finder.index.home.folder)),
            "impressions": stats.impressions,
            "clicks": stats.clicks,
            "bytes": stats.bytes,
            "opens": len(self._finder.index.catalogue.opens()),
            "latest": [asdict(one) for one in log.latest(_LISTED)],
            "answered": history.answered,
            "answered_today": history.answered_today,
            "refused": sum(entry.outcome in ("refused", "not a task") for entry in history.entries)
            + history.earlier_refusals,
            "history": [_entry(entry) for entry in history.entries[: -_LISTED - 1 : -1]],
            "ranker": self._ranker(),
            "personal": self._personal(),
            "exploration": EXPLORATION if self._finder.chosen("exploration") else 0.0,
        }

    def _personal(self) -> dict[str, Any]:
        search = self._finder.search
        told: dict[str, Any] = {"on": self._finder.chosen("personal"), "needed": LEAST_QUERIES, "layer": None}
        if (layer := search.layer) is not None:
            told["layer"] = vars(layer) | {"used": layer.used}
        return told

    def _ranker(self) -> dict[str, Any]:
        name = self._finder.search.version  # of the shared ranker
        told: dict[str, Any] = {"name": name, "made": None, "epsilon": None, "delta": None}
        try:
            version = read_current(self._finder.index.home.rankers)
        except FultrError:
            version = None
        if version is not None and version.name == name:
            spent = version.metrics.get("epsilon per device", {})
            told |= {"made": version.made, "epsilon": spent.get("mean"), "delta": spent.get("delta")}
        return told

    def forget(self, told: Asked) -> Any:
        """Delete what was logged of a query, or everything."""
        if told.get("all") is True:
            return {"gone": self._visits.forget()}
        if not isinstance(told.get("query"), str):
            raise FultrError("forget: expected a query, or all")
        return {"gone": self._visits.forget(told["query"])}

    def pause(self, told: Asked) -> Any:
        """Log nothing, or log again."""
        if not isinstance(told.get("paused"), bool):
            raise FultrError("pause: expected true or false")
        self._visits.pause(told["paused"])
        return {"paused": told["paused"]}

    def choose(self, told: Asked) -> Any:
        """Switch the personal layer or exploration on or off."""
        name, on = told.get("name"), told.get("on")
        if not isinstance(name, str) or name not in CHOICES or not isinstance(on, bool):
            raise FultrError(f"choose: expected one of {', '.join(CHOICES)}, and on as true or false")
        self._finder.choose(name, on)
        return {name: on}

    async def export(self, request: Request) -> Response:
        """All that is logged, as lines of JSON, to keep."""
        lines = io.StringIO()
        await run_in_threadpool(self._finder.search.log.export, lines)
        headers = {"Content-Disposition": 'attachment; filename="fultr-searches.jsonl"'}
        return Response(lines.getvalue(), media_type="application/x-ndjson", headers=headers)

    def _known(self, asked: Asked) -> Found:
        results = self._visits.results(str(asked.get("id", "")))
        if results is None:
            raise FultrError("these results are gone: search again")
        return results

    def _index(self, asked: Asked) -> int:
        try:
            index = int(asked["index"])
        except (KeyError, TypeError, ValueError, OverflowError):
            index = -1
        if not 0 <= index < len(self._known(asked)):
            raise FultrError("index: expected that of a result")
        return index


async def _asked(function: Callable[[Asked], Any], request: Request) -> Response:
    return await _answered(function, dict(request.query_params))


async def _told(function: Callable[[Asked], Any], request: Request) -> Response:
    if request.headers.get("content-type") != "application/json":
        return JSONResponse({"error": "expected JSON"}, 415)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY:
            return JSONResponse({"error": "too long"}, 413)
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        return JSONResponse({"error": "expected an object of JSON"}, 400)
    return await _answered(function, told)


async def _answered(function: Callable[[Asked], Any], asked: Asked) -> Response:
    try:
        return JSONResponse(await run_in_threadpool(function, asked))
    except FultrError as error:
        return JSONResponse({"error": shown(str(error))}, 400)


def _entry(entry: Any) -> dict[str, Any]:
    return {
        "time": entry.time,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "asked": list(entry.asked.kinds),
        "round": entry.asked.round + 1,
        "numbers": sum(part.size for part in entry.sent),
        "impressions": entry.impressions,
        "clicks": entry.clicks,
    }


def _number(asked: Asked, name: str) -> float | None:
    try:
        value = float(asked[name])
    except (KeyError, TypeError, ValueError):
        return None
    return value if abs(value) < 2**53 else None


def launch(path: str) -> None:
    """Open a file in the application that the system has for it; programs are not started."""
    if not os.path.isfile(path) or os.path.realpath(path) != path:  # noqa: PTH113
        raise FultrError("this file is no longer there")
    if _is_program(path):
        raise FultrError("this file is a program: it is shown here, but not started")
    if sys.platform == "win32":
        os.startfile(path)
        return
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    if shutil.which(opener) is None:
        raise FultrError(f"{opener} is not installed, which opens files in their applications")
    process = subprocess.Popen(
        [opener, path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True).start()  # so that nothing is left of it when it has ended


_PROGRAMS = frozenset(
    """.action .app .appimage .appinstaller .appref-ms .appx .bat .cmd .com .command .cpl .deb .desktop .dmg .exe
    .fileloc .flatpak .flatpakref .flatpakrepo .gadget .hta .inetloc .inf .jar .jnlp .lnk .mpkg .msc .msi .msix
    .msp .mst .pif .pkg .ps1 .pyw .pyz .reg .rpm .run .scf .scpt .scptd .scr .sct .settingcontent-ms .snap
    .terminal .tool .url .vb .vbe .vbs .webloc .website .workflow .ws .wsc .wsf .wsh .xll""".split()  # noqa: SIM905
)
"""What some system starts, or installs, or follows elsewhere: a file can have come from another one."""

_PROGRAMS_OF_WINDOWS = frozenset((".js", ".jse", ".py"))  # text elsewhere


def _is_program(path: str) -> bool:
    """Would opening a file run it? On Windows its ending decides, elsewhere its permissions."""
    ending = os.path.splitext(path.lower())[1]  # noqa: PTH122
    if os.name == "posix":
        return ending in _PROGRAMS or os.access(path, os.X_OK)
    listed = os.environ.get("PATHEXT", "").lower().split(";")
    return ending in (*_PROGRAMS, *_PROGRAMS_OF_WINDOWS, *listed)
