"""The personal layer: fitted as its formula says, used where it is surely no worse, and never sent."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from help.device_logs import raw_bytes
from scipy.optimize import minimize

from fultr import DeviceLog, FultrError, Search
from fultr.device import search as searching
from fultr.device.current import write_current
from fultr.device.mailbox import answer_message
from fultr.device.personal import LEAST_QUERIES, Clicked, fit, judge, layer_of
from fultr.device.policy import DevicePolicy
from fultr.federated.budget import model_of
from fultr.federated.federate import task_of
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server
from fultr.federated.wire import task_bytes
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Versions

NAMES = ["match", "fresh", "folder"]
FEATURES = {
    "match": lambda query, candidate: candidate[0],
    "fresh": lambda query, candidate: candidate[1],
    "folder": lambda query, candidate: candidate[2],
}
RANKS = 10


def searches(random, count: int, shared, own, gamma: float = 1.0, documents: int = 30):
    """For each search the candidates' features, and where in the shared order of the best ten clicks are."""
    for _ in range(count):
        features = random.random((documents, len(shared)))
        wanted = np.exp(5 * features @ (shared + own))
        target = random.choice(documents, p=wanted / wanted.sum())
        order = np.argsort(-features @ shared)[:RANKS]
        examined = random.random(RANKS) < 1 / np.arange(1, RANKS + 1) ** gamma
        yield features, order, examined & (random.random(RANKS) < np.where(order == target, 0.95, 0.04))


def clicks_of(random, count: int, shared, own, gamma: float = 1.0) -> Clicked:
    rows = [
        (features[order], features[order] @ shared, ~clicked | (np.arange(RANKS) == rank), rank, number)
        for number, (features, order, clicked) in enumerate(searches(random, count, shared, own, gamma))
        for rank in np.flatnonzero(clicked)
    ]
    return Clicked(*(np.array(part) for part in zip(*rows, strict=True)))


def gain(random, shared, own, delta, count: int = 400) -> float:
    """How much higher a layer puts what is looked for, in truth."""
    found = []
    for _ in range(count):
        features = random.random((30, len(shared)))
        wanted = np.exp(5 * features @ (shared + own))
        ranks = [np.argsort(np.argsort(-features @ weights)) for weights in (shared + delta, shared)]
        with_layer, without = (wanted / np.log2(2 + rank) / wanted.sum() for rank in ranks)
        found.append(with_layer.sum() - without.sum())
    return float(np.mean(found))


# The formula


def test_a_fit_has_the_largest_posterior_density():
    random = np.random.default_rng(1)
    clicked = clicks_of(random, 150, random.normal(size=3), np.array([0.0, 1.0, 0.0]))
    clicked = clicked._replace(there=clicked.there & ((random.random(clicked.there.shape) < 0.8) | ~clicked.there))
    clicked.there[np.arange(len(clicked.ranks)), clicked.ranks] = True
    centred = [row[there] - row[there].mean() for row, there in zip(clicked.scores, clicked.there, strict=True)]
    unit = np.sqrt(np.mean([np.mean(row**2) for row in centred]))

    def loss(at):
        total = (at[0] - 1) ** 2 / (2 * 3**2) + (at[1] - 1) ** 2 / 2 + (at[2:] ** 2).sum() / 2
        for features, scores, there, rank, _ in zip(*clicked, strict=True):
            odds = {
                d: np.exp(at[0] * scores[d] / unit + features[d] @ at[2:]) / (d + 1) ** at[1]
                for d in range(RANKS)
                if there[d]
            }
            total -= np.log(odds[rank] / sum(odds.values()))
        return total

    best = minimize(loss, np.r_[1.0, 1.0, 0.0, 0.0, 0.0], method="BFGS").x
    found = fit(clicked)
    np.testing.assert_allclose(found.delta, best[2:] * unit / best[0], atol=2e-4)
    assert found.gamma == pytest.approx(best[1], abs=2e-4)


def test_nothing_to_fit_is_no_layer():
    none = Clicked(np.zeros((0, 4, 2)), np.zeros((0, 4)), np.zeros((0, 4), bool), *np.zeros((2, 0), int))
    layer = layer_of(none, ["a", "b"], True, "default", 0, 0.0)
    assert (layer.weights, layer.used) == ({}, False)
    assert (fit(none).delta == 0).all()
    one = Clicked(np.ones((3, 2, 2)), np.ones((3, 2)), np.ones((3, 2), bool), np.zeros(3, int), np.full(3, 7))
    assert judge(one) == (0.0, 0.0)


def test_scores_beyond_all_numbers_are_no_reason_to_fail():
    random = np.random.default_rng(0)
    clicked = clicks_of(random, 100, np.ones(3), np.zeros(3))
    assert not layer_of(clicked._replace(scores=clicked.scores * np.inf), NAMES, True, "v", 1, 0.0).used


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_a_layer_is_hardly_ever_used_where_it_is_worse(gamma):
    """100 devices whose users want what the shared ranker has: 5% are allowed, and 2.6 standard errors."""
    used = []
    for seed in range(100):
        random = np.random.default_rng([seed, 5])
        shared = random.normal(size=8)
        clicked = clicks_of(random, 150, shared, np.zeros(8), gamma)
        used.append(layer_of(clicked, list("abcdefgh"), True, "v", 0, 0.0).used)
    assert sum(used) <= 100 * 0.05 + 2.6 * np.sqrt(100 * 0.05 * 0.95)


@pytest.mark.slow
def test_a_layer_is_mostly_used_where_it_is_better():
    gains = []
    for seed in range(30):
        random = np.random.default_rng([seed, 6])
        shared, own = random.normal(size=8), random.normal(size=8)
        clicked = clicks_of(random, 300, shared, own)
        layer = layer_of(clicked, list("abcdefgh"), True, "v", 0, 0.0)
        if layer.used:
            delta = np.array([layer.weights.get(name, 0.0) for name in "abcdefgh"])
            gains.append(gain(random, shared, own, delta))
    assert len(gains) >= 20
    assert min(gains) > -0.01
    assert np.mean(gains) > 0.1


# In a search


def fill(search: Search, count: int = 400, seed: int = 0, own=(0.0, 0.0, 3.0)) -> None:
    random = np.random.default_rng(seed)
    shared = np.array([1.0, 0.2, 0.0])
    for number, (features, order, clicked) in enumerate(searches(random, count, shared, np.array(own))):
        results = search.rank(f"query {seed} {number}", [tuple(row) for row in features[order]])
        for rank in np.flatnonzero(clicked):
            results.clicked(int(rank))


def opened(path: Path, **options) -> Search:
    usual = {"default": {"match": 1.0, "fresh": 0.2}, "normalised": False, "personal": True}
    return Search(path, FEATURES, **{**usual, **options})


CANDIDATES = [(0.9, 0.5, 0.0), (0.8, 0.5, 1.0), (0.1, 0.1, 0.1)]


def test_a_layer_changes_the_order_and_says_so(path):
    with opened(path) as search:
        fill(search)
        before = search.rank("x", CANDIDATES, shown=False)
        layer = search.personalise()
        after = search.rank("x", CANDIDATES)
        assert layer.used
        assert layer.queries >= LEAST_QUERIES
        assert (before[0], after[0]) == (CANDIDATES[0], CANDIDATES[1])
        assert (before.version, after.version) == ("default", "default+personal")
        assert search.log.latest(1)[0].version == "default+personal"
        why = after.contributions(0)
        assert why["folder"] == pytest.approx(layer.weights["folder"])
        assert why["match"] == pytest.approx(0.8 + 0.8 * layer.weights["match"], rel=1e-5)
        search.personal = False
        assert search.rank("x", CANDIDATES, shown=False)[0] == CANDIDATES[0]
    with opened(path, personal=False) as search:
        assert search.personalise() is None
        assert search.rank("x", CANDIDATES)[0] == CANDIDATES[0]


def test_it_is_fitted_again_when_there_is_more_and_not_before(path, monkeypatch):
    with opened(path) as search:
        fill(search, 100)
        first = search.personalise()
        assert search.personalise() is search.personalise()
        assert search.personalise().made == first.made
        assert search.personalise(now=True).made > first.made
        fill(search, 100, seed=1)
        assert search.personalise().clicks > 1.2 * first.clicks


def test_it_is_for_one_version_of_the_shared_ranker(path, tmp_path):
    with opened(path, rankers=tmp_path / "rankers") as search:
        fill(search)
        assert search.personalise().used
        ranker = Ranker(np.float32([1.0, 0.1, 0.0]), np.arange(1, 4), normalised=False, feature_names=tuple(NAMES))
        version = Versions(tmp_path / "rankers").write(ranker, parent=None, configuration={}, metrics={})
        write_current(tmp_path / "rankers", version.name)
        assert search.rank("x", CANDIDATES, shown=False).version == version.name
        assert search.personalise().version == version.name
        assert search.rank("x", CANDIDATES, shown=False).version == f"{version.name}+personal"


@pytest.mark.parametrize("what", [{"query": "query 0 3"}, {"before": 1.0}, {"all": True}])
def test_whatever_is_forgotten_takes_the_layer_with_it(path, what):
    with opened(path) as search:
        fill(search)
        kept = search.personalise()
        weight = json.dumps(kept.weights["folder"]).encode()
        assert weight in raw_bytes(path)
        with DeviceLog.open(path) as other:  # another process: the application notices
            other.forget(**what)
        assert search.rank("x", CANDIDATES, shown=False).version == "default"
        assert weight not in raw_bytes(path)


def test_what_is_forgotten_while_it_is_fitted_leaves_no_layer(path, monkeypatch):
    with opened(path) as search:
        fill(search, 100)

        def disturbed(*given):
            search.log.forget(query="query 0 3")
            return layer_of(*given)

        monkeypatch.setattr(searching, "layer_of", disturbed)
        assert search.personalise() is None
        assert search.rank("x", CANDIDATES, shown=False).version == "default"


def test_it_is_in_the_export_and_can_be_deleted_by_itself(path):
    with opened(path) as search:
        fill(search, 100)
        layer = search.personalise()
        lines = io.StringIO()
        search.log.export(lines)
        assert json.loads(lines.getvalue().splitlines()[0])["personal_layer"]["weights"] == layer.weights
        search.forget_personal()
        lines = io.StringIO()
        search.log.export(lines)
        assert json.loads(lines.getvalue().splitlines()[0])["personal_layer"] is None
        assert search.log.stats().impressions == 100


@pytest.mark.parametrize("layer", ["{", "[]", '{"weights": {"a": NaN}}', '{"version": 1}'])
def test_a_damaged_layer_is_none(path, layer):
    with opened(path) as search:
        with search.log._connected() as connection:
            connection.execute("INSERT INTO personal VALUES (1, 5.0, ?)", (layer,))
        assert search.rank("x", CANDIDATES).version == "default"


# What leaves


@pytest.mark.parametrize("propensity", ["none", "shrunk"])
def test_a_reply_is_the_same_with_and_without_a_layer_byte_for_byte(path, tmp_path, propensity):
    with opened(path) as search:
        fill(search)
    copy = Path(shutil.copy(path, tmp_path / "copy.db"))
    with opened(path) as search:
        layer = search.personalise()
        assert layer.used
    settings = FederationSettings.of(
        {"features": 3, "feature_names": ",".join(NAMES), "displayed": RANKS, "normalised": False,
         "propensity": propensity}
    )  # fmt: skip
    model = model_of(settings)
    server = Server.initial(settings.algorithm(), model, model.initial(), settings.displayed)
    asked = task_bytes(task_of(settings, 0, server))
    policy = DevicePolicy()
    with_layer, said = answer_message(path, asked, policy, run=1)
    without, _ = answer_message(copy, asked, policy, run=1)
    assert said.startswith("answered round 1")
    assert with_layer == without
    for weight in layer.weights.values():
        assert np.float32(weight).tobytes() not in with_layer
        assert np.float64(weight).tobytes() not in with_layer


def test_personal_means_yes_or_no(path):
    with pytest.raises(FultrError, match="personal: expected true or false"):
        opened(path, personal="yes")
