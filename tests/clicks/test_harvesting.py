"""Intervention harvesting: against plain versions, an optimiser, and simulated logs with known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from help.click_logs import BAD_LOGS, answers, plain_pair_counts, random_log, simulated_log, simulated_versions
from scipy.optimize import minimize

from fultr.clicks.examination.harvesting import (
    PairCounts,
    adjacent_pairs,
    all_pairs,
    pair_counts,
    pair_counts_of_versions,
    unreachable_ranks,
)
from fultr.clicks.examination.methods import examination_by
from fultr.clicks.impressions import ImpressionLog
from fultr.core.errors import FultrError

TRUTH = 1 / np.arange(1.0, 6)
ESTIMATORS = [adjacent_pairs, all_pairs]


def square(*cells: tuple[int, int, float, float], ranks: int) -> PairCounts:
    """Counts from (rank, other rank, clicks, impressions), ranks from 1."""
    clicks, impressions = np.zeros((ranks, ranks)), np.zeros((ranks, ranks))
    for k, other, c, n in cells:
        clicks[k - 1, other - 1], impressions[k - 1, other - 1] = c, n
    return PairCounts(clicks, impressions)


@pytest.mark.parametrize("weighting", ["precision", "equal"])
@pytest.mark.parametrize("seed", range(5))
def test_pair_counts_are_the_plain_ones(seed, weighting):
    log = random_log(seed)
    found = pair_counts(log.cells(), weighting)
    clicks, impressions = plain_pair_counts(log, weighting)
    np.testing.assert_allclose(found.clicks, clicks, rtol=1e-12)
    np.testing.assert_allclose(found.impressions, impressions, rtol=1e-12)


def test_counts_of_devices_add_up():
    """Each query on a device of its own: the sum of what they send is the count of the whole log."""
    log = random_log(0)
    parts = [pair_counts(log.take(log.queries == q).cells()) for q in range(log.query_names.size)]
    total = sum(parts[1:], parts[0])
    np.testing.assert_allclose(total.clicks, pair_counts(log.cells()).clicks, rtol=1e-12)
    np.testing.assert_allclose(total.impressions, pair_counts(log.cells()).impressions, rtol=1e-12)


def test_a_pair_that_counts_twice_adds_twice():
    cells = random_log(1).cells()
    once, twice = pair_counts(cells), pair_counts(replace(cells, copies=2 * cells.copies))
    np.testing.assert_allclose(twice.clicks, 2 * once.clicks)
    np.testing.assert_allclose(twice.impressions, 2 * once.impressions)


def test_impressions_that_count_as_none_are_not_there():
    log = random_log(2)
    kept = np.random.default_rng(0).random(log.impressions) < 0.5
    resampled, part = pair_counts(log.cells(kept.astype(float))), pair_counts(log.take(kept).cells())
    np.testing.assert_allclose(resampled.clicks, part.clicks, rtol=1e-12)


def test_versions_are_weighted_by_how_many_put_a_document_at_its_rank():
    """Three versions: two have the order a b, one has b a. The page shows a b; only a is clicked."""
    ranks = np.array([[[0, 0, 1], [1, 1, 0]]])
    found = pair_counts_of_versions(np.array([[1, 0]], np.uint8), ranks)
    assert found.clicks.tolist() == [[0, pytest.approx(3 / 2)], [0, 0]]
    assert found.impressions.tolist() == [[0, pytest.approx(3 / 2)], [pytest.approx(3 / 2), 0]]
    shares = pair_counts_of_versions(np.array([[1, 0]], np.uint8), ranks, shares=[0.5, 0.3, 0.2])
    assert shares.clicks.tolist() == [[0, pytest.approx(1 / 0.8)], [0, 0]]
    with pytest.raises(FultrError, match="shares that add up to 1"):
        pair_counts_of_versions(np.array([[1, 0]], np.uint8), ranks, shares=[0.5, 0.3, 0.3])


def test_sums_of_versions_are_those_of_the_plain_formula():
    rng = np.random.default_rng(0)
    size, share = 4, np.array([0.5, 0.3, 0.2])
    orders = np.stack(
        [np.stack([rng.permutation(6) for _ in range(3)], axis=1) for _ in range(50)]
    )  # past K: not shown
    ranks = np.take_along_axis(orders, np.argsort(orders[:, :, 0], axis=1)[:, :size, np.newaxis], axis=1)
    clicks = rng.integers(0, 2, (50, size), np.uint8)
    chance = np.stack([((ranks == k) * share).sum(axis=2) for k in range(size)], axis=2)
    weight = 1 / np.diagonal(chance, axis1=1, axis2=2)
    also = ((chance > 0) & ~np.eye(size, dtype=bool)).astype(float)
    found = pair_counts_of_versions(clicks, ranks, share)
    np.testing.assert_allclose(found.clicks, np.einsum("ik,ikj->kj", weight * clicks, also))
    np.testing.assert_allclose(found.impressions, np.einsum("ik,ikj->kj", weight, also))


@pytest.mark.parametrize("seed", range(6))
def test_all_pairs_is_the_maximum_of_the_likelihood(seed):
    """Against a general optimiser over log p and every log r, from a start of its own."""
    rng = np.random.default_rng(seed)
    ranks = 4
    impressions = rng.uniform(5, 500, (ranks, ranks)) * (1 - np.eye(ranks))
    clicks = np.floor(impressions * rng.uniform(0.05, 0.9, (ranks, ranks)))
    if seed >= 3:
        clicks[0, 2] = clicks[3, 1] = 0  # pairs of ranks with clicks at one of them only
    upper = np.triu_indices(ranks, 1)

    def loss(x):
        r = np.zeros((ranks, ranks))
        r[upper] = x[ranks - 1 :]
        chance = np.minimum(np.r_[0, x[: ranks - 1]][:, np.newaxis] + r + r.T, -1e-9)
        off = ~np.eye(ranks, dtype=bool)
        return -(clicks * chance + (impressions - clicks) * np.log1p(-np.exp(chance)))[off].sum()

    start = np.r_[np.zeros(ranks - 1), np.full(upper[0].size, -2.0)]
    best = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 60_000, "maxfev": 60_000, "fatol": 1e-12,
                                                                "xatol": 1e-9, "adaptive": True})  # fmt: skip
    best = minimize(loss, best.x, method="BFGS", options={"gtol": 1e-8})
    found = all_pairs(PairCounts(clicks, impressions))
    np.testing.assert_allclose(found[1:], np.exp(best.x[: ranks - 1]), rtol=2e-4)


def test_noiseless_counts_give_the_truth():
    """If every rate is p_k r exactly, both estimators return p."""
    rng = np.random.default_rng(0)
    r = rng.uniform(0.1, 0.9, (5, 5))
    r = (r + r.T) / 2
    impressions = rng.uniform(1, 100, (5, 5)) * (1 - np.eye(5))
    counts = PairCounts(TRUTH[:, np.newaxis] * r * impressions, impressions)
    for estimate in ESTIMATORS:
        np.testing.assert_allclose(estimate(counts), TRUTH, rtol=1e-6)


@pytest.mark.parametrize("weighting", ["precision", "equal"])
def test_consistent_without_a_model_of_relevance(weighting):
    """Good documents are at the top; yet the mean over logs is the truth within 4 standard errors.

    500 queries with 20 pages each: no document is shown often. Ratios of clicks alone are far off.
    """
    logs = [simulated_log(seed, examination=TRUTH, queries=500, pages=10_000) for seed in range(60)]
    naive = []
    for log in logs:
        shown, clicked = log.cells().by_rank()
        naive.append(clicked / shown / (clicked[0] / shown[0]))
    assert np.all(_errors_away(np.array(naive))[1:] < -10)
    for estimate in ESTIMATORS:
        found = np.array([estimate(pair_counts(log.cells(), weighting)) for log in logs])
        assert np.all(np.abs(_errors_away(np.log(found), np.log(TRUTH)))[1:] < 4)


def test_consistent_when_no_query_comes_twice():
    """With known versions: the counts of devices that show each query once."""
    found = {estimate: [] for estimate in ESTIMATORS}
    for seed in range(40):
        log, ranks = simulated_versions(seed, examination=TRUTH, queries=8_000, pages=8_000, versions=3)
        counts = pair_counts_of_versions(log.clicks, ranks)
        for estimate in ESTIMATORS:
            found[estimate].append(estimate(counts))
    for values in found.values():
        assert np.all(np.abs(_errors_away(np.array(values)))[1:] < 4)


def test_error_shrinks_as_logs_grow():
    spread = []
    for pages in (2_000, 32_000):
        found = [
            all_pairs(pair_counts(simulated_log(seed, examination=TRUTH, queries=200, pages=pages).cells()))
            for seed in range(30)
        ]
        spread.append(np.array(found).std(axis=0)[1:])
    ratio = spread[0] / spread[1]  # 16 times the pages: a quarter of the error, itself known within some 15%
    assert np.all((ratio > 2) & (ratio < 8))


def _errors_away(values, truth=TRUTH):
    error = np.maximum(values.std(axis=0, ddof=1), 1e-12) / len(values) ** 0.5
    return (values.mean(axis=0) - truth) / error


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_one_ranking_makes_no_interventions(estimate):
    log = simulated_log(0, examination=TRUTH, versions=1, pages=500)
    with pytest.raises(FultrError, match=r"no document was shown at more than one rank.*randomise a little.*swap two"):
        estimate(pair_counts(log.cells()))


def test_ranks_that_cannot_be_reached_are_named():
    apart = square((1, 2, 5, 9), (2, 1, 3, 9), (3, 4, 5, 9), (4, 3, 3, 9), ranks=4)
    assert unreachable_ranks(apart).tolist() == [3, 4]
    with pytest.raises(FultrError, match="ranks 3, 4: cannot be compared with rank 1"):
        all_pairs(apart)
    with pytest.raises(FultrError, match=r"ranks 3, 4: cannot be compared.*both ranks 2 and 3"):
        adjacent_pairs(apart)
    one_sided = square((1, 2, 5, 9), (2, 1, 0, 9), (2, 3, 5, 9), (3, 2, 4, 9), ranks=3)
    assert unreachable_ranks(one_sided).tolist() == [2, 3]  # p_2 / p_1 falls without end
    for estimate in ESTIMATORS:
        with pytest.raises(FultrError, match=r"ranks? (2, )?3: cannot"):
            estimate(one_sided)


def test_all_pairs_goes_round_a_gap():
    """No document was shown at ranks 2 and 3, but at 1 and 3: adjacent pairs fail, all pairs do not."""
    gap = square((1, 2, 6, 10), (2, 1, 3, 10), (1, 3, 8, 10), (3, 1, 2, 10), ranks=3)
    np.testing.assert_allclose(all_pairs(gap), [1, 3 / 6, 2 / 8], rtol=1e-6)
    with pytest.raises(FultrError, match="both ranks 2 and 3"):
        adjacent_pairs(gap)


def test_ranks_without_clicks_have_no_examination():
    counts = square((1, 2, 6, 10), (2, 1, 3, 10), (2, 3, 4, 10), (3, 2, 0, 10), ranks=3)
    np.testing.assert_allclose(all_pairs(counts), [1, 0.5, 0], rtol=1e-6)
    np.testing.assert_allclose(adjacent_pairs(counts), [1, 0.5, 0], rtol=1e-6)


def test_shorter_pages_and_large_numbers():
    log = simulated_log(0, examination=TRUTH, pages=3000)
    documents = np.where((np.arange(5) >= 3) & (np.arange(3000)[:, np.newaxis] % 2 == 0), -1, log.documents)
    short = ImpressionLog.from_arrays(log.queries, documents, np.where(documents < 0, 0, log.clicks))
    counts = pair_counts(short.cells())
    few = all_pairs(counts)
    assert np.isfinite(few).all()
    many = all_pairs(PairCounts(1e9 * counts.clicks, 1e9 * counts.impressions))
    np.testing.assert_allclose(many, few, rtol=1e-6)


def test_counts_that_nobody_can_have_made_are_an_error():
    """A device can send any numbers."""
    clicks = np.array([[0, 1, 5e-324], [1e-300, 0, 5e-324], [1e-150, 5e-324, 0]])
    impressions = np.array([[0, 1, 5e-324], [1e-150, 0, 5e-324], [1e7, 1, 0]])
    with pytest.raises(FultrError, match=r"^clicks at these ranks differ too much to be compared: collect more, or "):
        all_pairs(PairCounts(clicks, impressions))


@pytest.mark.parametrize("name", BAD_LOGS)
@pytest.mark.parametrize("method", ["adjacent", "all-pairs"])
def test_bad_logs_get_an_answer_or_an_error(method, name):
    log = BAD_LOGS[name]
    if not answers(name, method):
        with pytest.raises(FultrError, match=r"^[^\n]*(collect more|randomise)[^\n]*$"):
            examination_by(method, log.cells())
        return
    found = examination_by(method, log.cells())
    assert found.shape == (log.ranks,)
    assert found[0] == 1
    assert np.isfinite(found).all()
    assert np.all(found >= 0)


def test_bad_counts_are_refused():
    with pytest.raises(FultrError, match="K x K"):
        PairCounts(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(FultrError, match="finite"):
        PairCounts(np.array([[0, np.nan], [0, 0]]), np.zeros((2, 2)))
    with pytest.raises(FultrError, match="weighting: expected one of"):
        pair_counts(random_log(0).cells(), "best")
