"""A real browser that a test types and clicks in, over Chromium's own protocol."""

from __future__ import annotations

import base64
import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from help.browser import find_chromium
from websockets.sync.client import connect

FLAGS = """
    --headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update
    --disable-sync --disable-dev-shm-usage --remote-debugging-port=0 --hide-scrollbars --force-color-profile=srgb
"""
KEYS = {"ArrowDown": 40, "ArrowUp": 38, "Enter": 13, "Escape": 27, "Tab": 9, "/": 191}


class Page:
    """A tab. What its console has to say against the page is in `said`."""

    def __init__(self, socket: Any) -> None:
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
            told = json.loads(self._socket.recv(timeout=60))
            if told.get("method") == "Page.javascriptDialogOpening":
                yes = {"id": next(self._numbers), "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                self._socket.send(json.dumps(yes | {"sessionId": self._session}))
            if told.get("method") == "Runtime.exceptionThrown":
                self.said.append(json.dumps(told["params"]["exceptionDetails"])[:500])
            if told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.said.append(json.dumps(told["params"]["entry"])[:500])
            if told.get("id") == number:
                assert "error" not in told, told["error"]
                return told["result"]

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
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, expression: str, seconds: float = 20) -> None:
        """Until an expression is true."""
        until = time.monotonic() + seconds
        while not self.js(expression):
            assert time.monotonic() < until, f"{expression} did not become true"
            time.sleep(0.03)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        for sign in text:
            self._send("Input.insertText", text=sign)

    def press(self, key: str) -> None:
        """A key."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
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
def browser(profile: Path) -> Iterator[Page]:
    """A browser with one tab."""
    process = subprocess.Popen(
        [find_chromium(), *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        address = next(found[1] for line in process.stderr if (found := re.search(r"listening on (ws://\S+)", line)))
        with connect(address, max_size=None) as socket:
            yield Page(socket)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
