"""Every click model through the same cases, against a plain enumeration of it; tolerances are standard errors."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

from fultr.clicks.log import ClickLog
from fultr.clicks.models import CLICK_MODELS
from fultr.clicks.models.model import click_model_of
from fultr.clicks.models.position_based import examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.threads import run_chunks

Numbers = Sequence[float]


def position_based(clicks: Sequence[int], base: Numbers, attraction: Numbers, users: ClickModel) -> float:
    """The probability of these clicks: ranks are independent."""
    return prod(b * a if c else 1 - b * a for c, b, a in zip(clicks, base, attraction, strict=True))


def cascade(clicks: Sequence[int], base: Numbers, attraction: Numbers, users: ClickModel) -> float:
    """The probability of these clicks, added up over the ranks at which the user may stop."""
    total = 0.0 if any(clicks) else 1 - base[0]
    arrived = base[0]
    for r, (clicked, chance) in enumerate(zip(clicks, attraction, strict=True)):
        arrived *= chance if clicked else 1 - chance
        further = base[r + 1] / base[r] if r + 1 < len(base) else 0.0
        if clicked:
            further *= users.continues
        if not any(clicks[r + 1 :]):
            total += arrived * (1 - further)
        arrived *= further
    return total


def dependent_click(clicks: Sequence[int], base: Numbers, attraction: Numbers, users: ClickModel) -> float:
    """The cascade's, with a factor of its own after a click at each rank."""
    total = 0.0 if any(clicks) else 1 - base[0]
    arrived = base[0]
    for r, (clicked, chance) in enumerate(zip(clicks, attraction, strict=True)):
        arrived *= chance if clicked else 1 - chance
        further = base[r + 1] / base[r] if r + 1 < len(base) else 0.0
        if clicked:
            further *= (r + users.continues) / (r + 1)
        if not any(clicks[r + 1 :]):
            total += arrived * (1 - further)
        arrived *= further
    return total


def trust(clicks: Sequence[int], base: Numbers, attraction: Numbers, users: ClickModel) -> float:
    """Ranks are independent; some users click whatever they examine, if there is anything."""
    trusted = [users.trust / rank for rank in range(1, len(clicks) + 1)]
    chances = [t + (1 - t) * a if a else 0.0 for t, a in zip(trusted, attraction, strict=True)]
    return position_based(clicks, base, chances, users)


def contextual(clicks: Sequence[int], base: Numbers, attraction: Numbers, users: ClickModel) -> float:
    """Query 0 is of the first kind."""
    return position_based(clicks, [b ** (1 - users.contrast) for b in base], attraction, users)


# By the package's own names: a plain version of each model, and settings to try it with.
PLAIN: dict[str, tuple[Callable[..., float], list[ClickModel]]] = {
    "position-based": (position_based, [ClickModel()]),
    "cascade": (cascade, [ClickModel(click_model="cascade", continues=share) for share in (0.0, 0.4, 1.0)]),
    "dependent-click": (
        dependent_click,
        [ClickModel(click_model="dependent-click", continues=share) for share in (0.0, 0.4)],
    ),
    "trust": (trust, [ClickModel(click_model="trust", trust=share) for share in (0.0, 0.6)]),
    "contextual": (contextual, [ClickModel(click_model="contextual", contrast=0.4)]),
}
USERS = [users for _, several in PLAIN.values() for users in several]
of_every_model = pytest.mark.parametrize(
    "users", USERS, ids=lambda users: f"{users.click_model} {users.continues} {users.trust}"
)


def test_every_model_is_in_the_table():
    assert list(PLAIN) == list(CLICK_MODELS)
    for name, (_, several) in PLAIN.items():
        assert several
        assert {users.click_model for users in several} == {name}


def simulated(
    users: ClickModel,
    attraction: Any,
    base: Any,
    clients: Any,
    *,
    clicks: int = 10**6,
    most: int = 40,
    queries: int = 1,
) -> ClickLog:
    sessions = Sessions(queries=queries, clicks=clicks, most_sessions=most)
    model = click_model_of(users)
    return simulate_clicks(model, np.array(attraction), base, clients, sessions=sessions, seed=5, round_=2)


def unclicked(users: ClickModel, base: Any, queries: Any) -> Any:
    """Examination where nothing above is clicked: the base, but for a model in which the query counts."""
    if users.click_model != "contextual":
        return base
    return base ** np.where(queries % 2, 1 + users.contrast, 1 - users.contrast)[:, np.newaxis]


def patterns(ranks: int) -> list[tuple[int, ...]]:
    return list(itertools.product((0, 1), repeat=ranks))


@of_every_model
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(
    "attraction",
    [[0.3, 0.6, 0.9], [1.0, 0.1, 0.1, 1.0], [0.5, 0.8, 0.0, 0.0], [0.7], [0.2, 0.0], [1.0, 1.0]],
    ids=["three documents", "the paper's", "two documents of four", "K = 1", "one document", "certain clicks"],
)
def test_clicks_have_the_distribution_of_the_plain_model(users, gamma, attraction):
    """Not the click rates of the ranks alone: the frequency of every pattern of clicks."""
    clients, most, ranks = 500, 40, len(attraction)
    base = examination(np.full(clients, gamma), ranks)
    log = simulated(users, [attraction], base, np.arange(clients), most=most)
    n = clients * most
    assert len(log.clicks) == n
    assert not log.clicks[:, np.array(attraction) == 0].any()
    probability = {p: PLAIN[users.click_model][0](p, base[0], attraction, users) for p in patterns(ranks)}
    assert sum(probability.values()) == pytest.approx(1)
    found = np.bincount(log.clicks @ (1 << np.arange(ranks)[::-1]), minlength=2**ranks)
    for count, chance in zip(found, probability.values(), strict=True):
        chance = min(max(chance, 0.0), 1.0)
        assert abs(count - n * chance) <= 4.5 * np.sqrt(n * chance * (1 - chance)) + 1e-9 * n
    for r in range(ranks):
        chance = min(sum(value for pattern, value in probability.items() if pattern[r]), 1.0)
        assert abs(log.clicks[:, r].sum() - n * chance) <= 4.5 * np.sqrt(n * chance * (1 - chance)) + 1e-9 * n


@of_every_model
def test_a_click_over_its_examination_has_the_mean_that_the_model_states(users):
    """Exactly, over all patterns of clicks; where examination can be 0, some users' clicks are lost for good."""
    attraction, base = np.array([0.3, 0.9, 0.5, 0.2]), examination(np.array([0.8]), 4)
    wanted = click_model_of(users).click_if_examined(attraction)
    if users.click_model != "trust":
        np.testing.assert_array_equal(wanted, attraction)
    every = np.array(patterns(4), np.uint8)
    log = ClickLog(np.zeros(len(every), np.int32), every, np.array([0, len(every)]))
    given = click_model_of(users).examination_given_clicks(base, log)
    assert given.shape == every.shape
    assert given.dtype == np.float64
    probability = np.array([PLAIN[users.click_model][0](clicks, base[0], attraction, users) for clicks in every])
    assert not probability[(every * (given == 0)).any(axis=1)].any()
    weights = np.divide(1, given, out=np.zeros_like(given), where=(every > 0) & (given > 0))
    mean = probability @ weights
    if (given > 0).all():
        np.testing.assert_allclose(mean, wanted, rtol=1e-12)
    else:
        assert (mean[1:] < wanted[1:]).all()
    np.testing.assert_array_equal(given[:, 0], base[0, 0])
    np.testing.assert_array_equal(given[0], unclicked(users, base, np.zeros(1, np.int32))[0])


@of_every_model
def test_simulated_clicks_over_their_examination_are_unbiased(users):
    clients = 4000
    base = examination(np.linspace(0, 1.5, clients), 4)
    attraction = np.array([0.4, 0.2, 0.7, 0.3])
    log = simulated(users, [attraction], base, np.arange(clients), most=20)
    given = click_model_of(users).examination_given_clicks(base, log)
    assert not log.clicks[given == 0].any()
    weights = np.divide(1, given, out=np.zeros_like(given), where=log.clicks > 0)
    error = weights.std(axis=0) / np.sqrt(len(weights))
    wanted = click_model_of(users).click_if_examined(attraction)
    if given.all():
        assert (np.abs(weights.mean(axis=0) - wanted) < 4 * error).all()
    else:
        assert (weights.mean(axis=0) - wanted < 4 * error).all()


@of_every_model
def test_no_clicks_are_possible(users):
    base = examination(np.array([0.0, 1.0]), 3)
    log = simulated(users, np.zeros((2, 3)), base, np.arange(2), clicks=1, most=7, queries=2)
    assert not log.clicks.any()
    assert np.diff(log.offsets).tolist() == [7, 7]
    given = click_model_of(users).examination_given_clicks(base, log)
    np.testing.assert_array_equal(given, unclicked(users, np.repeat(base, 7, axis=0), log.queries))


@of_every_model
def test_no_impressions(users):
    log = ClickLog(np.empty(0, np.int32), np.empty((0, 3), np.uint8), np.zeros(3, np.int64))
    assert click_model_of(users).examination_given_clicks(np.ones((2, 3)), log).shape == (0, 3)


@of_every_model
def test_sessions_end_with_enough_clicks_or_after_the_most(users):
    """The last session is finished: its clicks past the m-th are kept."""
    rng = np.random.default_rng(0)
    attraction, clients, m = rng.uniform(0.1, 0.9, (30, 4)), 300, 5
    base = examination(rng.uniform(0, 1, clients), 4)
    log = simulated(users, attraction, base, np.arange(clients), clicks=m, most=6, queries=5)
    capped = 0
    for begin, end in itertools.pairwise(log.offsets):
        clicks = log.clicks[begin:end].sum(axis=1)
        assert clicks[:-1].sum() < m
        assert end - begin == 6 or clicks.sum() >= m
        capped += clicks.sum() < m
    assert 0 < capped < clients
    most_at_once = log.clicks.sum(axis=1).max()
    assert (log.clicks_by_client() > m).any() == (most_at_once > 1)


@of_every_model
def test_the_same_clicks_in_any_blocks_and_on_any_threads(users):
    rng = np.random.default_rng(1)
    attraction, clients = rng.uniform(0.0, 1.0, (40, 5)), 130
    base = examination(rng.uniform(0, 2, clients), 5)
    whole = simulated(users, attraction, base, np.arange(clients), clicks=4, queries=3)
    given = click_model_of(users).examination_given_clicks(base, whole)
    for block, threads in ((1, 1), (7, 2), (64, 3)):
        begins = range(0, clients, block)
        logs: list[Any] = [None] * len(begins)

        def work(i: int, begins: range = begins, block: int = block, logs: list[Any] = logs) -> None:
            some = np.arange(begins[i], min(begins[i] + block, clients))
            log = simulated(users, attraction, base[some], some, clicks=4, queries=3)
            logs[i] = log, click_model_of(users).examination_given_clicks(base[some], log)

        run_chunks(work, len(begins), threads)
        np.testing.assert_array_equal(np.concatenate([log.queries for log, _ in logs]), whole.queries)
        np.testing.assert_array_equal(np.concatenate([log.clicks for log, _ in logs]), whole.clicks)
        np.testing.assert_array_equal(np.concatenate([np.diff(log.offsets) for log, _ in logs]), np.diff(whole.offsets))
        np.testing.assert_array_equal(np.concatenate([examined for _, examined in logs]), given)


_PROCESS = """
import sys
import numpy as np
from fultr.clicks.models import CLICK_MODELS
from fultr.clicks.models.model import click_model_of
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions

hits = misses = 0
for name in CLICK_MODELS:
    model = click_model_of(ClickModel(click_model=name))
    simulate_clicks(model, np.ones((5, 2)), np.ones((1, 2)), np.arange(1), sessions=Sessions(), seed=0, round_=0)
    stats = sys.modules[type(model).__module__]._run_sessions.stats
    hits, misses = hits + sum(stats.cache_hits.values()), misses + sum(stats.cache_misses.values())
print(hits, misses)
"""


@pytest.mark.slow
def test_another_process_finds_the_compiled_models(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def hits_and_misses() -> list[int]:
        done = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True)
        return [int(number) for number in done.stdout.split()]

    assert hits_and_misses() == [0, len(CLICK_MODELS)]
    assert hits_and_misses() == [len(CLICK_MODELS), 0]
