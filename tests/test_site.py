"""The documentation site: it builds without a warning, its links lead somewhere, and it loads nothing from afar."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import fultr

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.process


class Links(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif "href" in given and tag != "base" and given.get("rel") not in ("prev", "next", "canonical"):
            self.loaded.add(given["href"])
        self.loaded |= {given[name] for name in ("src", "srcset", "poster", "data") if name in given}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built by a command whose warnings are errors."""
    made = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "FULTR_CACHE": str(tmp_path_factory.mktemp("cache"))}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", made],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Links]:
    return {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_all_links_lead_somewhere(site, pages):
    lost = []
    for path, page in pages.items():
        for link in page.links | page.loaded:
            if re.match(r"https://|mailto:|data:|javascript:", link) or path.name == "404.html":
                continue
            target, _, anchor = link.partition("#")
            there = (path.parent / unquote(target)).resolve() if target else path
            known = pages[there].anchors if there in pages else {""}
            if not there.is_file() or (unquote(anchor) not in known and there in pages):
                lost.append((path.relative_to(site).as_posix(), link))
    assert lost == []


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for path, page in pages.items():
        assert not [what for what in page.loaded if re.match(r"(https?:)?//", what)], path
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_every_page_of_the_repository_and_every_public_name_is_there(site, pages):
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.with_suffix(".html").name).is_file()
    for name in ("index", "contributing", "changelog"):
        assert (site / f"{name}.html").is_file()
    named = set().union(*(page.anchors for path, page in pages.items() if path.parent.name == "reference"))
    assert {name.rpartition(".")[2] for name in named if name.startswith("fultr.")} >= set(fultr.__all__)
    reference = "".join(path.read_text(encoding="utf-8") for path in (site / "reference").iterdir())
    assert "&gt;&gt;&gt;" in reference  # examples are code,
    assert "<blockquote>" not in reference  # not quotations of quotations


def test_notebooks_are_committed_without_results_and_shown_with_them(site):
    """They ran when the site was built, or it would not have been."""
    books = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    assert [book.stem for book in books] == ["click-log", "estimator", "federation", "paper"]
    for book in books:
        cells = json.loads(book.read_text(encoding="utf-8"))["cells"]
        assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")], book.name
        assert 'class="output"' in (site / "notebooks" / f"{book.stem}.html").read_text(encoding="utf-8")
    assert (site / "notebooks" / "paper-2.png").is_file()


def test_search_finds_when_the_site_is_opened_from_the_disk(site, tmp_path):
    from help.driver import browser

    with browser(tmp_path) as page:
        page.window(1280, 900)
        page.goto((site / "glossary.html").as_uri())
        page.wait("document.querySelector('iframe') !== null")  # in the place of a worker
        page.click("label[for=__search]")
        page.js("document.querySelector('[data-md-component=search-query]').focus()")
        page.type("harvesting")
        page.wait("/matching/.test(document.querySelector('[data-md-component=search-result]').innerText)", 60)
        page.window(390, 800)
        for name in ("index", "glossary", "reference/clicks", "experiments"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name
        assert page.said == []
