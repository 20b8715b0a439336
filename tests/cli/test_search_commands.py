"""The commands `fultr search ...`: what they print, and the people of the demonstration."""

from __future__ import annotations

import json

import numpy as np
import pytest
from help.browser import find_chromium

from fultr.app.home import Home
from fultr.app.ranking import CANDIDATES, DISPLAYED, Finder
from fultr.cli import app_people, app_use
from fultr.cli.main import main

pytestmark = pytest.mark.process


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["search", *arguments])
    told = capsys.readouterr()
    return ended.value.code, told.out, told.err


def test_index_find_status_and_remove(tmp_path, capsys):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "pizza.md").write_text("# Dough\nflour and water")
    (tmp_path / "files" / "broken.pdf").write_bytes(b"%PDF-1.4")
    place = ["--dir", str(tmp_path / "home")]
    code, out, err = run(capsys, "index", str(tmp_path / "files"), *place)
    assert (code, out) == (0, "")
    problem, summary = err.splitlines()
    assert problem.startswith(f"{tmp_path}/files/broken.pdf: is damaged")
    assert summary == "1 file read, 0 moved, 0 removed, 0 unchanged; 2 documents in all"
    told = json.loads(run(capsys, "index", "--json", *place)[1])
    assert (told["unchanged"], told["read"], told["problems"]) == (2, 0, [])
    assert run(capsys, "find", "flour", *place)[1].splitlines()[0].endswith("/pizza.md")
    found = json.loads(run(capsys, "find", "flour", "--json", *place)[1])
    assert (found["version"], [one["title"] for one in found["results"]]) == ("default", ["Dough"])
    assert "broken.pdf: is damaged" in run(capsys, "status", "--problems", *place)[1]
    assert json.loads(run(capsys, "status", "--json", *place)[1])["documents"] == {"note": 1, "other": 1}
    assert "2 files removed" in run(capsys, "remove", str(tmp_path / "files"), *place)[2]
    assert run(capsys, "find", "flour", *place)[1:] == ("", "Nothing is indexed yet: fultr search index FOLDER\n")


def test_wrong_usage_is_one_line(tmp_path, capsys):
    place = ["--dir", str(tmp_path / "home")]
    for arguments, says in (
        (["index", *place], "expected at least one folder"),
        (["index", str(tmp_path / "none"), *place], "cannot be indexed"),
        (["remove", str(tmp_path), *place], "is not indexed"),
        ([*place, "status"], "expected after the command"),
    ):
        code, out, err = run(capsys, *arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert says in err


def test_people_look_for_what_they_have(tmp_path, monkeypatch):
    for name, count in (("_CODE", 12), ("_MANUALS", 4), ("_NOTES", 12), ("_MAILS", 8)):
        monkeypatch.setattr(app_people, name, count)
    random = np.random.default_rng(0)
    app_people.write_files(tmp_path / "files", 0, random)
    with Finder(Home.at(tmp_path / "home")) as finder:
        finder.index.add([tmp_path / "files"])
        finder.index.update(processes=1)
        person = app_people.person_of(finder.index.catalogue, random)
        found = 0
        for _ in range(30):
            item = person.target(random)
            results = finder.find(person.query(item, random) + " ")
            assert len(results) <= CANDIDATES
            found += item.document in [one.document.id for one in results]
    assert len(person.items) >= 30
    assert found >= 24


@pytest.mark.slow
def test_people_use_the_page_in_a_browser_and_through_its_interface(tmp_path, monkeypatch):
    """The log has every search with results once, and clicks on what was wanted."""
    for name, count in (("_CODE", 12), ("_MANUALS", 0), ("_NOTES", 20), ("_MAILS", 8)):
        monkeypatch.setattr(app_people, name, count)
    monkeypatch.setattr(app_use, "IN_BROWSER", 5)
    random = np.random.default_rng(0)
    app_people.write_files(tmp_path / "files", 0, random)
    with Finder(Home.at(tmp_path / "home")) as finder:
        finder.index.add([tmp_path / "files"])
        finder.index.update(processes=1)
        person = app_people.person_of(finder.index.catalogue, random)
        done = []
        app_use.use(
            finder, person, 10, random, lambda *_: done.append(len(finder.search.log.latest(20))), find_chromium()
        )
        logged = finder.search.log.latest(20)
        assert len(done) == 10
        assert done == sorted(done)
        assert len(logged) == done[-1] >= 8  # words that are nowhere have no results
        assert all(one.documents <= DISPLAYED for one in logged)
        assert sum(len(one.clicks) for one in logged) == len(finder.index.catalogue.opens()) >= 4
