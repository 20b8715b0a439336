"""What `fultr search demo` does: five people search their own files, and a federation learns from their clicks."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

import matplotlib as mpl
import numpy as np
import uvicorn
from matplotlib.figure import Figure

from fultr.app.background import Background
from fultr.app.features import DEFAULT, FEATURES
from fultr.app.home import Home
from fultr.app.ranking import DISPLAYED, Finder
from fultr.app.server import application
from fultr.app.visits import QUICK, Visits
from fultr.cli.app_people import Person, person_of, write_files
from fultr.cli.console import Done, progress_bar, say
from fultr.core.arrays import Float32s, Float64s
from fultr.core.drawing import PALETTE, STYLE
from fultr.deploy.folder import init_deployment
from fultr.deploy.services import start, stop
from fultr.deploy.training import follow, submit
from fultr.device.features import Features
from fultr.device.local import LocalDevices
from fultr.device.policy import DevicePolicy
from fultr.federated.federate import federate
from fultr.federated.federation import FederationSettings
from fultr.rankers.plain import scaled
from fultr.rankers.versions import Versions

PEOPLE = 5
_HELD_OUT = 100  # of a person, that judge
_AGAIN = 0.3  # the share of searches for something that was looked for before
_SURE, _NOISE = 0.95, 0.08  # clicks on what is looked for, and on anything else, when it is examined
_NAMES = list(FEATURES)


Quality: TypeAlias = tuple[float, float]
"""MRR and NDCG@10."""


@dataclass(frozen=True)
class _Judged:
    """A search whose target is known: the candidates' features and scores, and which one is the target; -1: none."""

    features: Float32s
    scores: Float64s
    target: int


def run_demo(folder: Path, seed: int, rounds: int, searches: int) -> dict[str, Quality]:
    """Make, search, train, judge: the quality of each ranker, the mean over people.

    Args:
        folder: for everything.
        seed: of files, people and their searches.
        rounds: of the federation.
        searches: of each person, that are logged.
    """
    federation = folder / "federation"
    init_deployment(federation, PEOPLE)
    homes = [Home.at(federation / "nodes" / f"node-{u + 1}") for u in range(PEOPLE)]
    say(f"1 of 4: {PEOPLE} people's files are indexed")
    judged: list[list[_Judged]] = []
    people = []
    for u, home in enumerate(homes):
        random = np.random.default_rng([seed, u])
        write_files(folder / f"person {u}", u, random)
        with Finder(home) as finder:
            finder.index.add([folder / f"person {u}"])
            finder.index.update()
            people.append(person_of(finder.index.catalogue, random))
    say("2 of 4: they search, through the page's interface")
    with progress_bar(PEOPLE * searches, "Searching") as done:
        for u, (home, person) in enumerate(zip(homes, people, strict=True)):
            with Finder(home) as finder:
                random = np.random.default_rng([seed, u, 1])
                _use(finder, person, searches, random, done)
                judged.append([_judged(finder, person, random) for _ in range(_HELD_OUT)])
    say("3 of 4: a federation of their devices trains, over TLS, each within its policy")
    settings = FederationSettings.of(
        {"features": len(_NAMES), "feature_names": ",".join(_NAMES), "displayed": DISPLAYED, "rounds": rounds,
         "client_rate": 0.02, "server_rate": 1.0, "clip": 5.0, "least_devices": PEOPLE}
    )  # fmt: skip
    logs = {u: folder / f"copy {u}.db" for u in range(PEOPLE)}
    for u, home in enumerate(homes):
        shutil.copy(home.log, logs[u])
    _write_settings(federation, settings)
    try:
        start(federation, 300.0)
        follow(federation, *submit(federation))
    finally:
        stop(federation)
    weights = {"federated": Versions(federation / "state" / "versions").read("latest").ranker.weights}
    say("4 of 4: each trains alone; all train on clicks as they are; everything is judged")
    raw = FederationSettings.of({**settings.as_mapping(), "propensity": "none"})
    weights["uncorrected clicks"] = _trained(_copies(logs, folder / "raw"), raw, folder / "raw-state")
    alone = [
        _trained(_copies({u: logs[u]}, folder / f"alone {u}"), _alone(settings), folder / f"alone-state {u}")
        for u in range(PEOPLE)
    ]
    default = np.array([DEFAULT.get(name, 0.0) for name in _NAMES], np.float32)
    return {
        "BM25 alone": _mean([_quality(one, None) for one in judged]),
        "default": _mean([_quality(one, default) for one in judged]),
        "each alone": _mean([_quality(one, own) for one, own in zip(judged, alone, strict=True)]),
        **{name: _mean([_quality(one, given) for one in judged]) for name, given in reversed(weights.items())},
    }


def _mean(values: list[Quality]) -> Quality:
    first, second = np.mean(values, axis=0)
    return float(first), float(second)


def _write_settings(federation: Path, settings: FederationSettings) -> None:
    """In place of the template: as its own names have them."""
    lines = ['state-dir = "state"']
    for name, value in settings.as_mapping().items():
        text = f'"{value}"' if isinstance(value, str) else str(value).lower()
        lines.append(f"{name} = {text}")
    (federation / "federation.toml").write_text("\n".join(lines) + "\n")


def _copies(logs: Mapping[int, Path], folder: Path) -> dict[int, Path]:
    """Logs as they were before anybody trained: each training has ledgers of its own."""
    folder.mkdir()
    return {u: Path(shutil.copy(path, folder / f"{u}.db")) for u, path in logs.items()}


def _alone(settings: FederationSettings) -> FederationSettings:
    waiting = replace(settings.waiting, least_devices=1, least_replies=1)
    return replace(settings, waiting=waiting)


def _trained(logs: dict[int, Path], settings: FederationSettings, folder: Path) -> Float32s:
    return federate(LocalDevices(logs, DevicePolicy(seconds_apart=0)), settings, folder).weights


class _Clock:
    """The page's clock, which is moved on instead of waiting."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class _Browser:
    """What asks and tells as the page does."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, name: str, **parameters: str) -> dict[str, Any]:
        return self._answer("GET", f"/demo/api/{name}?{urlencode(parameters)}", None)

    def tell(self, name: str, **what: object) -> dict[str, Any]:
        return self._answer("POST", f"/demo/api/{name}", json.dumps(what))

    def _answer(self, method: str, path: str, body: str | None) -> dict[str, Any]:
        self._connection.request(method, path, body, {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(self._connection.getresponse().read())
        return answer


@contextmanager
def _page(finder: Finder, visits: Visits) -> Iterator[_Browser]:
    """The page's interface, served as it always is, but for the clock."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]
        app = application(finder, visits, Background(finder.index.home), "demo", port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", ws="none"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield _Browser(port)
        finally:
            server.should_exit = True
            thread.join()


def _use(finder: Finder, person: Person, searches: int, random: np.random.Generator, done: Done) -> None:
    """Search, look at results from the top, open what looks right, and stay or come back at once."""
    clock = _Clock()
    visits = Visits(finder, clock)
    before: list[tuple[int, str]] = []
    with _page(finder, visits) as page:
        for _ in range(searches):
            if before and random.random() < _AGAIN:
                wanted, query = before[random.integers(len(before))]
            else:
                item = person.target(random)
                wanted, query = item.document, person.query(item, random)
            before.append((wanted, query))
            answer = page.ask("search", q=f"{query} ")
            page.tell("shown", id=answer["id"])
            for index, candidate in enumerate((visits.results(answer["id"]) or [])[:DISPLAYED]):
                id_ = candidate.document.id
                examined = random.random() < (1 / (index + 1)) ** person.gamma
                wants = random.random() < (_SURE if id_ == wanted else _NOISE)
                if examined and wants:
                    page.tell("open", id=answer["id"], index=index)
                    stays = id_ == wanted or random.random() < 0.5
                    clock.now += QUICK * (3.0 if stays else 0.3)
                    page.tell("closed")
            done()


def _judged(finder: Finder, person: Person, random: np.random.Generator) -> _Judged:
    """A search that nobody learns from."""
    item = person.target(random)
    query = person.query(item, random)
    results = list(finder.find(f"{query} "))
    ids = [one.document.id for one in results]
    if item.document not in ids:
        return _Judged(np.zeros((0, len(_NAMES)), np.float32), np.zeros(0), -1)
    matrix = scaled(Features.of(FEATURES, {}).matrix(query, results))
    return _Judged(matrix, np.array([one.score for one in results]), ids.index(item.document))


def _quality(searches: list[_Judged], weights: Float32s | None) -> Quality:
    """MRR, and NDCG@10 with the target as the only relevant document; None: the engine's score ranks.

    Among equal scores, the target has the middle rank.
    """
    reciprocal, gains = [], []
    for one in searches:
        scores = one.scores if weights is None else one.features.astype(np.float64) @ weights
        if one.target < 0:
            reciprocal.append(0.0)
            gains.append(0.0)
            continue
        own = scores[one.target]
        rank = 1 + np.sum(scores > own) + (np.sum(scores == own) - 1) / 2
        reciprocal.append(1 / rank)
        gains.append(1 / np.log2(1 + rank) if rank <= DISPLAYED else 0.0)
    return float(np.mean(reciprocal)), float(np.mean(gains))


def draw_demo(found: Sequence[Mapping[str, Quality]]) -> Figure:
    """Draw the MRR of each ranker, of every seed, and their mean."""
    with mpl.rc_context({**STYLE, "font.size": 9}):
        figure = Figure(figsize=(5.4, 2.4), layout="constrained")
        axes = figure.subplots()
        for place, name in enumerate(reversed(list(found[0]))):
            values = [one[name][0] for one in found]
            colour = PALETTE["blue" if name == "federated" else "grey"]
            axes.scatter(values, [place] * len(values), s=12, color=colour, alpha=0.5)
            axes.scatter([np.mean(values)], [place], s=60, marker="|", color=colour)
            axes.text(float(np.mean(values)), place + 0.28, f"{np.mean(values):.3f}", ha="center", color=colour)
        axes.set_yticks(range(len(found[0])), list(reversed(list(found[0]))))
        axes.set_ylim(-0.5, len(found[0]) - 0.3)
        axes.set_xlabel("MRR on searches that nobody learnt from; a dot per seed")
    return figure
