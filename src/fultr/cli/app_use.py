"""How the people of the demonstration use the page: through its interface, and some of them in a real browser."""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

import numpy as np
import uvicorn

from fultr.app.background import Background
from fultr.app.ranking import DISPLAYED, Finder, Found, normal
from fultr.app.server import application
from fultr.app.visits import QUICK, Visits
from fultr.cli.app_people import Person
from fultr.cli.chromium import Page, browser
from fultr.cli.console import Done
from fultr.core.errors import FultrError

IN_BROWSER = 30
"""Searches that somebody makes in a browser before the others."""

_AGAIN = 0.3  # the share of searches for something that was looked for before
_SURE, _NOISE = 0.95, 0.08  # clicks on what is looked for, and on anything else, when it is examined
_TOKEN = "demo"
_WAIT = 30.0  # seconds for what the page does at once


class _Clock:
    """The page's clock, which is moved on instead of waiting."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class _Watched(Visits):
    """Visits that remember what the page asked and told last."""

    def __init__(self, finder: Finder, clock: Callable[[], float]) -> None:
        super().__init__(finder, clock)
        self.found: dict[str, str] = {}  # the names of results, by query: what is typed first may be answered last
        self.told: list[str] = []

    def searched(self, text: str, results: Found) -> str:
        name = super().searched(text, results)
        self.found[normal(text)] = name
        return name

    def shown(self, name: str) -> None:
        super().shown(name)
        self.told.append("shown")

    def opened(self, name: str, index: int) -> None:
        super().opened(name, index)
        self.told.append("opened")

    def closed(self) -> None:
        super().closed()
        self.told.append("closed")


class _Hand(Protocol):
    """What somebody does with the page."""

    def search(self, query: str) -> str:
        """Type a query, and look at the results: their name."""

    def open(self, index: int) -> None:
        """Open a result."""

    def close(self) -> None:
        """Close it."""

    def rest(self) -> None:
        """Look on without opening anything."""


class _Interface:
    """Asks and tells as the page does."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection, self._id = connection, ""

    def search(self, query: str) -> str:
        self._id = str(self._answer("GET", f"search?{urlencode({'q': f'{query} '})}", None)["id"])
        return self._id

    def open(self, index: int) -> None:
        self._tell("open", id=self._id, index=index)

    def close(self) -> None:
        self._tell("closed")

    def rest(self) -> None:
        self._tell("shown", id=self._id)

    def _tell(self, name: str, **what: object) -> None:
        self._answer("POST", name, json.dumps(what))

    def _answer(self, method: str, path: str, body: str | None) -> dict[str, Any]:
        self._connection.request(method, f"/{_TOKEN}/api/{path}", body, {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(self._connection.getresponse().read())
        return answer


class _Window:
    """Types, clicks and presses keys on the page, in a browser."""

    def __init__(self, page: Page, visits: _Watched, port: int) -> None:
        self._page, self._visits, self._shown = page, visits, ""
        page.window(1280, 800)
        page.goto(f"http://127.0.0.1:{port}/{_TOKEN}/")

    def search(self, query: str) -> str:
        self._visits.found.clear()
        self._page.js("document.getElementById('query').focus(), document.getElementById('query').select()")
        self._page.type(query)
        self._until(lambda: normal(query) in self._visits.found)
        name = self._shown = self._visits.found[normal(query)]
        count = min(DISPLAYED, len(self._visits.results(name) or []))
        self._page.js("new Promise((done) => setTimeout(done, 50))")  # the answer is put on display
        self._page.wait(f"document.querySelectorAll('#results [role=option]').length === {count}")
        return name

    def open(self, index: int) -> None:
        self._does("opened", lambda: self._page.click(f"#result-{index}"))

    def close(self) -> None:
        self._does("closed", lambda: self._page.press("Escape"))

    def rest(self) -> None:
        if self._visits.results(self._shown):
            self._does("shown", lambda: None)

    def _does(self, what: str, act: Callable[[], None]) -> None:
        before = self._visits.told.count(what)
        act()
        self._until(lambda: self._visits.told.count(what) > before)

    def _until(self, there: Callable[[], bool]) -> None:
        until = time.monotonic() + _WAIT
        while not there():
            if time.monotonic() > until:
                raise FultrError("the demonstration: the page in the browser did not do what it should")
            time.sleep(0.01)


@contextmanager
def _served(finder: Finder, visits: Visits) -> Iterator[int]:
    """The port of the page, served as it always is, but for the clock."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        app = application(finder, visits, Background(finder.index.home), _TOKEN, port)
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", lifespan="on", ws="none", timeout_graceful_shutdown=2)
        )
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join()


def use(
    finder: Finder, person: Person, searches: int, random: np.random.Generator, done: Done, chromium: str | None = None
) -> None:
    """Search, look at results from the top, open what looks right, and stay or come back at once.

    Args:
        finder: over the person's files.
        person: who searches.
        searches: how many.
        random: what the person does.
        done: called after each search.
        chromium: the browser for the first `IN_BROWSER` of them; None: all go through the page's interface.
    """
    clock = _Clock()
    visits = _Watched(finder, clock)
    before: list[tuple[int, str]] = []
    with _served(finder, visits) as port:
        first = min(searches, IN_BROWSER) if chromium else 0
        with ExitStack() as stack:
            if chromium:
                profile = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
                page = stack.enter_context(browser(chromium, Path(profile)))
                window = _Window(page, visits, port)
                for _ in range(first):
                    _search(window, visits, clock, person, before, random)
                    done()
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            hand = _Interface(connection)
            for _ in range(searches - first):
                _search(hand, visits, clock, person, before, random)
                done()


def _search(
    hand: _Hand,
    visits: Visits,
    clock: _Clock,
    person: Person,
    before: list[tuple[int, str]],
    random: np.random.Generator,
) -> None:
    """One search, for something new or for something that was looked for before."""
    if before and random.random() < _AGAIN:
        wanted, query = before[random.integers(len(before))]
    else:
        item = person.target(random)
        wanted, query = item.document, person.query(item, random)
    before.append((wanted, query))
    opened = False
    for index, candidate in enumerate((visits.results(hand.search(query)) or [])[:DISPLAYED]):
        id_ = candidate.document.id
        examined = random.random() < (1 / (index + 1)) ** person.gamma
        wants = random.random() < (_SURE if id_ == wanted else _NOISE)
        if examined and wants:
            hand.open(index)
            stays = id_ == wanted or random.random() < 0.5
            clock.now += QUICK * (3.0 if stays else 0.3)
            hand.close()
            opened = opened or stays
    if not opened:
        hand.rest()
