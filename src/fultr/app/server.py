"""The page's server: on the loopback interface, for whoever has the address with its token, and for no other page.

Every address begins with a random token. Whoever does not know it (another user of the machine, a page of another
origin) is told nothing, not even that there is a page. Requests with another host name (a name that was made to point
here) or from another origin are refused even with the token. The page loads nothing from elsewhere, and may not.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fultr.app.api import Api
from fultr.app.background import Background
from fultr.app.collector import Collector
from fultr.app.home import Home
from fultr.app.ranking import Finder
from fultr.app.visits import Visits
from fultr.core.errors import FultrError

_logger = logging.getLogger("fultr.app")
_PERSONALISE = 60.0  # seconds from one look whether there is more to learn the personal layer from to the next
_STATIC = {
    "": ("index.html", "text/html; charset=utf-8"),
    "privacy": ("privacy.html", "text/html; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "privacy.js": ("privacy.js", "text/javascript; charset=utf-8"),
    "shared.js": ("shared.js", "text/javascript; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class _Guard:
    """Lets through what comes from the page itself, with the token; to anything else there is nothing here."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            allowed = self._allowed(Request(scope))
            answer: ASGIApp = self._app if allowed else PlainTextResponse("Not Found", 404)
            await answer(scope, receive, _with_headers(send))

    def _allowed(self, request: Request) -> bool:
        first = str(request.scope.get("path", "")).split("/")[1:2]  # there may be none
        if not hmac.compare_digest("".join(first).encode("utf-8", "replace"), self._token.encode()):
            return False
        host = request.headers.get("host", "")
        if host not in self._hosts or request.headers.get("origin", f"http://{host}") != f"http://{host}":
            return False
        opens_page = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
        return opens_page or request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _with_headers(send: Send) -> Send:
    async def sending(message: object) -> None:
        if isinstance(message, dict) and message["type"] == "http.response.start":
            message["headers"] = [
                *message.get("headers", ()), *((name.encode(), value.encode()) for name, value in _HEADERS.items())
            ]  # fmt: skip
        await send(message)  # type: ignore[arg-type]

    return sending


def application(finder: Finder, visits: Visits, background: Background, token: str, port: int) -> ASGIApp:
    """The page and what it asks for, behind its token."""

    def static(name: str, kind: str) -> Callable[[Request], Response]:
        content = (files("fultr.app") / "static" / name).read_bytes()
        return lambda request: Response(content, media_type=kind)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async def settle() -> None:
            while True:
                await asyncio.sleep(1)
                await asyncio.to_thread(visits.settle)
                await asyncio.to_thread(collector.look)

        async def personalise() -> None:
            while True:
                try:
                    await asyncio.to_thread(finder.search.personalise)
                except FultrError as error:  # a full disk, a damaged log: searching goes on
                    _logger.warning("the personal layer was not learnt: %s", error)
                await asyncio.sleep(_PERSONALISE)

        tasks = [asyncio.create_task(settle()), asyncio.create_task(personalise())]
        with collector.at_work():
            yield
        for task in tasks:
            task.cancel()
        visits.finish()

    collector = Collector()
    pages = [Route(f"/{path}", static(name, kind), methods=["GET"]) for path, (name, kind) in _STATIC.items()]
    routes = [Mount(f"/{token}", routes=[*pages, *Api(finder, visits, background, collector).routes()])]
    return _Guard(Starlette(routes=routes, lifespan=lifespan), token, port)


def serve(home: Home, *, port: int = 0, browser: bool = True, on_ready: Callable[[str], None] = print) -> None:
    """Serve the page until interrupted, and keep the index up to date meanwhile.

    Args:
        home: the application's folder.
        port: of the loopback interface; 0: any that is free.
        browser: open the page in the user's browser.
        on_ready: told the page's address.
    """
    with _listening(port) as listener, Finder(home) as finder:
        number, token = listener.getsockname()[1], secrets.token_urlsafe(24)
        visits, background = Visits(finder), Background(home)
        app = application(finder, visits, background, token, number)
        address = f"http://127.0.0.1:{number}/{token}/"
        entrance = _entrance(home.folder / "open.html", address)
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="on",ws="none",
                           timeout_graceful_shutdown=2)
        )  # fmt: skip
        background.start()
        try:
            on_ready(address)
            if browser:
                webbrowser.open(entrance.as_uri())
            server.run(sockets=[listener])
        finally:
            background.stop()
            with suppress(OSError):
                entrance.unlink()


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # from now on a browser may ask, and waits
    except OSError as error:
        listener.close()
        raise FultrError(f"port {port}: cannot be used: {error.strerror}") from None
    return listener


def _entrance(file: Path, address: str) -> Path:
    """A file that leads to the page, for its user alone: the token is then on no command line that others can list."""
    with suppress(OSError):
        file.unlink()
    with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as stream:
        stream.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}"><title>fultr</title>')
    return file
