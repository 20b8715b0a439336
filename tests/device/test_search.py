"""Search as an application uses it: results are ranked, logged and clicked, whatever happens to versions and files."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fultr import DeviceLog, FultrError, RankingData, Search
from fultr.device.current import read_current, write_current
from fultr.device.retention import Retention
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Version, Versions

# A candidate is its raw features.
FEATURES = {"a": lambda query, candidate: candidate[0], "b": lambda query, candidate: candidate[1]}
CANDIDATES = [(1.0, 9.0), (3.0, 7.0), (2.0, 8.0)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "search.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "rankers"


def write(folder: Path, weights: list[float], names: list[str] | None = None, normalised: bool = True) -> Version:
    ranker = Ranker(np.float32(weights), np.arange(1, len(weights) + 1), normalised)
    return Versions(folder).write(ranker, parent=None, configuration={}, metrics={}, feature_names=names)


def use(folder: Path, weights: list[float], names: list[str] | None = None, normalised: bool = True) -> str:
    name = write(folder, weights, names, normalised).name
    write_current(folder, name)
    return name


def logged(search: Search):
    return search.log.records()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fultr.search"]


# Ranking and logging


def test_results_are_best_first_and_what_is_displayed_is_logged(path, folder):
    name = use(folder, [1.0, 0.0], ["a", "b"])
    with Search(path, FEATURES, rankers=folder, displayed=2) as search:
        results = search.rank("best pizza", CANDIDATES)
        assert list(results) == [(3.0, 7.0), (2.0, 8.0), (1.0, 9.0)]
        assert (len(results), results[0], results[-1], results[:2]) == (
            3, (3.0, 7.0), (1.0, 9.0), [(3.0, 7.0), (2.0, 8.0)],
        )  # fmt: skip
        assert results.version == search.version == name
        assert repr(results) == f"Results(3 documents, 2 displayed, {name})"
        assert results.clicked(1)
        assert results.clicked(1)  # again: nothing changes
        assert results.clicked(np.int64(0))
        found = logged(search)
        assert found.versions == (name,)
        assert found.log.clicks.tolist() == [[1, 1]]
        # Scaled over all three candidates: a is 1 to 3, b is 7 to 9.
        assert found.display.features[:, :2].tolist() == [[1.0, 0.0], [0.5, 0.5]]
        assert search.log.schemas()[0].names == ("a", "b")


def test_equal_scores_keep_the_order_given(path):
    candidates = [(1.0, i) for i in range(50)]
    with Search(path, FEATURES, default={"a": 1.0}) as search:
        assert list(search.rank(1, candidates)) == candidates
    with Search(path, FEATURES) as search:  # no ranker at all
        assert list(search.rank(1, CANDIDATES)) == CANDIDATES
        assert logged(search).versions == ("default", "default")


def test_a_default_by_name_or_as_a_ranker(path):
    with Search(path, FEATURES, default={"b": 2}) as search:
        assert search.rank(1, CANDIDATES)[0] == (1.0, 9.0)
        assert search.version == "default"
    ranker = Ranker(np.float32([1, 0]), np.array([4, 9]), feature_names=("b", "a"))
    with Search(path, FEATURES, default=ranker) as search:
        assert search.rank(1, CANDIDATES)[0] == (1.0, 9.0)


def test_without_candidates_nothing_is_logged(path):
    with Search(path, FEATURES) as search:
        results = search.rank("nothing", [])
        assert (len(results), list(results)) == (0, [])
        with pytest.raises(FultrError, match="clicked: expected no click: no results; found 0"):
            results.clicked(0)
        assert search.log.stats().impressions == 0


@pytest.mark.parametrize("index", [-1, 2, 3, 1.0, True, None, "0"])
def test_a_click_on_what_is_not_displayed_is_refused(path, index):
    with Search(path, FEATURES, displayed=2) as search:
        results = search.rank("q", CANDIDATES)
        with pytest.raises(FultrError, match=r"clicked: expected 0 to 1, a displayed document; found .*") as caught:
            results.clicked(index)
        assert "\n" not in str(caught.value)
        assert search.log.stats().clicks == 0


def test_a_click_on_a_forgotten_impression(path):
    with Search(path, FEATURES) as search:
        results = search.rank("q", CANDIDATES)
        search.log.forget(all=True)
        assert not results.clicked(0)


def test_features_of_all_candidates_at_once(path):
    asked = []

    def lengths(query, candidates):
        asked.append((query, len(candidates)))
        return np.array([len(text) for text in candidates])

    features = {"match": lambda query, text: query in text}
    with Search(path, features, columns={"length": lengths}, default={"match": 1, "length": -0.5}) as search:
        results = search.rank("pizza", iter(["the best pasta", "a pizza oven", "pizza"]))
        assert list(results) == ["pizza", "a pizza oven", "the best pasta"]
        assert asked == [("pizza", 3)]
        assert search.log.schemas()[0].names == ("match", "length")
        # Lengths are 14, 12 and 5.
        lengths_scaled = np.float32([(5 - 5) / 9, (12 - 5) / 9, (14 - 5) / 9])
        np.testing.assert_array_equal(logged(search).display.features[:, 1], lengths_scaled)


def test_what_is_logged_and_scored_is_what_training_sees(path, folder):
    """The same bits as `RankingData.normalise`, and the order of `Ranker.score` where scores differ."""
    rng = np.random.default_rng(0)
    ranker = Ranker(rng.standard_normal(6).astype(np.float32), np.arange(1, 7))
    use(folder, ranker.weights.tolist())
    columns = {f"f{f}": lambda query, candidates, f=f: [row[f] for _, row in candidates] for f in range(6)}
    with Search(path, columns=columns, rankers=folder, displayed=40) as search:
        for time, size in enumerate((1, 2, 7, 40)):
            values = rng.standard_normal((size, 6)) * 10.0 ** np.arange(-3, 3)
            values[:, 1] = 7.25  # constant
            values[:, 2] = np.where(values[:, 0] > 0, 3.4e38, -3.4e38)  # the span is no float32
            values[:, 3] *= 1e-42
            data = RankingData.from_arrays(values, np.zeros(size), np.ones(size)).normalise()
            places = [place for place, _ in search.rank(time, enumerate(values.astype(np.float32)))]
            assert sorted(places) == list(range(size))
            scores = ranker.score(data)[places]
            # For float32 sums of 6 products in any order: 6 2^-24 of the sum of absolute products, for each of two.
            assert np.all(np.diff(scores) <= 2 * 8 * 2.0**-24 * (data.features @ np.abs(ranker.weights)).max())
            found = logged(search)
            rows = found.display.shown[found.log.queries[-1], :size]
            np.testing.assert_array_equal(found.display.features[rows, :6], data.features[places])


def test_features_as_they_are(path, folder):
    use(folder, [1.0, 0.0], normalised=False)
    with Search(path, FEATURES, rankers=folder, normalised=False) as search:
        assert search.rank(1, CANDIDATES)[0] == (3.0, 7.0)
        assert logged(search).display.features[0, :2].tolist() == [3.0, 7.0]


# Features


def bad(value):
    return lambda query, candidate: value if candidate == CANDIDATES[1] else 1.0


def failing(query, candidate):
    if candidate == CANDIDATES[2]:
        raise KeyError("no\ndate")
    return 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(features={"b": bad(float("nan"))}), "feature 'b', candidate 1: expected a finite number .* found nan"),
        (dict(features={"b": bad(1e39)}), r"feature 'b', candidate 1: .* within float32, found 1e\+39"),
        (dict(features={"b": bad(None)}), "feature 'b', candidate 1: .* found nothing"),
        (dict(features={"b": bad("3")}), "feature 'b', candidate 1: .* found the text \"3\""),
        (dict(features={"b": bad([1, 2])}), r"feature 'b', candidate 1: .* found the list \[1, 2\]"),
        (dict(features={"b": bad(10**400)}), "feature 'b', candidate 1: .* about 401 digits"),
        (dict(features={"b": lambda query, candidate: (1, 2)}), "feature 'b', candidate 0: .* found the list"),
        (dict(features={"b": failing}), "feature 'b', candidate 2: its function failed with KeyError: .*date"),
        (dict(columns={"b": lambda query, all: [1, 2]}), r"feature 'b': expected 3 numbers, .* found shape \(2,\)"),
        (dict(columns={"b": lambda query, all: 1}), r"feature 'b': expected 3 numbers, .* found shape \(\)"),
        (dict(columns={"b": lambda query, all: [0, 0, np.inf]}), "feature 'b', candidate 2: .* found inf"),
        (dict(columns={"b": lambda query, all: [1j, 0, 0]}), "feature 'b', candidate 0: .* found 1j"),
        (dict(columns={"b": lambda query, all: all[9]}), "feature 'b', all candidates: .* IndexError: list index"),
    ],
)
def test_bad_features_get_one_line_and_are_not_logged(path, options, message):
    with Search(path, **options) as search:
        with pytest.raises(FultrError, match=message) as caught:
            search.rank("q", CANDIDATES)
        assert "\n" not in str(caught.value)
        assert search.log.stats().impressions == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(features={}), "features: expected at least one, found none"),
        (dict(features={"a": 3}), "feature 'a': expected a function, found 3"),
        (dict(columns=FEATURES), "feature 'a': expected in features or in columns, found in both"),
        (dict(displayed=0), "displayed: expected a whole number, at least 1"),
        (dict(default={"aa": 1.0}), "unknown feature in default: 'aa'; did you mean a"),
        (dict(default={"a": float("nan")}), "default: a: expected a number"),
        (dict(default="latest"), "default: expected a ranker, weights by name, or None; found the text"),
        (dict(default=Ranker(np.float32([1]), np.array([1]), False)), "default: expected a ranker for normalised"),
        (
            dict(default=Ranker(np.float32([1] * 5), np.arange(5), feature_names=("a", *"wxyz"))),
            "default: needs 'w', 'x', 'y' and 1 more, not among the features of this search",
        ),
    ],
)
def test_a_search_that_cannot_be(path, options, message):
    with pytest.raises(FultrError, match=message) as caught:
        Search(path, **({"features": FEATURES} | options))
    assert "\n" not in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize("query", [None, True, 1.5, ["q"]])
def test_a_query_is_text_bytes_or_a_number(path, query):
    with Search(path, FEATURES) as search, pytest.raises(FultrError, match="query: expected text, bytes or a whole"):
        search.rank(query, CANDIDATES)


# The log


def test_an_open_log_keeps_its_order_of_features_and_stays_open(path):
    with DeviceLog.open(path, features=["b", "a"], hold_text=True) as log:
        with Search(log, FEATURES, default={"a": 1.0}) as search:
            search.rank("best pizza", CANDIDATES)
        assert log.records().display.features[0, :2].tolist() == [0.0, 1.0]
        assert log.stats().with_text == 1
        with pytest.raises(FultrError, match="expected a log opened with features a; found b, a"):
            Search(log, {"a": FEATURES["a"]})
        with pytest.raises(FultrError, match="hold_text: expected a log given by its path"):
            Search(log, FEATURES, hold_text=True)
    with (
        DeviceLog.open(path, features=2) as log,
        pytest.raises(FultrError, match="opened with features a, b; found 2 without names"),
    ):
        Search(log, FEATURES)


@pytest.mark.parametrize("hold_text", [False, True])
def test_text_of_queries_is_kept_only_if_asked_for(path, hold_text):
    with Search(path, FEATURES, hold_text=hold_text) as search:
        search.rank("best pizza", CANDIDATES)
        assert search.log.stats().with_text == hold_text


def test_a_log_that_cannot_be_written_does_not_stop_a_search(path, caplog, monkeypatch):
    monkeypatch.setattr("fultr.device.sqlite.WAIT", 0.05)
    with (
        DeviceLog.open(path, features=["a", "b"], retention=Retention()) as log,
        Search(log, FEATURES, default={"a": 1.0}) as search,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        before = search.rank("q", CANDIDATES)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(3):
            results = search.rank("q", CANDIDATES)
            assert results[0] == (3.0, 7.0)
            assert not results.clicked(0)
        assert not before.clicked(0)
        other.execute("ROLLBACK")
        assert before.clicked(0)
        assert search.rank("q", CANDIDATES).clicked(0)
        assert log.stats().impressions == 2
    told = warnings_of(caplog)
    assert [line.split(":")[0] for line in told] == ["an impression was not logged", "a click was not logged"]


# Versions


def test_a_new_version_is_used_from_the_next_search_on(path, folder):
    with Search(path, FEATURES, rankers=folder) as search:  # there is no folder yet
        early = search.rank(1, CANDIDATES)
        assert early[0] == (1.0, 9.0)
        first = use(folder, [1.0, 0.0], ["a", "b"])
        assert search.rank(1, CANDIDATES)[0] == (3.0, 7.0)
        second = write(folder, [-1.0, 0.0], ["a", "b"]).name
        assert search.rank(1, CANDIDATES)[0] == (3.0, 7.0)  # there, but not named
        write_current(folder, second)
        assert search.rank(1, CANDIDATES)[0] == (1.0, 9.0)
        write_current(folder, "v0001")
        assert search.rank(1, CANDIDATES)[0] == (3.0, 7.0)
        assert logged(search).versions == ("default", first, first, second, first)


def test_features_are_found_by_name(path, folder):
    features = {**FEATURES, "c": lambda query, candidate: 5.0}
    with Search(path, features, rankers=folder) as search:
        use(folder, [1.0, 0.0], ["b", "a"])  # another order, and one fewer
        assert search.rank(1, CANDIDATES)[0] == (1.0, 9.0)
        use(folder, [0.0, 1.0], ["b", "a"])
        assert search.rank(1, CANDIDATES)[0] == (3.0, 7.0)
        use(folder, [1.0, 0.0, 0.0])  # no names: the log's features, in order
        assert search.rank(1, CANDIDATES)[0] == (3.0, 7.0)


def replaced(file: Path, text: str) -> None:
    """Replace a file as a node does; versions are read-only."""
    new = file.with_name("new")
    new.write_text(text)
    new.replace(file)


def truncated_version(folder: Path) -> None:
    name = write(folder, [-1.0, 0.0], ["a", "b"]).name
    file = folder / f"{name}.json"
    replaced(file, file.read_text()[:100])
    replaced(folder / "current", name)


BAD_VERSIONS = {
    "garbage": (lambda folder: (folder / "current").write_bytes(b"\xff\x00" * 500), "no version"),
    "empty": (lambda folder: replaced(folder / "current", ""), "no version ''"),
    "not there": (lambda folder: replaced(folder / "current", "v0007-abcdef"), "no version 'v0007-abcdef'"),
    "not a whole name": (lambda folder: replaced(folder / "current", "latest"), "expected the whole name of a version"),
    "gone": (lambda folder: (folder / "current").unlink(), "current: is no longer there"),
    "truncated": (truncated_version, "found no JSON"),
    "other features": (
        lambda folder: use(folder, [1.0, 1.0], ["a", "views"]),
        "needs 'views', not among the features of this search",
    ),
    "fewer, without names": (lambda folder: use(folder, [1.0]), "needs '1', not among the features"),
    "for raw features": (
        lambda folder: use(folder, [1.0, 0.0], ["a", "b"], normalised=False),
        "expected a ranker for normalised features, found one for features that are not normalised",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_VERSIONS)
def test_a_version_that_cannot_be_used_leaves_the_previous_one_in_use(path, folder, caplog, case):
    spoil, message = BAD_VERSIONS[case]
    good = use(folder, [1.0, 0.0], ["a", "b"])
    with Search(path, FEATURES, rankers=folder) as search:
        spoil(folder)
        for _ in range(3):
            results = search.rank(1, CANDIDATES)
            assert (results[0], results.version) == ((3.0, 7.0), good)
        told = warnings_of(caplog)
        assert len(told) == 1  # once
        assert message in told[0]
        assert told[0].endswith(f"; {good} stays in use")
        assert "\n" not in told[0]
        assert str(folder) in told[0]
        assert caplog.records[0].levelno == logging.WARNING
        better = use(folder, [-1.0, 0.0], ["a", "b"])
        assert (search.rank(1, CANDIDATES)[0], search.version) == ((1.0, 9.0), better)
    if case != "gone":
        spoil(folder)
        with Search(path, FEATURES, rankers=folder, default={"a": 1.0}) as search:
            assert search.version == "default"


def test_current_names_an_intact_version_of_its_folder(folder):
    assert read_current(folder) is None
    with pytest.raises(FultrError, match="expected a folder of versions, found none"):
        write_current(folder, "latest")
    first, second = write(folder, [1.0]), write(folder, [2.0])
    write_current(folder, "v0001")
    assert read_current(folder).name == first.name
    write_current(folder, "latest")
    assert read_current(folder).name == second.name
    assert (folder / "current").read_text() == f"{second.name}\n"
    (folder / f"{second.name}.json").chmod(0o644)
    (folder / f"{second.name}.json").write_text("{}")
    with pytest.raises(FultrError, match="expected a ranker saved by fultr"):
        write_current(folder, second.name)
    assert Versions(folder).list() == (first.name, second.name)  # `current` is none


def test_threads_search_and_click_while_versions_change(path, folder):
    names = {use(folder, [1.0, 0.0], ["a", "b"]): (3.0, 7.0), use(folder, [0.0, 1.0], ["a", "b"]): (1.0, 9.0)}
    threads, each, wrong = 6, 60, []
    finished = threading.Event()
    with Search(path, FEATURES, rankers=folder) as search:

        def work(number: int) -> None:
            for i in range(each):
                results = search.rank(f"{number} {i}", CANDIDATES)
                if results[0] != names[results.version] or not results.clicked(i % 3):
                    wrong.append((number, i))

        def change() -> None:
            while not finished.wait(0.001):
                for name in names:
                    write_current(folder, name)

        changer = threading.Thread(target=change)
        changer.start()
        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        finished.set()
        changer.join()
        found = logged(search)
    assert not wrong
    assert len(found.versions) == threads * each
    assert set(found.versions) == set(names)
    assert found.log.clicks.sum(axis=0).tolist() == [threads * each // 3] * 3
    for version, query in zip(found.versions, found.log.queries, strict=True):
        first = found.display.features[found.display.shown[query, 0], :2]
        assert first.tolist() == ([1.0, 0.0] if names[version] == (3.0, 7.0) else [0.0, 1.0])


# Results that change while a query is typed, and why a result is where it is


def test_results_that_are_not_shown_are_logged_when_they_are(path):
    with Search(path, FEATURES, default={"a": 1.0}, displayed=2) as search:
        typed = search.rank("piz", CANDIDATES, shown=False)
        assert list(typed) == list(search.rank("pizza", CANDIDATES, shown=False)) == [CANDIDATES[i] for i in (1, 2, 0)]
        assert search.log.stats().impressions == 0
        assert typed.shown() == typed.shown() == 1
        clicked = search.rank("pizza", CANDIDATES, shown=False)
        assert clicked.clicked(1)
        assert logged(search).log.clicks.tolist() == [[0, 0], [0, 1]]
        assert search.rank("none", [], shown=False).shown() is None


def test_contributions_add_up_to_the_score(path):
    with Search(path, FEATURES, default={"a": 2.0, "b": -0.5}) as search:
        results = search.rank("pizza", CANDIDATES)
        # normalised: a is (0, 1, 1/2), b is (1, 0, 1/2)
        assert [results.contributions(i) for i in range(3)] == [{"a": 2.0}, {"a": 1.0, "b": -0.25}, {"b": -0.5}]
    with Search(path, FEATURES) as search:
        assert search.rank("pizza", CANDIDATES).contributions(0) == {}


def test_the_latest_searches_are_listed_with_their_clicks(path):
    with Search(path, FEATURES, default={"a": 1.0}, hold_text=True) as search:
        search.rank("first", CANDIDATES).clicked(2)
        second = search.rank("second", CANDIDATES)
        second.clicked(1)
        second.clicked(0)
        latest = search.log.latest(5)
        assert [(one.text, one.clicks, one.documents) for one in latest] == [("second", (1, 2), 3), ("first", (3,), 3)]
        assert [one.text for one in search.log.latest(1)] == ["second"]
