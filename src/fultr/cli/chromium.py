"""A real browser to type and click in, over Chromium's own protocol: for demonstrations and tests of pages.

It needs Chromium, and the package websockets; neither comes with fultr.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fultr.core.errors import FultrError

_FLAGS = """
    --headless=new --disable-gpu --no-first-run --disable-background-networking --disable-component-update
    --disable-sync --disable-dev-shm-usage --remote-debugging-port=0 --hide-scrollbars --force-color-profile=srgb
"""
_KEYS = {"ArrowDown": 40, "ArrowUp": 38, "Enter": 13, "Escape": 27, "Tab": 9, "/": 191}
_WAIT = 60.0  # seconds for an answer of the browser


def find_chromium() -> str | None:
    """The browser's program, if it is installed and can be driven."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return found if find_spec("websockets") else None


class Page:
    """A tab. What its console has to say against the page is in `said`."""

    def __init__(self, socket: Any) -> None:
        """Open one, over a connection to the browser."""
        self.said: list[str] = []
        self._socket, self._numbers, self._session = socket, itertools.count(1), ""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._send(f"{domain}.enable")

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while True:
            told = json.loads(self._socket.recv(timeout=_WAIT))
            if told.get("method") == "Page.javascriptDialogOpening":
                yes = {"id": next(self._numbers), "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                self._socket.send(json.dumps(yes | {"sessionId": self._session}))
            if told.get("method") == "Runtime.exceptionThrown":
                self.said.append(json.dumps(told["params"]["exceptionDetails"])[:500])
            if told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.said.append(json.dumps(told["params"]["entry"])[:500])
            if told.get("id") == number:
                if "error" in told:
                    raise FultrError(f"the browser: {method}: {told['error']}")
                result: dict[str, Any] = told["result"]
                return result

    def window(self, width: int, height: int, dark: bool = False) -> None:
        """So wide and high, in light or dark colours."""
        self._send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                   mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])

    def goto(self, url: str, arrives: str = "") -> None:
        """Open an address, and wait until it is loaded, or the one that it leads to."""
        self._send("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(arrives or url)}")

    def js(self, expression: str) -> Any:
        """The value of an expression, awaited."""
        told = self._send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise FultrError(f"the browser: {expression}: {json.dumps(told['exceptionDetails'])[:500]}")
        return told["result"].get("value")

    def wait(self, expression: str, seconds: float = 20) -> None:
        """Until an expression is true."""
        until = time.monotonic() + seconds
        while not self.js(expression):
            if time.monotonic() > until:
                raise FultrError(f"the browser: {expression} did not become true")
            time.sleep(0.03)

    def type(self, text: str) -> None:
        """Into what has the focus, a letter at a time."""
        for sign in text:
            self._send("Input.dispatchKeyEvent", type="keyDown", key=sign, text=sign)
            self._send("Input.dispatchKeyEvent", type="keyUp", key=sign)

    def press(self, key: str) -> None:
        """A key."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"Enter": "\r", "/": "/"}.get(key)
        self._send("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        self._send("Input.dispatchKeyEvent", type="keyUp", **about)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of an element."""
        self.wait(f"document.querySelector({json.dumps(selector)}) !== null")
        x, y = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path) -> None:
        """What it looks like, as a PNG file."""
        path.write_bytes(base64.b64decode(self._send("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Page]:
    """A browser with one tab, which ends with the block.

    Args:
        program: as `find_chromium` has it.
        profile: a folder of its own.
    """
    from websockets.sync.client import connect

    root = os.name == "posix" and os.geteuid() == 0
    process = subprocess.Popen(
        [program, *_FLAGS.split(), *(["--no-sandbox"] if root else []), f"--user-data-dir={profile}", "about:blank"],
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with connect(_address(process, profile / "DevToolsActivePort"), max_size=None) as socket:
            yield Page(socket)
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], told: Path) -> str:
    """Where the browser listens: it writes a file with the port and the path."""
    until = time.monotonic() + _WAIT
    while time.monotonic() < until and process.poll() is None:
        lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise FultrError("the browser: did not start")
