"""Users and clicks against the model they are drawn from; tolerances are standard errors."""

from __future__ import annotations

import numpy as np
import plain
import pytest
from scipy.stats import truncnorm

from fultr.clicks.models.position_based import PositionBased, bias_severities, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, advance, below, start, uniforms, unit
from fultr.study.policy import display
from fultr.study.users import attraction


def uniform(n: int, seed: int = 0) -> np.ndarray:
    return uniforms(seed, int(Purpose.BIAS_SEVERITY), 0, np.arange(n))


@pytest.mark.parametrize(("gamma", "sd"), [(1.0, 0.1), (1.0, 0.1**0.5), (0.2, 0.1**0.5), (0.0, 0.5), (0.05, 1.0)])
def test_bias_severity_is_a_truncated_gaussian(gamma, sd):
    n = 200_000
    severities = bias_severities(ClickModel(gamma=gamma, gamma_sd=sd), uniform(n))
    law = truncnorm(-gamma / sd, np.inf, loc=gamma, scale=sd)
    mean, variance, kurtosis = (float(x) for x in law.stats("mvk"))
    assert severities.min() >= 0
    assert abs(severities.mean() - mean) < 4 * np.sqrt(variance / n)
    assert abs(severities.var() - variance) < 4 * variance * np.sqrt((kurtosis + 2) / n)
    for share in (0.1, 0.5, 0.9):  # the whole distribution, not its moments alone
        assert abs((severities < law.ppf(share)).mean() - share) < 4 * np.sqrt(share * (1 - share) / n)


def test_every_uniform_number_gives_one_user():
    model = ClickModel(gamma=0.1, gamma_sd=1.0)
    numbers = np.linspace(0, 1, 1001)[:-1]
    severities = bias_severities(model, numbers)
    assert severities[0] == pytest.approx(0, abs=1e-12)
    assert (np.diff(severities) > 0).all()
    np.testing.assert_array_equal(bias_severities(model, numbers[300:310]), severities[300:310])


def make_log(gamma=1.0, clients=3000, sessions=None, seed=0, ranks=5, other=0.1, round_=0, numbers=None):
    rng = np.random.default_rng(1)
    data = plain.random_data(rng, queries=60, most=12)
    model = ClickModel(gamma=gamma, other_click=other)
    shown = display(data, rng.standard_normal(data.width).astype(np.float32), displayed=ranks)
    attracted = attraction(data, shown, model)
    numbers = np.arange(clients) if numbers is None else numbers
    examined = examination(bias_severities(model, uniforms(seed, int(Purpose.BIAS_SEVERITY), round_, numbers)), ranks)
    log = simulate_clicks(
        PositionBased(), attracted, examined, numbers, sessions=sessions or Sessions(), seed=seed, round_=round_
    )
    return data, shown, attracted, examined, log


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_click_rates_per_rank_equal_the_model(gamma):
    """Clicks minus click probabilities, summed over all impressions at a rank, is a martingale: its mean is 0."""
    _, _, attracted, examined, log = make_log(gamma, clients=20_000)
    client = np.repeat(np.arange(log.clients), np.diff(log.offsets))
    probability = examined[client] * attracted[log.queries]
    surplus = (log.clicks - probability).sum(axis=0)
    spread = np.sqrt((probability * (1 - probability)).sum(axis=0))
    assert (np.abs(surplus) <= 4 * spread).all()
    assert (log.clicks[probability == 0] == 0).all()


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("m", [1, 10])
def test_clicks_over_propensities_are_unbiased_and_clicks_alone_are_not(gamma, m):
    """At fixed weights: sum over clicks of h / p, minus sum over impressions of rho h, has mean 0 over cohorts."""
    data, shown, attracted, examined, log = make_log(gamma, clients=24_000, sessions=Sessions(clicks=m))
    weights = np.random.default_rng(4).standard_normal(data.width)
    h = np.zeros(shown.shown.shape)
    for q in range(shown.queries):
        rows = shown.shown[q][shown.shown[q] >= 0]
        scores = shown.features[rows, : data.width] @ weights
        for rank in range(rows.size):
            h[q, rank] = plain.h(scores, rank)
    client = np.repeat(np.arange(log.clients), np.diff(log.offsets))
    full = (attracted * h)[log.queries].sum(axis=1)
    with_ips = (log.clicks * h[log.queries] / examined[client]).sum(axis=1) - full
    without = (log.clicks * h[log.queries]).sum(axis=1) - full

    def by_cohort(values):
        """Sums over cohorts of 60 clients: never divided by a client's own number of sessions or clicks."""
        sums = np.bincount(client // 60, values, minlength=400)
        return sums.mean(), sums.std(ddof=1) / np.sqrt(sums.size)

    mean, error = by_cohort(with_ips)
    assert abs(mean) < 3.5 * error
    mean, error = by_cohort(without)
    assert mean < -10 * error


def test_the_session_under_way_is_finished_and_sessions_stop_at_enough_clicks():
    for m in (1, 3, 10):
        *_, log = make_log(clients=500, sessions=Sessions(clicks=m))
        for u in range(log.clients):
            clicks = log.clicks[log.offsets[u] : log.offsets[u + 1]].sum(axis=1)
            assert clicks[:-1].sum() < m <= clicks.sum()
    assert (log.clicks_by_client() > 10).any()  # all clicks of the last session are kept


def test_a_cap_on_sessions_leaves_clients_with_fewer_clicks_or_none():
    *_, log = make_log(clients=400, sessions=Sessions(most_sessions=2))
    assert (np.diff(log.offsets) <= 2).all()
    assert (log.clicks_by_client() == 0).any()
    *_, log = make_log(clients=50, sessions=Sessions(most_sessions=7), other=0.0, gamma=50.0)
    assert np.diff(log.offsets).max() == 7


def test_queries_are_drawn_uniformly_and_without_replacement():
    sessions = Sessions(queries=5, clicks=400, most_sessions=400)
    _, shown, *_, log = make_log(clients=600, sessions=sessions)
    distinct = [np.unique(log.queries[a:b]).size for a, b in zip(log.offsets[:-1], log.offsets[1:], strict=True)]
    assert set(distinct) == {5}  # some hundred sessions see each of five queries
    bounds = zip(log.offsets[:-1], log.offsets[1:], strict=True)
    drawn = np.concatenate([np.unique(log.queries[a:b]) for a, b in bounds])
    counts = np.bincount(drawn, minlength=shown.queries)
    expected = 600 * 5 / shown.queries
    assert abs(((counts - expected) ** 2 / expected).sum() / shown.queries - 1) < 4 * np.sqrt(2 / shown.queries)
    repeated = Sessions(queries=5, clicks=400, most_sessions=400, replacement=True)
    *_, log = make_log(clients=600, sessions=repeated)
    distinct = [np.unique(log.queries[a:b]).size for a, b in zip(log.offsets[:-1], log.offsets[1:], strict=True)]
    assert min(distinct) < 5


def test_a_client_takes_its_numbers_in_a_fixed_order():
    """A session's query, then one number per rank, all from the client's own stream: results stay the same for good."""
    _, _, attracted, examined, log = make_log(clients=40, sessions=Sessions(queries=4, clicks=6), round_=3, seed=2)
    for u in range(40):
        state = np.uint64(start(2, int(Purpose.CLIENT_QUERIES), 3, u))
        drawn: list[int] = []
        for top in range(attracted.shape[0] - 4, attracted.shape[0]):  # Floyd's method
            state = np.uint64(advance(state))
            found = below(state, top + 1)
            drawn.append(top if found in drawn else found)
        state = np.uint64(start(2, int(Purpose.CLICKS), 3, u))
        made = 0
        for i in range(log.offsets[u], log.offsets[u + 1]):
            state = np.uint64(advance(state))
            query = drawn[below(state, 4)]
            assert log.queries[i] == query
            for r in range(5):
                state = np.uint64(advance(state))
                assert log.clicks[i, r] == (unit(state) < examined[u, r] * attracted[query, r])
            assert made < 6
            made += int(log.clicks[i].sum())
        assert made >= 6


def test_too_few_queries_to_draw_from():
    attracted, examined = np.ones((3, 2)), np.ones((1, 2))
    with pytest.raises(FultrError, match="5 different ones, but has only 3"):
        simulate_clicks(PositionBased(), attracted, examined, np.arange(1), sessions=Sessions(), seed=0, round_=0)
    log = simulate_clicks(
        PositionBased(), attracted, examined, np.arange(1), sessions=Sessions(queries=3), seed=0, round_=0
    )
    assert log.clicks_by_client().tolist() == [10]


def test_a_client_does_the_same_whoever_else_is_simulated():
    *_, whole = make_log(clients=50)
    *_, part = make_log(numbers=np.array([7, 31]))
    for i, u in enumerate((7, 31)):
        assert plain.impressions_of(part, i) == plain.impressions_of(whole, u)
    *_, other_round = make_log(numbers=np.array([7]), round_=1)
    *_, other_seed = make_log(numbers=np.array([7]), seed=1)
    assert plain.impressions_of(other_round, 0) != plain.impressions_of(whole, 7)
    assert plain.impressions_of(other_seed, 0) != plain.impressions_of(whole, 7)


def test_documents_below_the_last_are_never_clicked():
    _, shown, *_, log = make_log(ranks=10)
    assert (shown.shown < 0).any()
    assert not log.clicks[shown.shown[log.queries] < 0].any()


def test_attraction_follows_the_grades():
    data = plain.random_data(np.random.default_rng(0), queries=30)
    shown = display(data, np.ones(data.width, np.float32))
    rho = attraction(data, shown, ClickModel())
    there = shown.documents >= 0
    grades = data.labels[shown.documents]
    assert (rho[there & (grades >= 3)] == 1).all()
    assert (rho[there & (grades < 3)] == 0.1).all()
    assert (rho[~there] == 0).all()
    assert (attraction(data, shown, ClickModel(relevant_grade=1))[there & (grades >= 1)] == 1).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (lambda: ClickModel(gamma=-1), "gamma: expected a number, at least 0, found -1"),
        (lambda: ClickModel(other_click=1.5), "other_click: expected a number, at least 0, at most 1, found 1.5"),
        (
            lambda: ClickModel(click_model="casacde"),
            'click_model: expected one of position-based, cascade, dependent-click, trust, contextual; found "casacde"',
        ),
        (lambda: ClickModel(continues=2), "continues: expected a number, at least 0, at most 1, found 2"),
        (lambda: Sessions(clicks=0), "clicks: expected a whole number, at least 1, at most 1,000,000, found 0"),
        (lambda: ClickModel(gamma=float("nan")), "gamma: expected a number, at least 0, found nan"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(FultrError, match=f"^{message}$"):
        settings()
