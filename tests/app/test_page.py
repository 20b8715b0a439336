"""The page in a real browser: typing, keyboard, both widths, forgetting; hostile names and contents are text."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError

import numpy as np
import pytest
from help.app import finder_over, served
from help.driver import browser

from fultr.app.features import FEATURES
from fultr.device.log import DeviceLog

pytestmark = [pytest.mark.process, pytest.mark.slow]
HOSTILE = "<img src=x onerror=alert(1)> \u202etxt.exe.txt"
TEXTS = {
    "notes/pizza dough.md": "# Pizza dough\n\nFlour, water, salt and time.",
    "notes/oven.txt": "The oven for pizza must be hot.",
    "work/plan.py": "pizza = 'deliver'",
    HOSTILE: "<script>document.title = 'hacked'</script> pizza & <b>bold</b>",
}
OPTIONS = "document.querySelectorAll('#results [role=option]')"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    with finder_over(folder, TEXTS):
        pass
    return folder


@pytest.fixture(scope="module")
def address(place):
    with served(place) as url:
        yield url


@pytest.fixture(scope="module")
def page(address, place, tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
        assert opened.said == []


def latest(place: Path) -> list[tuple[str | None, tuple[int, ...]]]:
    with DeviceLog.open(place / "home" / "device.db", retention=None) as log:
        return [(one.text, one.clicks) for one in log.latest(10)]


@pytest.mark.parametrize("width", [1280, 390])
def test_typing_reading_and_going_back_by_keyboard_alone(page, address, place, width):
    page.window(width, 800)
    page.goto(address)
    page.wait("document.activeElement.id === 'query'")
    page.type("pizza")
    page.wait(f"{OPTIONS}.length === 4")
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    page.press("ArrowDown")
    page.press("ArrowDown")
    chosen = page.js("document.getElementById('query').getAttribute('aria-activedescendant')")
    assert chosen == page.js("document.querySelector('[aria-selected=true]').id") == "result-1"
    name = page.js("document.querySelector('[aria-selected=true] .name').textContent")
    page.press("Enter")
    page.wait("document.querySelector('#text mark') !== null")
    assert page.js("document.getElementById('reader-name').textContent") == name
    assert page.js("document.activeElement.id") == "reader"
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    page.click("#why")
    page.wait("document.querySelectorAll('#reasons li').length > 0")
    page.press("Escape")
    page.wait("document.getElementById('reader').hidden && document.activeElement.id === 'query'")
    assert all(not clicks for _, clicks in latest(place))  # back at once
    page.js("document.getElementById('close').focus(); document.activeElement.blur()")
    page.press("/")
    assert page.js("document.activeElement.id === 'query' && query.value") == "pizza"
    page.press("Escape")
    page.wait(f"{OPTIONS}.length === 0 && !document.getElementById('welcome').hidden")


def test_a_click_is_logged_once_and_can_be_forgotten(page, address, place):
    page.window(1280, 800)
    page.goto(address + "privacy")
    page.wait("document.getElementById('logged-words').textContent !== ''")
    if page.js("!document.getElementById('forget').disabled"):
        page.click("#forget")
    page.wait("document.getElementById('logged-words').textContent === 'Nothing is logged.'")
    page.goto(address)
    page.type("oven")
    page.wait(f"{OPTIONS}.length === 1")
    page.click("#result-0")
    page.wait("document.querySelector('#text mark') !== null")
    until = time.monotonic() + 20
    while latest(place) != [("oven", (1,))] and time.monotonic() < until:
        time.sleep(0.2)
    page.click("#result-0")
    page.click("#close")
    page.click("a[href=privacy]")
    page.wait("document.querySelectorAll('.searches li').length === 1")
    assert latest(place) == [("oven", (1,))]
    assert "Nothing has left" in page.js("document.getElementById('left-words').textContent")
    page.click("#pause")
    page.wait("document.getElementById('pause').textContent === 'Resume logging'")
    page.click("#pause")
    page.wait("document.getElementById('pause').textContent === 'Pause logging'")
    page.click(".searches button")
    page.wait("document.querySelectorAll('.searches li').length === 0")
    assert latest(place) == []
    page.window(390, 800)
    assert page.js("document.documentElement.scrollWidth <= innerWidth")


def test_what_is_learnt_for_one_alone_and_exploration_are_switched_on_the_page(page, address, place):
    page.window(1280, 900)
    page.goto(address + "privacy")
    page.wait("document.getElementById('personal').textContent.includes('too little to learn from: 0 of 30')")
    for name, on in (("personal", True), ("exploration", False)):
        texts = ["Switch off", "Switch on"] if on else ["Switch on", "Switch off"]
        for before, after in (texts, texts[::-1]):
            page.wait(f"document.getElementById('{name}-switch').textContent === '{before}'")
            page.click(f"#{name}-switch")
            page.wait(f"document.getElementById('{name}-switch').textContent === '{after}'")
            off = page.js("document.getElementById('personal').textContent").endswith("Switched off.")
            assert off == (name == "personal" and after == "Switch on")


def test_hostile_names_and_contents_are_text(page, address):
    page.window(1280, 800)
    page.goto(address)
    page.type("bold")
    page.wait(f"{OPTIONS}.length === 1")
    shown = page.js("document.querySelector('#results').textContent")
    assert "<img src=x onerror=alert(1)>" in shown
    assert "\u202e" not in shown
    assert "</script> pizza & <b>bold</b>" in shown
    page.press("Enter")
    page.wait("document.querySelector('#text mark') !== null")
    assert page.js("document.querySelectorAll('main img, main script, main b').length") == 0
    assert page.js("document.title") == "Search your files"
    page.press("Escape")


def test_kinds_and_dates_narrow_the_results(page, address):
    page.goto(address)
    page.type("pizza")
    page.wait(f"{OPTIONS}.length === 4")
    page.click("[data-kind=code]")
    page.wait(f"{OPTIONS}.length === 1")
    assert page.js("document.querySelector('[data-kind=code]').getAttribute('aria-pressed')") == "true"
    page.click("[data-kind=code]")
    page.wait(f"{OPTIONS}.length === 4")


def test_every_control_has_a_name(page, address):
    for path in ("", "privacy"):
        page.goto(address + path)
        nameless = page.js(
            "[...document.querySelectorAll('a, button, input, select')].filter((e) => !(e.textContent.trim() "
            "|| e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML)"
        )
        assert nameless == []
        assert page.js("document.documentElement.lang") == "en"


def test_changed_files_are_found_without_a_restart(page, address, place):
    time.sleep(1)
    (place / "files" / "notes" / "calzone.md").write_text("# Calzone\nfolded")
    page.goto(address)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        page.js("query.value = ''; query.focus()")
        page.type("calzone")
        time.sleep(0.5)
        if page.js(f"{OPTIONS}.length") == 1:
            break
    assert page.js(f"{OPTIONS}.length") == 1


def test_the_page_is_on_the_loopback_interface_for_whoever_has_its_address(page, address, place):
    assert address.startswith("http://127.0.0.1:")
    entrance = place / "home" / "open.html"
    assert stat.S_IMODE(entrance.stat().st_mode) == 0o600
    page.goto(entrance.as_uri(), arrives=address)
    page.wait("document.getElementById('welcome-text').textContent !== ''")
    with pytest.raises(HTTPError, match="404"):
        urllib.request.urlopen(address.rsplit("/", 2)[0] + "/")


class _Evil(BaseHTTPRequestHandler):
    """A page of another origin in the same browser, which knows even the address of the search page."""

    target = ""

    def do_GET(self):
        script = """
            const tried = async (what) => { try { return String(await what()); } catch (error) { return "failed"; } };
            const loaded = (tag, attribute) => new Promise((done) => {
              const made = document.createElement(tag);
              made.onload = () => done(tag === "iframe" ? made.contentDocument === null ? "closed" : "open" : "loaded");
              made.onerror = () => done("failed");
              made[attribute] = TARGET + (tag === "script" ? "app.js" : tag === "img" ? "icon.svg" : "");
              document.body.append(made);
            });
            const forget = { method: "POST", body: '{"all": true}' };
            const json = { ...forget, headers: { "Content-Type": "application/json" } };
            globalThis.found = Promise.all([
              tried(async () => (await fetch(TARGET + "api/privacy")).status),
              tried(async () => (await fetch(TARGET + "api/forget", json)).status),
              tried(async () => (await fetch(TARGET + "api/forget", { ...forget, mode: "no-cors" })).type),
              loaded("script", "src"), loaded("img", "src"), loaded("iframe", "src"),
            ]);
        """
        body = f"<!doctype html><body><script>{script.replace('TARGET', json.dumps(self.target))}</script>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_page_of_another_origin_gets_and_changes_nothing(address, place, tmp_path):
    """Even one that knows the token: nothing is read, run, framed or forgotten."""
    with DeviceLog.open(place / "home" / "device.db", retention=None) as log:
        log.log_impression("kept", np.zeros((1, len(FEATURES))))
        before = log.stats().impressions
    handler = type("Evil", (_Evil,), {"target": address})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, browser(tmp_path) as page:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.goto(f"http://localhost:{server.server_address[1]}/")
        found = page.js("globalThis.found")
        server.shutdown()
    assert found == ["failed", "failed", "failed", "failed", "failed", "closed"]
    with DeviceLog.open(place / "home" / "device.db", retention=None) as log:
        assert log.stats().impressions == before


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_gets_nothing(address, place):
    """A program of another user lists processes, reads files and asks at the port."""
    attack = """
import os, pathlib, sys, urllib.request, urllib.error
home, port, token = sys.argv[1:]
found = []
for path in (home, home + "/open.html", home + "/device.db", home + "/catalogue.db"):
    try:
        found.append(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read())
    except OSError as error:
        pass
for line in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        found += [line] if token.encode() in line.read_bytes() and line.parent.name != str(os.getpid()) else []
    except OSError:
        pass
try:
    found.append(urllib.request.urlopen(f"http://127.0.0.1:{port}/").read())
except urllib.error.HTTPError as error:
    found += [] if (error.code, error.read()) == (404, b"Not Found") else [error]
print(found)
"""
    port, token = address.split(":")[2].split("/")[:2]
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    told = subprocess.run(
        [python, "-c", attack, str(place / "home"), port, token],
        capture_output=True, text=True, check=True, user=65534, group=65534, extra_groups=[], env={}, cwd="/",
    )  # fmt: skip
    assert told.stdout.strip() == "[]"


def test_two_at_once_search_and_log_in_the_same_folder(place, address):
    with served(place) as second:
        for url, query in ((address, "dough"), (second, "deliver")):
            with urllib.request.urlopen(f"{url}api/search?q={query}") as answer:
                id_ = json.loads(answer.read())["id"]
            told = urllib.request.Request(
                f"{url}api/shown", json.dumps({"id": id_}).encode(), {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(told).close()
    assert [text for text, _ in latest(place)][:2] == ["deliver", "dough"]
    with urllib.request.urlopen(f"{address}api/status") as answer:
        assert answer.status == 200


def test_killed_it_leaves_a_log_and_an_index_that_open(tmp_path):
    with finder_over(tmp_path, {"a.txt": "pizza"}):
        pass
    command = [sys.executable, "-m", "fultr", "search", "--dir", str(tmp_path / "home"), "--no-browser"]
    for _ in range(2):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        url = process.stderr.readline().strip()
        with urllib.request.urlopen(f"{url}api/search?q=pizza") as answer:
            assert b'"count":1' in answer.read()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    assert latest(tmp_path) == []
