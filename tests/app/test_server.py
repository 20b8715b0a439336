"""The page's server: it answers to its own page and to nobody else, and the log has what was opened, once."""

from __future__ import annotations

import json
import socket
import threading
import time

import httpx
import pytest
import uvicorn
from help.app import finder_over
from starlette.requests import Request

from fultr.app.api import launch
from fultr.app.background import Background
from fultr.app.ranking import DISPLAYED, EXPLORATION
from fultr.app.server import _STATIC, _Guard, application
from fultr.app.visits import QUICK, Visits
from fultr.core.errors import FultrError
from fultr.device.personal import LEAST_QUERIES, PersonalLayer, extent_of, keep_layer

pytestmark = pytest.mark.process
TOKEN = "token"


class Clock:
    """One that moves when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    texts = {f"pizza {i}.txt": f"pizza number{i} " + "word " * i for i in range(15)}
    texts["notes.md"] = "# <b>Bold</b>\n<script>alert(1)</script> pasta \U0001f35d und Käse"
    with finder_over(folder, texts) as finder:
        clock = Clock()
        visits = Visits(finder, clock)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            app = application(finder, visits, Background(finder.index.home), TOKEN, port)
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", ws="none"))
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/{TOKEN}/") as client:
                yield client, finder, visits, clock
            server.should_exit = True
            thread.join()


@pytest.fixture
def client(setup):
    client, _, visits, _ = setup
    visits.pause(False)
    visits.forget()
    return client


def tell(client, name, /, **what):
    return client.post(f"api/{name}", json=what)


def search(client, query):
    return client.get("api/search", params={"q": query}).json()


def logged(setup):
    return [(one.text, one.clicks) for one in setup[1].search.log.latest(10)]


# Who gets an answer


@pytest.mark.parametrize("path", ["", "api/search?q=pizza", "wrong/api/search?q=pizza", "toke/", "/token/", "%00/"])
def test_without_the_token_there_is_nothing(client, path):
    answer = client.get(f"http://{client.base_url.netloc.decode()}/{path}")
    assert (answer.status_code, answer.text) == (404, "Not Found")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:80"},
        {"host": "127.0.0.1:1"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    ],
)
def test_another_host_or_origin_gets_nothing_even_with_the_token(client, headers):
    assert client.get("api/search?q=pizza", headers=headers).status_code == 404
    told = client.post("api/forget", json={"all": True}, headers=headers)
    assert (told.status_code, told.text) == (404, "Not Found")


def test_the_page_may_be_reached_by_a_link_but_nothing_be_changed_by_one(client):
    arriving = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("", headers=arriving).status_code == 200
    assert client.post("api/forget", json={"all": True}, headers=arriving).status_code == 404
    assert client.get("api/forget").status_code == 405
    form = client.post("api/forget", content="{}", headers={"content-type": "text/plain"})
    assert form.status_code == 415


def test_every_answer_forbids_what_the_page_does_not_need(client):
    for path in (*_STATIC, "api/status", "../nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_the_page_loads_nothing_from_elsewhere_and_has_nothing_inline(client):
    for path in _STATIC:
        text = client.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "innerHTML" not in text
        assert "style=" not in text
        assert "onclick" not in text


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("open", "[]", 400),
        ("open", "{", 400),
        ("open", "[" * 9000, 400),
        ("open", " " * 10_001, 413),
        ("open", '{"id": "none", "index": 0}', 400),
        ("forget", "{}", 400),
        ("forget", '{"all": "yes"}', 400),
        ("pause", '{"paused": 1}', 400),
    ],
)
def test_bad_requests_are_one_line(client, name, body, status):
    answer = client.post(f"api/{name}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize("index", [-1, 16, "x", None, 1e999, [], True])
def test_an_index_that_is_none_is_refused(client, index):
    id_ = search(client, "pizza")["id"]
    answer = client.post(
        "api/open", content=json.dumps({"id": id_, "index": index}), headers={"content-type": "application/json"}
    )
    assert answer.status_code in ((400, 200) if index is True else (400,))


# Searching


def test_results_have_passages_and_filters_narrow_them(client):
    found = search(client, "pasta")
    (one,) = found["results"]
    marks = [one["passage"][start:end] for start, end in one["marks"]]
    assert (one["name"], one["title"], one["kind"], marks) == ("notes.md", "<b>Bold</b>", "note", ["pasta"])
    assert client.get("api/search", params={"q": "pasta", "kinds": "mail,nonsense"}).json()["count"] == 0
    assert client.get("api/search", params={"q": "pasta", "since": 4e9}).json()["count"] == 0
    assert client.get("api/search", params={"q": "pasta", "since": "x"}).json()["count"] == 1
    assert search(client, "")["count"] == search(client, "!?")["count"] == search(client, "\0" * 300)["count"] == 0
    many = search(client, "pizza")
    assert (many["count"], len(many["results"])) == (15, DISPLAYED)
    rest = client.get("api/more", params={"id": many["id"]}).json()["results"]
    assert [one["index"] for one in rest] == [10, 11, 12, 13, 14]


def test_a_document_is_read_with_its_words_marked(client):
    found = search(client, "kase")
    told = tell(client, "open", id=found["id"], index=0).json()
    assert [told["text"][start:end] for start, end in told["marks"]] == ["Käse"]
    assert "<script>alert(1)</script>" in told["text"]
    reasons = client.get("api/why", params={"id": found["id"], "index": 0}).json()
    assert reasons["version"] == "default"


# What is logged


def test_what_is_typed_is_not_logged_but_what_is_seen_is(client, setup):
    for typed in ("p", "pi", "piz", "pizz"):
        search(client, typed)
    assert logged(setup) == []
    found = search(client, "pizza")
    for _ in range(2):
        tell(client, "shown", id=found["id"])
    assert logged(setup) == [("pizza", ())]


def test_an_open_counts_once_after_a_while(client, setup):
    _, finder, visits, clock = setup
    found = search(client, "pizza")
    for _ in range(3):
        tell(client, "open", id=found["id"], index=2)
    visits.settle()
    assert logged(setup) == []
    clock.now += QUICK
    visits.settle()
    visits.settle()
    tell(client, "closed")
    assert logged(setup) == [("pizza", (3,))]
    assert len(finder.index.catalogue.opens()) == 1


@pytest.mark.parametrize("leaving", ["closed", "another", "search"])
@pytest.mark.parametrize(("stays", "counts"), [(QUICK - 0.1, False), (QUICK, True)])
def test_a_quick_return_does_not_count(client, setup, leaving, stays, counts):
    *_, visits, clock = setup
    found = search(client, "pizza")
    tell(client, "open", id=found["id"], index=1)
    clock.now += stays
    if leaving == "closed":
        tell(client, "closed")
    elif leaving == "another":
        tell(client, "open", id=found["id"], index=4)
    else:
        search(client, "pizza number1")
    clock.now += QUICK
    visits.settle()
    clicks = {"another": {True: (2, 5), False: (5,)}}.get(leaving, {True: (2,), False: ()})[counts]
    assert logged(setup) == ([("pizza", clicks)] if clicks else [])


def test_an_open_below_what_is_displayed_is_no_click(client, setup):
    _, finder, visits, clock = setup
    found = search(client, "pizza")
    tell(client, "open", id=found["id"], index=12)
    clock.now += QUICK
    visits.settle()
    assert logged(setup) == [("pizza", ())]
    assert len(finder.index.catalogue.opens()) == 1


def test_what_is_open_when_the_page_ends_counts(client, setup):
    found = search(client, "pizza")
    tell(client, "open", id=found["id"], index=0)
    setup[2].finish()
    assert logged(setup) == [("pizza", (1,))]


def test_while_paused_nothing_is_logged(client, setup):
    _, finder, visits, clock = setup
    assert tell(client, "pause", paused=True).json() == {"paused": True}
    found = search(client, "pizza")
    tell(client, "shown", id=found["id"])
    tell(client, "open", id=found["id"], index=0)
    clock.now += QUICK
    visits.settle()
    assert client.get("api/status").json()["paused"]
    assert logged(setup) == finder.index.catalogue.opens() == []
    tell(client, "pause", paused=False)
    tell(client, "shown", id=search(client, "pizza")["id"])
    assert logged(setup) == [("pizza", ())]


def test_the_privacy_page_lists_exports_and_forgets(client, setup):
    for query in ("pizza", "pizza number3", "pasta"):
        tell(client, "shown", id=search(client, query)["id"])
    told = client.get("api/privacy").json()
    assert [one["text"] for one in told["latest"]] == ["pasta", "pizza number3", "pizza"]
    assert (told["impressions"], told["answered"], told["history"]) == (3, 0, [])
    assert told["ranker"] == {"name": "default", "made": None, "epsilon": None, "delta": None}
    lines = client.get("api/export").text.splitlines()
    assert [json.loads(line)["text"] for line in lines[1:]] == ["pizza", "pizza number3", "pasta"]
    assert tell(client, "forget", query="pizza").json() == {"gone": 1}
    assert [text for text, _ in logged(setup)] == ["pasta", "pizza number3"]
    assert tell(client, "forget", all=True).json() == {"gone": 2}
    assert logged(setup) == []


def test_the_personal_layer_is_shown_switched_off_and_forgotten(client, setup):
    finder = setup[1]
    told = client.get("api/privacy").json()["personal"]
    assert (told["on"], told["layer"], told["needed"]) == (True, None, LEAST_QUERIES)
    for number in range(3):
        tell(client, "open", id=search(client, f"pizza number{number}")["id"], index=0)
        setup[3].now += QUICK
        setup[2].settle()
    assert (finder.search.personalise().queries, finder.search.layer.weights) == (3, {})
    assert client.get("api/privacy").json()["personal"]["layer"]["used"] is False
    assert tell(client, "forget", all=True).json() == {"gone": 3}
    assert client.get("api/privacy").json()["personal"]["layer"] is None
    weights = {"near the top": 1.0, "short": -2.0}
    layer = PersonalLayer("default", weights, 0.1, 0.01, 90, 80, 5.0)
    with finder.search.log._connected() as connection:
        keep_layer(connection, layer, extent_of(connection))
    assert search(client, "pizza")["version"] == "default+personal"
    shown = client.get("api/privacy").json()
    assert (shown["personal"]["layer"]["weights"], shown["personal"]["layer"]["used"]) == (weights, True)
    assert shown["ranker"]["name"] == "default"
    assert tell(client, "choose", name="personal", on=False).json() == {"personal": False}
    assert search(client, "pizza")["version"] == "default"
    assert tell(client, "choose", name="personal", on=True).json() == {"personal": True}
    assert client.get("api/privacy").json()["personal"]["layer"] is None


def test_exploration_is_off_until_it_is_switched_on_and_while_logging_is_paused(client, setup):
    finder = setup[1]
    search(client, "pizza")
    assert (finder.search.exploration, client.get("api/privacy").json()["exploration"]) == (0.0, 0.0)
    tell(client, "choose", name="exploration", on=True)
    tell(client, "shown", id=search(client, "pizza")["id"])
    assert client.get("api/privacy").json()["exploration"] == finder.search.exploration == EXPLORATION
    assert finder.search.log.records().display.recorded_ranks.shape == (1, DISPLAYED, 20)
    tell(client, "pause", paused=True)
    search(client, "pizza")
    assert finder.search.exploration == 0.0
    tell(client, "choose", name="exploration", on=False)
    for bad in ({}, {"name": "paused", "on": True}, {"name": "personal", "on": 1}, {"name": [], "on": True}):
        assert tell(client, "choose", **bad).status_code == 400


def test_many_at_once(client):
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(search(client, "pizza")["count"])) for _ in range(8)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [15] * 8


def test_programs_and_links_are_not_started(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh")
    script.chmod(0o700)
    for name in ("a.desktop", "b.JAR", "c.url", "d.Terminal"):
        (tmp_path / name).write_text("x")
    for program in (script, *(tmp_path / name for name in ("a.desktop", "b.JAR", "c.url", "d.Terminal"))):
        with pytest.raises(FultrError, match="is a program"):
            launch(str(program))
    (tmp_path / "link.txt").symlink_to(script)
    for name in ("link.txt", "none.txt"):
        with pytest.raises(FultrError, match="no longer there"):
            launch(str(tmp_path / name))


@pytest.mark.parametrize("path", ["", "x", "/\udc80", "/\udc80/x"])
def test_a_path_that_is_none_gets_nothing(path):
    guard, request = _Guard(None, TOKEN, 1), {"type": "http", "method": "GET", "headers": [], "path": path}
    assert not guard._allowed(Request(request))
