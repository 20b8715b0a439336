"""A real browser, for tests of pages."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

INSTALL = (("apt-get", "update"), ("apt-get", "install", "-y", "--no-install-recommends", "chromium"))
FLAGS = """
    --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update
    --disable-sync --disable-dev-shm-usage --enable-logging=stderr --window-size=1400,1000 --virtual-time-budget=5000
"""
# In the page: collects errors from the start.
BEGIN = """<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
console.error = (...what) => errors.push(what.join(" "));
const excess = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
</script>"""
AROUND = """<!doctype html><pre id="found"></pre><script>
addEventListener("message", (event) => { document.getElementById("found").textContent = event.data; });
</script><iframe src="page.html" style="width: %dpx; height: 900px; border: 0"></iframe>"""


def find_chromium() -> str:
    """The browser, installed if that is possible; without it, the test is skipped."""

    def found() -> str | None:
        return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

    if not found() and shutil.which("apt-get") and os.name == "posix" and os.geteuid() == 0:
        for command in INSTALL:
            subprocess.run(command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, capture_output=True)
    path = found()
    if path is None:
        pytest.skip("there is no Chromium, and it cannot be installed: not root, no apt-get, or no network")
    return path


def write_watched(page: Path, folder: Path, script: str) -> None:
    """Write a page with a script that ends with parent.postMessage(JSON) when the page is loaded, as page.html."""
    text = page.read_text(encoding="utf-8")
    watched = text.replace("<head>", f"<head>{BEGIN}", 1).replace("</body>", f"<script>{script}</script></body>")
    (folder / "page.html").write_text(watched, encoding="utf-8")


def seen_in_browser(folder: Path, width: int, profile: Path) -> dict[str, Any]:
    """What the script of folder/page.html posts in a window so wide, and as "said" what the console had to say."""
    around = folder / f"around-{width}.html"
    around.write_text(AROUND % width, encoding="utf-8")
    command = [find_chromium(), *FLAGS.split(), f"--user-data-dir={profile}", "--dump-dom", around.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    result = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert result, done.stderr[-2000:]
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return {**json.loads(html.unescape(result[1])), "asked": width, "said": said}
