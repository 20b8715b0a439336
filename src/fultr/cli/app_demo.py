"""What `fultr search demo` does: five people search their own files, and a federation learns from their clicks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fultr.app.features import DEFAULT, FEATURES
from fultr.app.home import Home
from fultr.app.ranking import DISPLAYED, EXPLORATION, Finder
from fultr.cli.app_people import Person, person_of, write_files
from fultr.cli.app_use import IN_BROWSER, use
from fultr.cli.chromium import find_chromium
from fultr.cli.console import progress_bar, say
from fultr.core.arrays import Float32s, Float64s
from fultr.core.drawing import PALETTE, STYLE
from fultr.deploy.folder import init_deployment
from fultr.deploy.services import start, stop
from fultr.deploy.training import follow, submit
from fultr.device.exploration import orders_for, ranks_in_orders
from fultr.device.features import Features
from fultr.device.local import LocalDevices
from fultr.device.policy import DevicePolicy
from fultr.device.search import Search
from fultr.federated.federate import federate
from fultr.federated.federation import FederationSettings
from fultr.rankers.plain import scaled
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Versions

PEOPLE = 5
_HELD_OUT = 200  # of a person, that judge
_WITH_BROWSER = 2  # people who begin in a browser, if there is one
_NAMES = list(FEATURES)

# Chosen on other seeds than those that are reported, for each of the three by itself: see docs/app.md.
_CHOSEN = {"loss": "softmax", "server_rate": 1.0}
_CORRECTED = {"clip": 3.0, "client_rate": 0.02}
_UNCORRECTED = {"propensity": "none", "client_rate": 0.1}
_ALONE = {"client_rate": 0.005, "least_devices": 1, "least_replies": 1}


Quality: TypeAlias = tuple[float, float]
"""MRR and NDCG@10."""


@dataclass(frozen=True)
class _Judged:
    """A search whose target is known: the candidates' features and scores, and which one is the target; -1: none."""

    features: Float32s
    scores: Float64s
    target: int


def run_demo(folder: Path, seed: int, rounds: int, searches: int, severity: float = 1.0) -> dict[str, Quality]:
    """Make, search, train, judge: the quality of each ranker, the mean over people.

    Args:
        folder: for everything.
        seed: of files, people and their searches.
        rounds: of the federation.
        searches: of each person, that are logged.
        severity: the mean of people's bias severities.
    """
    federation = folder / "federation"
    init_deployment(federation, PEOPLE)
    homes = [Home.at(federation / "nodes" / f"node-{u + 1}") for u in range(PEOPLE)]
    say(f"1 of 4: {PEOPLE} people's files are indexed")
    people = [_person(home, folder / f"person {u}", seed, u, severity) for u, home in enumerate(homes)]
    chromium = find_chromium()
    where = f"{_WITH_BROWSER} of them first in Chromium, {IN_BROWSER} searches each" if chromium else (
        "all without a browser, as Chromium or the package websockets is not installed"
    )  # fmt: skip
    say(f"2 of 4: they search, through the page's interface; {where}")
    judged: list[list[_Judged]] = []
    with progress_bar(PEOPLE * searches, "Searching") as done:
        for u, (home, person) in enumerate(zip(homes, people, strict=True)):
            with Finder(home) as finder:
                random = np.random.default_rng([seed, u, 1])
                use(finder, person, searches, random, done, chromium if u < _WITH_BROWSER else None)
                judged.append([_judged(finder, person, random) for _ in range(_HELD_OUT)])
    say("3 of 4: a federation of their devices trains, over TLS, each within its policy")
    settings = FederationSettings.of(
        {"features": len(_NAMES), "feature_names": ",".join(_NAMES), "displayed": DISPLAYED, "rounds": rounds,
         "least_devices": PEOPLE, **_CHOSEN, **_CORRECTED}
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
    ranker = Versions(federation / "state" / "versions").read("latest").ranker
    say("4 of 4: each trains alone; all train on clicks as they are; everything is judged")
    raw = FederationSettings.of({**settings.as_mapping(), **_UNCORRECTED})
    uncorrected = _trained(_copies(logs, folder / "raw"), raw, folder / "raw-state")
    one = FederationSettings.of({**settings.as_mapping(), **_ALONE})
    alone = [_trained(_copies({u: logs[u]}, folder / f"{u}"), one, folder / f"state {u}") for u in range(PEOPLE)]
    own = [_personal(path, ranker) for path in _copies(logs, folder / "personal").values()]
    say(f"{sum(layer.any() for layer in own)} of {PEOPLE} devices use a personal layer")
    default = np.array([DEFAULT.get(name, 0.0) for name in _NAMES], np.float32)
    everybody: dict[str, list[Float32s | None]] = {
        "BM25 alone": [None] * PEOPLE,
        "default": [default] * PEOPLE,
        "each alone": [*alone],
        "uncorrected clicks": [uncorrected] * PEOPLE,
        "federated": [ranker.weights] * PEOPLE,
        "with personal layers": [ranker.weights + layer for layer in own],
    }
    found = {
        name: _mean([_quality(some, one) for some, one in zip(judged, weights, strict=True)])
        for name, weights in everybody.items()
    }
    found["exploring"] = _mean([_quality(some, ranker.weights, EXPLORATION) for some in judged])
    return found


def _person(home: Home, files: Path, seed: int, u: int, severity: float) -> Person:
    """Somebody with files, which are indexed."""
    random = np.random.default_rng([seed, u])
    write_files(files, u, random)
    with Finder(home) as finder:
        finder.index.add([files])
        finder.index.update()
        person = person_of(finder.index.catalogue, random)
    return replace(person, gamma=person.gamma * severity)


def _personal(log: Path, ranker: Ranker) -> Float32s:
    """The personal layer on top of a ranker, as far as the device would use it."""
    with Search(log, FEATURES, default=ranker, displayed=DISPLAYED, hold_text=True, personal=True) as search:
        layer = search.personalise()
    weights = layer.weights if layer is not None and layer.used else {}
    return np.array([weights.get(name, 0.0) for name in _NAMES], np.float32)


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


def _trained(logs: dict[int, Path], settings: FederationSettings, folder: Path) -> Float32s:
    return federate(LocalDevices(logs, DevicePolicy(seconds_apart=0)), settings, folder).weights


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


def _quality(searches: list[_Judged], weights: Float32s | None, exploration: float = 0.0) -> Quality:
    """MRR, and NDCG@10 with the target as the only relevant document; None: the engine's score ranks.

    Among equal scores, the target has the middle rank. With exploration, what is expected of the orders that are shown.
    """
    found = []
    for one in searches:
        if one.target < 0:
            found.append((0.0, 0.0))
            continue
        scores = one.scores if weights is None else one.features.astype(np.float64) @ weights
        own = scores[one.target]
        rank = 1 + float(np.sum(scores > own) + (np.sum(scores == own) - 1) / 2)
        ranks = [rank]
        if exploration and round(rank) <= min(DISPLAYED, len(scores)):
            orders = orders_for(exploration)
            ranks = [*ranks_in_orders(np.arange(min(DISPLAYED, len(scores))), orders)[round(rank) - 1]]
        gains = [1 / np.log2(1 + one) if one <= DISPLAYED else 0.0 for one in ranks]
        found.append((float(np.mean([1 / one for one in ranks])), float(np.mean(gains))))
    return _mean(found)


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
