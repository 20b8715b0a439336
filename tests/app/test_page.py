"""The page in a real browser: typing, keyboard, both widths, forgetting; hostile names and contents are text."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
from help.app import finder_over, served
from help.driver import browser

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
