"""Federated estimators of examination: against plain versions, against the truth, and what they send."""

from __future__ import annotations

import numpy as np
import pytest
from help.estimation import RANKS, clicks_of, estimates, made_up, next_state, no_sums, relevance_of, state_with
from scipy.stats import beta, binom, truncnorm

from fultr.clicks.log import ClickLog, Display
from fultr.clicks.models.position_based import PositionBased, bias_severities, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.estimators.likelihoods import multiply_marginals
from fultr.federated.estimators.power_law import PRIORS, SEVERITIES, severity_prior
from fultr.federated.estimators.shrunk import STRENGTHS, THETAS, strength_priors
from fultr.federated.settings import Estimator


def plain_em(
    log: ClickLog, u: int, relevance: np.ndarray, shown: np.ndarray, start: float, iterations: int
) -> np.ndarray:
    """A client's own examination, impression by impression (Wang et al. 2018, Algorithm 1)."""
    rows = range(log.offsets[u], log.offsets[u + 1])
    theta = np.array([1.0] + [start] * (RANKS - 1))
    for _ in range(iterations):
        looked, shows = np.zeros(RANKS), np.zeros(RANKS)
        for i in rows:
            for k in range(RANKS):
                if shown[log.queries[i], k] < 0:
                    continue
                r = relevance[log.queries[i], k]
                shows[k] += 1
                looked[k] += 1 if log.clicks[i, k] else theta[k] * (1 - r) / (1 - theta[k] * r)
        theta = np.where(shows > 0, looked / np.maximum(shows, 1), theta)
        theta[0] = 1.0
    return theta


def test_personal_estimates_are_those_of_the_plain_version():
    display, weights = made_up()
    log = clicks_of(display, weights, np.linspace(0.2, 2, 20))
    estimator = Estimator("personal", estimate_iterations=7, estimate_start=0.4, estimate_floor=1e-6)
    sums = no_sums(estimator, weights.size - 1)
    found = estimates(estimator, state_with(estimator, weights), log, display, sums)
    relevance = relevance_of(display, weights)
    for u in range(20):
        np.testing.assert_allclose(found[u, 0], plain_em(log, u, relevance, display.shown, 0.4, 7), rtol=1e-5)


def test_the_gradient_is_that_of_the_expected_log_likelihood():
    display, weights = made_up()
    log = clicks_of(display, weights, np.full(10, 1.0))
    estimator = Estimator("pooled", estimate_start=0.4)
    sums = no_sums(estimator, weights.size - 1)
    estimates(estimator, state_with(estimator, weights), log, display, sums)
    relevance, theta = relevance_of(display, weights), np.array([1.0, 0.4, 0.4, 0.4])
    wanted, looked, shows = np.zeros(weights.size), np.zeros(RANKS), np.zeros(RANKS)
    for q, clicked in zip(log.queries, log.clicks, strict=True):
        for k in range(RANKS):
            if display.shown[q, k] < 0:
                continue
            r = relevance[q, k]
            target = 1.0 if clicked[k] else r * (1 - theta[k]) / (1 - theta[k] * r)
            x = np.r_[display.features[display.shown[q, k], : weights.size - 1], 1]
            wanted += (target - r) * x
            looked[k] += 1.0 if clicked[k] else theta[k] * (1 - r) / (1 - theta[k] * r)
            shows[k] += 1
    np.testing.assert_allclose(sums["gradient"][0], wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums["examined"][0], looked, rtol=1e-5)
    np.testing.assert_array_equal(sums["impressions"][0], shows)


def log_likelihood(log: ClickLog, u: int, k: int, relevance: np.ndarray, shown: np.ndarray, theta: float) -> float:
    rows = [i for i in range(log.offsets[u], log.offsets[u + 1]) if shown[log.queries[i], k] >= 0]
    return sum(binom.logpmf(log.clicks[i, k], 1, theta * relevance[log.queries[i], k]) for i in rows)


def test_shrunk_estimates_are_posterior_means_and_priors_are_judged_by_marginal_likelihoods():
    display, weights = made_up()
    log = clicks_of(display, weights, np.linspace(0.2, 2, 5))
    estimator = Estimator("shrunk", estimate_start=0.5, estimate_floor=1e-6)
    state, sums = state_with(estimator, weights), no_sums(estimator, weights.size - 1)
    found = estimates(estimator, state, log, display, sums)
    relevance = relevance_of(display, weights)
    priors = strength_priors(np.array([1.0, 0.5, 0.5, 0.5]))
    marginals = np.zeros(STRENGTHS.size)
    for u in range(5):
        for k in range(1, RANKS):
            likelihood = np.exp([log_likelihood(log, u, k, relevance, display.shown, theta) for theta in THETAS])
            marginals += np.log(priors[k] @ likelihood)
            posterior = priors[k, STRENGTHS.size // 2] * likelihood
            np.testing.assert_allclose(found[u, 0, k], posterior @ THETAS / posterior.sum(), rtol=1e-5)
    np.testing.assert_allclose(np.diff(sums["marginals"][0]), np.diff(marginals), rtol=1e-3, atol=1e-5)


def test_power_law_estimates_are_posterior_means():
    display, weights = made_up()
    log = clicks_of(display, weights, np.linspace(0.2, 2, 5))
    estimator = Estimator("power-law", estimate_start=0.5, estimate_floor=1e-6)
    state, sums = state_with(estimator, weights), no_sums(estimator, weights.size - 1)
    found = estimates(estimator, state, log, display, sums)
    relevance, prior = relevance_of(display, weights), severity_prior(1.0, 0.3)
    for u in range(5):
        likelihood = np.exp(
            [
                sum(log_likelihood(log, u, k, relevance, display.shown, (k + 1.0) ** -g) for k in range(1, RANKS))
                for g in SEVERITIES
            ]
        )
        posterior = prior * likelihood / (prior @ likelihood)
        for k in range(RANKS):
            np.testing.assert_allclose(found[u, 0, k], posterior @ (k + 1.0) ** -SEVERITIES, rtol=1e-4)
    assert sums["marginals"][0].shape == (len(PRIORS),)


def test_priors_on_the_grid_keep_their_means_and_spreads():
    for mean, spread in ((1.0, 0.3), (0.4, 0.6), (2.0, 0.0)):
        prior = severity_prior(mean, spread)
        true = truncnorm(-mean / spread, np.inf, mean, spread) if spread else None
        assert prior.sum() == pytest.approx(1)
        assert prior @ SEVERITIES == pytest.approx(true.mean() if true else mean, abs=2e-3)
    priors = strength_priors(np.array([1.0, 0.5, 0.3, 0.1]))
    for k, mean in ((1, 0.5), (2, 0.3), (3, 0.1)):
        np.testing.assert_allclose(priors[k] @ THETAS, mean, atol=2e-3)
        ten = priors[k, list(STRENGTHS).index(10.0)]
        assert (ten @ THETAS**2 - mean**2) == pytest.approx(beta(10 * mean, 10 * (1 - mean)).var(), abs=1e-3)


def test_cross_fitting_uses_the_other_half():
    display, weights = made_up()
    log = clicks_of(display, weights, np.linspace(0.2, 2, 8))
    estimator = Estimator("personal", cross_fit=True, estimate_floor=1e-6)
    found = estimates(estimator, state_with(estimator, weights), log, display, no_sums(estimator, weights.size - 1))
    relevance = relevance_of(display, weights)
    for u in range(8):
        begin, end = log.offsets[u], log.offsets[u + 1]
        for part in range(2):
            others = np.arange(begin, end)[1 - part :: 2]
            half = ClickLog(log.queries[others], log.clicks[others], np.array([0, others.size]))
            np.testing.assert_allclose(
                found[u, part], plain_em(half, 0, relevance, display.shown, 0.5, 10), rtol=1e-5, err_msg=f"{u} {part}"
            )


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_pooled_estimates_converge_where_relevance_follows_the_function(gamma):
    """To the impression-weighted mean of (1 / rank) ** gamma_u, within standard errors over cohorts."""
    display, weights = made_up(queries=200)
    estimator = Estimator("pooled", 1e-12, estimate_memory=0.0)  # F stays at the truth
    rng = np.random.default_rng(1)
    found, true = [], []
    for cohort in range(20):
        severities = bias_severities(ClickModel(gamma), rng.random(2000))
        log = clicks_of(display, weights, severities, seed=1, round_=cohort)
        state = state_with(estimator, weights)
        for _ in range(200):
            sums = no_sums(estimator, weights.size - 1)
            estimates(estimator, state, log, display, sums)
            state = next_state(estimator, state, sums, 2000)
        found.append(state["pooled"])
        client = np.repeat(np.arange(2000), np.diff(log.offsets))
        there = display.shown[log.queries] >= 0
        true.append((examination(severities, RANKS)[client] * there).sum(axis=0) / there.sum(axis=0))
    difference = np.array(found) - np.array(true)
    error = difference.std(axis=0, ddof=1) / 20**0.5
    assert (np.abs(difference.mean(axis=0)) <= 4 * error + 1e-12).all()
    assert error.max() < 0.003


@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_personal_estimates_take_weight_from_low_ranks_and_pooled_ones_do_not(gamma):
    """With every relevance r known and alike, a client's estimate is clicks / (r x impressions) of the rank.

    Its clicks' weights 1 / estimate then add to r x impressions if it clicked there at all, and to 0 if not: the rank
    gets the share of its due that belongs to clients who clicked there, however many clients there are. Estimates from
    the other half of the log are at times of no click: the few clicks that meet those weigh far too much.
    """
    relevance, clients = 0.3, 4000
    shown = np.arange(30 * RANKS).reshape(30, RANKS)
    display = Display(np.zeros((30 * RANKS, 16), np.float32), np.arange(31) * RANKS, shown, shown)
    weights = np.array([0, np.log(relevance / (1 - relevance))], np.float32)
    severities = np.full(clients, gamma)
    log = clicks_of(display, weights, severities)
    client = np.repeat(np.arange(clients), np.diff(log.offsets))
    due = (log.clicks * np.arange(1, RANKS + 1) ** gamma).sum(axis=0)

    def mass(estimator: Estimator) -> np.ndarray:
        state = state_with(estimator, weights)
        for _ in range(1 if estimator.kind == "personal" else 40):
            sums = no_sums(estimator, 1)
            found = estimates(estimator, state, log, display, sums)
            state = {**next_state(estimator, state, sums, clients), "relevance": weights}
        part = (np.arange(client.size) - log.offsets[client]) % found.shape[1]
        return (log.clicks / found[client, part]).sum(axis=0) / due

    shows = np.diff(log.offsets)
    made = np.add.reduceat(log.clicks.astype(np.int64), log.offsets[:-1], axis=0)
    expected = np.where(made > 0, np.maximum(made, relevance * shows[:, np.newaxis]), 0).sum(axis=0) / due
    personal = mass(Estimator("personal", estimate_iterations=2000, estimate_floor=1e-9))
    np.testing.assert_allclose(personal[1:], expected[1:], rtol=1e-3)
    assert personal[-1] < (0.85 if gamma == 1 else 0.5)
    spread = made.std(axis=0, ddof=1) / made.mean(axis=0) / clients**0.5  # standard error of the clicks, as a share
    np.testing.assert_allclose(mass(Estimator("pooled")), 1, atol=0.01 + 4 * spread.max())
    assert (mass(Estimator("personal", cross_fit=True))[1:] > 1.2).all()


def test_likelihoods_that_vanish_do_no_harm():
    products = np.ones((1, 2))
    multiply_marginals(np.zeros(4, np.float32), np.full((1, 2, 4), 0.25, np.float32), 0, products, 0)
    assert np.all(np.isfinite(np.log(products)))


OTHER, RELEVANT = np.array([0.5, 0.3, 0.2, 0.15]), np.array([0.95, 0.9, 0.9, 0.8])  # clicks on what is examined


def trusting(display: Display, weights: np.ndarray, cohort: int) -> ClickLog:
    """Clicks of users who trust high ranks, on documents that are relevant as the function says."""
    attraction = np.where(display.shown >= 0, OTHER + (RELEVANT - OTHER) * relevance_of(display, weights), 0.0)
    base, sessions = examination(np.full(1000, 0.7), RANKS), Sessions(queries=5, clicks=20)
    return simulate_clicks(PositionBased(), attraction, base, np.arange(1000), sessions=sessions, seed=2, round_=cohort)


def test_what_clients_expect_of_trust_is_what_the_plain_version_expects():
    display, weights = made_up()
    log = trusting(display, weights, 0)
    estimator = Estimator("trust", estimate_start=0.4)
    state, sums = state_with(estimator, weights), no_sums(estimator, weights.size - 1)
    estimates(estimator, state, log, display, sums)
    relevance, (b, a) = relevance_of(display, weights), state["chances"]
    wanted, affine = np.zeros(weights.size), np.zeros((4, RANKS))
    for q, clicked in zip(log.queries, log.clicks, strict=True):
        for k in np.flatnonzero(display.shown[q] >= 0):
            r = relevance[q, k]
            if clicked[k]:
                target = a[k] * r / (a[k] * r + b[k] * (1 - r))
            else:
                target = (1 - a[k]) * r / ((1 - a[k]) * r + (1 - b[k]) * (1 - r))
            wanted += (target - r) * np.r_[display.features[display.shown[q, k], : weights.size - 1], 1]
            affine[:, k] += [1, clicked[k], target, target * clicked[k]]
    np.testing.assert_allclose(sums["gradient"][0], wanted, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(sums["affine"][0], affine, rtol=1e-5)


def test_trust_is_estimated_where_relevance_follows_the_function():
    """Both chances of a click at every rank, within standard errors over cohorts; and affine credit's constants."""
    display, weights = made_up(queries=200)
    estimator = Estimator("trust", 1e-12)  # F stays at the truth
    found = []
    for cohort in range(10):
        log, state = trusting(display, weights, cohort), state_with(estimator, weights)
        for _ in range(60):
            sums = no_sums(estimator, weights.size - 1)
            estimates(estimator, state, log, display, sums)
            state = next_state(estimator, state, sums, 1000)
        found.append(state["chances"])
    error = np.std(found, axis=0, ddof=1) / 10**0.5
    base = examination(np.array([0.7]), RANKS)[0]
    assert (np.abs(np.mean(found, axis=0) - base * np.stack([OTHER, RELEVANT])) < 4.5 * error).all()
    assert error.max() < 0.005
    sent = ESTIMATORS["trust"].broadcast(estimator, {**state, "chances": base * np.stack([OTHER, RELEVANT])})
    np.testing.assert_allclose(sent["pooled"] * sent["constants"], base * np.stack([OTHER, RELEVANT]))
    np.testing.assert_allclose(sent["pooled"], base * RELEVANT / RELEVANT[0])
