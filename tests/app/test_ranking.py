"""Ranking: each feature tells the document that it is for from another, and the log has what was shown and opened."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from help.app import file_of, finder_over

from fultr.app.features import DAY, DEFAULT, FEATURES
from fultr.app.home import Home
from fultr.app.match import match, passage
from fultr.app.ranking import DISPLAYED, Finder, normal, reasons
from fultr.app.text import Query, fold
from fultr.device.current import write_current
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Versions

NOW = 1_700_000_000.0


def value(finder: Finder, name: str, query: str, file: str) -> float:
    """What a feature is for a file, among the results of a query."""
    results = finder.find(query, now=NOW)
    return next(FEATURES[name](query, one) for one in results if file_of(one) == file)


@pytest.fixture(scope="module")
def finder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranking")
    texts = {
        "tax return.txt": "tax",
        "tax.md": "# Tax return for Ada\nof May",
        "far.txt": "tax " + "and so on and on " * 30 + " return, a long text that goes on",
        "near.txt": "my tax return is due; the tax return again; tax",
        "late.txt": "unrelated words first. " * 200 + "tax return",
        "taxes/deep/er/one.csv": "return",
        "mail.eml": "Subject: the tax return\n\ntax return",
        "form.py": "tax = 1  # return",
        "copy of tax.txt": "tax return",
        "scan tax.pdf.html": "<p>tax return</p>",
    }
    with finder_over(folder, texts) as opened:
        for name in texts:
            os.utime(folder / "files" / name, (NOW - 300 * DAY,) * 2)
        os.utime(folder / "files" / "near.txt", (NOW - 2 * DAY,) * 2)
        opened.index.update()
        (id_,) = [one.document.id for one in opened.find("tax return") if file_of(one) == "form.py"]
        for days in (1, 8, 20):
            opened.index.catalogue.put_open(id_, NOW - days * DAY, 1, "tax return" if days == 1 else "other")
        yield opened


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "query", "higher", "lower"),
    [
        ("words match", "tax return", "tax return.txt", "far.txt"),
        ("words in the name", "tax return", "tax return.txt", "tax.md"),
        ("words in the title", "tax return", "tax.md", "near.txt"),
        ("words in the folders", "taxes return", "one.csv", "tax.md"),
        ("words in the text", "tax return", "near.txt", "tax return.txt"),
        ("all words in the name", "tax return", "tax return.txt", "tax.md"),
        ("all words in the title", "tax return", "tax.md", "near.txt"),
        ("all words in the text", "tax return", "near.txt", "tax return.txt"),
        ("all words somewhere", "tax ada", "tax.md", "near.txt"),
        ("whole words", "ret", "far.txt", None),
        ("phrase in the name", "tax return", "tax return.txt", "copy of tax.txt"),
        ("phrase in the title", "tax return", "mail.eml", "near.txt"),
        ("phrase in the text", "tax return", "near.txt", "far.txt"),
        ("words near each other", "tax return", "near.txt", "far.txt"),
        ("early in the text", "tax return", "tax return.txt", "late.txt"),
        ("often in the text", "tax return", "near.txt", "far.txt"),
        ("dense in the text", "tax return", "near.txt", "far.txt"),
        ("the name itself", "tax return", "tax return.txt", "tax.md"),
        ("the name begins so", "tax re", "tax return.txt", "copy of tax.txt"),
        ("the title begins so", "tax re", "tax.md", "mail.eml"),
        ("little else in the name", "tax return", "tax return.txt", "copy of tax.txt"),
        ("type named", "return csv", "one.csv", "tax.md"),
        ("name for a short query", "tax", "tax.md", "near.txt"),
        ("text for a long query", "my tax return", "near.txt", "tax return.txt"),
        ("recently changed", "tax return", "near.txt", "far.txt"),
        ("changed this week", "tax return", "near.txt", "far.txt"),
        ("near the top", "return", "far.txt", "one.csv"),
        ("short", "tax return", "tax return.txt", "late.txt"),
        ("copy or leftover", "tax return", "copy of tax.txt", "tax return.txt"),
        ("is a note", "tax return", "tax.md", "form.py"),
        ("is mail", "tax return", "mail.eml", "tax.md"),
        ("is code", "tax return", "form.py", "tax.md"),
        ("is data", "return", "one.csv", "tax.md"),
        ("recently opened", "tax return", "form.py", "tax.md"),
        ("often opened", "tax return", "form.py", "tax.md"),
        ("opened for this query", "tax return", "form.py", "tax.md"),
        ("folder in use", "return", "form.py", "one.csv"),
        ("type in use", "tax return", "form.py", "tax.md"),
    ],
)
def test_a_feature_tells_documents_apart(finder, name, query, higher, lower):
    if lower is None:
        assert value(finder, name, query, higher) < value(finder, name, "return ", higher)
    else:
        assert value(finder, name, query, higher) > value(finder, name, query, lower)


def test_every_feature_is_described_and_few_enough_to_read():
    assert 20 <= len(FEATURES) <= 40
    assert not any("," in name for name in FEATURES)  # a federation has their names with commas between
    assert all((function.__doc__ or "").endswith((".", "?")) for function in FEATURES.values())
    assert set(DEFAULT) <= set(FEATURES)


@pytest.mark.process
def test_some_features_have_the_value_that_their_sentence_says(finder):
    assert value(finder, "recently opened", "tax return", "form.py") == 1 / (1 + 1 / 7)
    assert value(finder, "recently changed", "tax return", "near.txt") == pytest.approx(1 / (1 + 2 / 30))
    assert value(finder, "all words in the name", "tax return", "tax.md") == 1 / 2
    assert value(finder, "is a document", "tax return", "tax.md") == 0
    results = finder.find("tax return", now=NOW)
    why = reasons(results, 0)
    assert sum(reason.adds for reason in why) == pytest.approx(sum(results.contributions(0).values()))
    assert all(reason.says for reason in why)


@pytest.mark.process
def test_what_is_found_is_logged_when_it_is_shown_and_forgotten_on_demand(tmp_path):
    with finder_over(tmp_path, {f"{i}.txt": f"pizza number{i}" for i in range(12)}) as finder:
        log = finder.search.log
        results = finder.find("  Pizza ")
        assert (len(results), log.stats().impressions) == (12, 0)
        assert results.clicked(3)
        finder.index.catalogue.put_open(results[3].document.id, time.time(), results.shown(), normal("  Pizza "))
        (logged,) = log.latest(5)
        assert (logged.text, logged.clicks, logged.documents, logged.version) == ("pizza", (4,), DISPLAYED, "default")
        finder.find("pizza number1").shown()
        assert finder.find("pizza")[0].document.id == results[3].document.id  # opened for this query before
        assert finder.forget("pizza") == 1
        assert [one.text for one in log.latest(5)] == ["pizza number1"]
        assert finder.index.catalogue.opens() == []
        assert finder.forget() == 1
        assert finder.find("qqqq").shown() is None


@pytest.mark.process
def test_a_new_ranker_is_used_at_once(tmp_path):
    with finder_over(tmp_path, {"a.txt": "pizza", "b.py": "pizza"}) as finder:
        folder = Home.at(tmp_path / "home").rankers
        for feature, first in (("is code", "b.py"), ("is a note", "a.txt")):
            weights = np.float32([name == feature for name in FEATURES])
            ranker = Ranker(weights, np.arange(1, len(weights) + 1), feature_names=tuple(FEATURES))
            version = Versions(folder).write(ranker, parent=None, configuration={}, metrics={})
            write_current(folder, version.name)
            results = finder.find("pizza")
            assert (file_of(results[0]), results.version) == (first, version.name)


def test_a_passage_shows_where_the_words_are_and_marks_them():
    text = "Nothing here.\n" * 50 + "The Café's tax\nreturn of 2024 is due." + " The end." * 50
    found = match(Query.of("cafe tax return"), fold(text))
    piece = passage(found, text)
    assert [piece.text[start:end] for start, end in piece.marks] == ["Café", "tax", "return"]
    assert "\n" not in piece.text
    assert len(piece.text) <= 220
    assert passage(match(Query.of("none"), "abc"), "abc") == ("abc", [])
    assert passage(match(Query.of("x"), ""), "") == ("", [])


def test_words_match_their_plural_and_what_begins_so_but_no_middle():
    assert match(Query.of("report "), "reports, reported; a report. unreported").counts == (2,)
    assert match(Query.of("report"), "reports, reported; a report. unreported").counts == (3,)
    assert match(Query.of("reports "), "a report").counts == (1,)
    assert match(Query.of("a b"), "b a").phrase == 0
    assert match(Query.of("a b"), "b a").nearness == 1
    assert match(Query.of("tax return"), "tax" + " " * 61 + "return").nearness == 1 / 2


@pytest.mark.process
def test_a_clock_that_jumps_changes_no_more_than_how_recent_things_are(tmp_path):
    with finder_over(tmp_path, {"a.txt": "pizza oven", "b.txt": "pizza"}) as finder:
        document = finder.find("pizza oven")[0].document.id
        for moment in (0.0, 4e9, -1e12, 1e300):
            finder.index.catalogue.put_open(document, moment, 0, "pizza")
            for now in (0.0, 4e9, 1e15):
                results = finder.find("pizza", now=now)
                assert sorted(map(file_of, results)) == ["a.txt", "b.txt"]
                assert all(0 <= FEATURES["recently opened"]("", one) <= 1 for one in results)
