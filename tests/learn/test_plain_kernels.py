"""The fast code of training on a whole log, compared with plain versions on random and on awkward input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import whole_log as plain
from plain.networks import by_differences, network_scores

from fultr.clicks.impressions import ImpressionLog
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, generator
from fultr.learn import boosting, network, tree_kernels
from fultr.learn.boosting import Binned, Growth, bounds_of
from fultr.learn.descent import linear_weights, order_weights
from fultr.learn.pooled import LIMIT, Pooled, add_pulls

WIDTH = 3


def log_of(sizes: list[int], seed: int = 0, clicked: float = 2.0, never: int | None = None) -> Pooled:
    """Queries of so many documents; of `never` there was no examination."""
    random, pairs = np.random.default_rng(seed), sum(sizes)
    features = random.standard_normal((pairs, WIDTH)).astype(np.float32)
    clicks, examined = random.poisson(clicked, pairs).astype(float), random.uniform(0.5, 9, pairs)
    if never is not None:
        clicks[never] = examined[never] = 0.0
    rank = random.uniform(0, 4, pairs)
    return Pooled(features, np.r_[0, np.cumsum(sizes)].astype(np.int64), clicks, examined, rank)


def alike(log: Pooled) -> Pooled:
    """The same with equal features and counts: everything is tied."""
    return Pooled(0 * log.features + 1, log.offsets, 0 * log.clicks + 2, 0 * log.examined + 3, 0 * log.rank)


LOGS = {
    "several": log_of([4, 2, 7]),
    "one document": log_of([1]),
    "one document among others": log_of([3, 1, 2], seed=1),
    "no clicks": log_of([3, 2], clicked=0.0),
    "a query without clicks": Pooled(
        *[*vars(log_of([3, 2])).values()][:2], np.array([1.0, 0, 2, 0, 0]), np.ones(5), np.arange(5.0)
    ),
    "never examined": log_of([3, 2], seed=2, never=1),
    "ties": alike(log_of([3, 2])),
}
every_log = pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)


def counts_of(log: Pooled, limit: float = LIMIT) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    return log.offsets, log.clicks, log.examined, limit


@every_log
@pytest.mark.parametrize("spread", [0.0, 1.0, 20.0])
def test_pulls(log, spread):
    few = 5.0  # so that the limit matters
    scores = spread * np.random.default_rng(3).standard_normal(log.clicks.size)
    pulls = np.full((scores.size, 2), np.nan)
    total, counted = add_pulls(scores, *counts_of(log, few), pulls)
    expected, clicks, curvatures = plain.likelihood(scores, *counts_of(log, few))
    assert (total, counted) == pytest.approx((expected, clicks), rel=1e-12)
    assert_allclose(pulls[:, 1], curvatures, rtol=1e-9, atol=1e-13)
    slopes = by_differences(lambda at: plain.likelihood(at, *counts_of(log, few))[0], scores)
    assert_allclose(pulls[:, 0], slopes, atol=1e-7 * (1 + abs(expected)))  # rounding, and the third derivative


BOUNDS = {"none": [], "one": [0.5], "several": [-1.0, 0.0, 0.25, 3.0], "many": [i / 8 for i in range(-127, 128)]}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("rows", [0, 1, 200])
def test_bins(bounds, rows):
    """Values at bounds, and infinite ones, too: one at a bound is not above it."""
    values = np.random.default_rng(rows).normal(0, 8, rows).astype(np.float32)
    values[: rows // 2] = np.random.default_rng(1).choice([*bounds, np.inf, -np.inf], rows // 2)
    features, found = np.c_[values, -values], np.full(rows, 77, np.uint8)
    for column in (0, 1):
        tree_kernels.fill_bins(features, column, np.array(bounds, np.float32), found)
        assert found.tolist() == [plain.bin_of(value, bounds) for value in features[:, column]]


@pytest.mark.parametrize("bins", [2, 3, 16, 256])
@pytest.mark.parametrize("values", [[4], [4] * 9, [1, 2], [1, 1, 1, 1, 9], [0, 1] * 20, list(range(100))], ids=str)
def test_bounds(values, bins):
    """More bins than values, one value, ties; in any order."""
    shuffled = np.random.default_rng(0).permutation(np.array(values, np.float32))
    assert bounds_of(shuffled, bins).tolist() == plain.bounds_of(values, bins)


def test_bounds_of_random_values_with_ties():
    for seed in range(50):
        random = np.random.default_rng(seed)
        values = random.integers(0, random.integers(1, 60), random.integers(1, 80)).astype(np.float32)
        bins = int(random.integers(2, 20))
        assert bounds_of(values, bins).tolist() == plain.bounds_of(values.tolist(), bins), seed


def test_bins_of_many_rows_are_those_of_rows_at_random(monkeypatch):
    """Every fifth row would be the first document of each page."""
    features = np.tile(np.arange(5, dtype=np.float32), 200)[:, np.newaxis]
    monkeypatch.setattr(boosting, "_MOST_ROWS", 200)
    assert Binned.of(features, 64).bounds[0].tolist() == [0.5, 1.5, 2.5, 3.5]
    monkeypatch.setattr(boosting, "_MOST_ROWS", 1000)
    assert Binned.of(features, 64).bounds[0].tolist() == [0.5, 1.5, 2.5, 3.5]


def rows_of(seed: int, rows: int, nodes: int, bounds: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bins, nodes and pulls; a quarter of the rows pull nothing."""
    random = np.random.default_rng(seed)
    bins = np.array([random.integers(0, most + 1, rows) for most in bounds], np.uint8).reshape(len(bounds), rows)
    pulls = np.c_[random.standard_normal(rows), random.uniform(0, 1, rows)] * (random.random((rows, 1)) < 0.75)
    return bins, random.integers(0, nodes, rows).astype(np.uint8), pulls


@pytest.mark.parametrize("least", [0.0, 0.5, 4.0, 1e9])
@pytest.mark.parametrize("nodes", [1, 2, 8])
@pytest.mark.parametrize("rows", [1, 2, 60])
def test_best_bounds(rows, nodes, least):
    """Few rows leave nodes empty; 1e9 is more curvature than there is; one feature has a single bin, one 200."""
    counts = [0, 1, 5, 200]
    bins, leaves, pulls = rows_of(rows + nodes, rows, nodes, counts)
    gains, best = np.full(4, np.nan), np.full(4, -7)
    order = np.array([2, 0, 3, 1])
    tree_kernels.best_bounds(bins, order, np.array(counts), leaves, pulls, nodes, 0.3, least, gains, best)
    for i, column in enumerate(order):
        if counts[column] == 0:
            assert (gains[i], best[i]) == (-1, 0)
            continue
        tried = [plain.gain(bins[column], b, leaves, pulls, nodes, 0.3, least) for b in range(counts[column])]
        assert gains[i] == pytest.approx(max(tried), rel=1e-12, abs=1e-12)
        assert tried[best[i]] == pytest.approx(max(tried), rel=1e-12, abs=1e-12)


def test_of_equal_bounds_the_first_is_taken():
    """Bins 0 and 9 alone are filled, so that all nine bounds part the rows alike, in whole numbers."""
    bins, pulls = np.array([0, 9, 0, 9], np.uint8), np.array([[1.0, 1], [-1, 1], [2, 1], [-2, 1]])
    found = tree_kernels.best_bound(bins, np.zeros(4, np.uint8), pulls, 1, 9, 1.0, 0.0)
    assert found == (3 * 3 / 3 + 3 * 3 / 3, 0)


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_descending_leaf_values_and_their_sums(rows):
    (bins,), leaves, pulls = rows_of(rows, rows, 4, [6])
    deeper = leaves.copy()
    tree_kernels.descend(bins, 2, deeper)
    assert deeper.tolist() == [
        2 * leaf + int(one > 2) for leaf, one in zip(leaves.tolist(), bins.tolist(), strict=True)
    ]
    for least in (0.0, 2.0):
        values = np.full(8, np.nan)
        tree_kernels.newton_steps(deeper, pulls, 0.3, least, values)
        expected = [plain.leaf_value(leaf, deeper, pulls, 0.3, least) for leaf in range(8)]
        assert_allclose(values, expected, rtol=1e-12, atol=1e-13)
        scores = np.arange(rows) / 7
        tree_kernels.add_values(deeper, values, scores)
        assert scores.tolist() == [row / 7 + values[deeper[row]] for row in range(rows)]


@pytest.mark.parametrize("depth", [1, 3])
def test_trees(depth):
    """Random pulls have no ties between features."""
    counts = [3, 0, 6, 1]
    for seed in range(5):
        bins, _, pulls = rows_of(seed, 40, 1, counts)
        growth, usable = Growth(depth=depth, rate=0.5, penalty=0.2, least=0.4), np.array([0, 2, 3])
        asked, bound, values, leaves = boosting._tree(bins, usable, np.array(counts), pulls, growth, threads=1)
        splits, expected, places = plain.tree(bins, usable.tolist(), counts, pulls, depth, 0.2, 0.4)
        assert list(zip(asked, bound, strict=True)) == splits, seed
        assert_allclose(values, 0.5 * np.array(expected), rtol=1e-12, atol=1e-13)
        assert_array_equal(leaves, places)


@every_log
def test_growing_trees_adds_one_plain_tree_after_another(log):
    """Small logs have splits that part the rows alike: any that gains most by the plain version is right."""
    growth = Growth(trees=3, depth=2, rate=0.3, columns=1.0, penalty=0.5, least=0.01)
    scores, queries = np.zeros(log.clicks.size), np.arange(log.queries)
    binned = Binned.of(log.features, 4, 1)
    grown = boosting.grown(log, binned, scores, queries, np.arange(0), growth, seed=0, threads=1)
    candidates = [(column, at) for column in range(WIDTH) for at in range(binned.bounds[column].size)]
    assert len(grown.values) == (3 if candidates else 0)
    for features, thresholds, values in zip(grown.features, grown.thresholds, grown.values, strict=True):
        pulls = np.c_[
            by_differences(lambda at: plain.likelihood(at, *counts_of(log, LIMIT))[0], scores),
            plain.likelihood(scores, *counts_of(log, LIMIT))[2],
        ]
        leaves = np.zeros(log.clicks.size, np.int64)
        for level, (feature, threshold) in enumerate(zip(features, thresholds, strict=True)):
            gains = {
                (c, at): plain.gain(binned.bins[c], at, leaves, pulls, 2**level, 0.5, 0.01) for c, at in candidates
            }
            chosen = gains[feature, binned.bounds[feature].tolist().index(threshold)]
            assert chosen == pytest.approx(max(gains.values()), abs=1e-7)  # pulls by differences round at 1e-9
            leaves = 2 * leaves + (log.features[:, feature] > threshold)
        expected = 0.3 * np.array([plain.leaf_value(leaf, leaves, pulls, 0.5, 0.01) for leaf in range(4)])
        assert_allclose(values, expected, atol=1e-7)
        scores = scores + expected[leaves]


@every_log
def test_linear_weights_are_where_the_plain_likelihood_is_level(log):
    ridge, features, order = 2.0, log.features.astype(np.float64), np.array([0.5, 0.0, -1.0])

    def aim(parts: np.ndarray) -> float:
        own, share = parts[:-1], parts[-1]
        return plain.likelihood(features @ (own + share * order), *counts_of(log))[0] - ridge / 2 * float(own @ own)

    parts = linear_weights(log, features, ridge, order)
    slope = by_differences(aim, parts)  # L-BFGS-B ends when the aim grows by less than 2e-9 of it
    assert_allclose(slope[:-1], 0, atol=2e-3)
    assert parts[-1] >= 0
    assert abs(slope[-1]) < 2e-3 or (parts[-1] == 0 and slope[-1] < 0)
    if log.clicks.any() and log.clicks.size > 1 and np.ptp(log.features):
        assert aim(parts) > aim(0 * parts)
    else:
        assert_array_equal(parts, 0)


@every_log
def test_order_weights_are_those_of_least_squares_within_queries(log):
    features, query = log.features.astype(np.float64), log.of_query()
    within, high = features.copy(), -log.rank
    for q in range(log.queries):
        own = query == q
        within[own] -= within[own].mean(axis=0)
        high[own] -= high[own].mean()
    rows, target = np.r_[within, np.eye(WIDTH)], np.r_[high, np.zeros(WIDTH)]  # one more row a feature: a ridge of 1
    found = order_weights(log, features)
    expected = np.linalg.lstsq(rows, target, rcond=None)[0]
    spread = (within @ expected).std()
    assert_allclose(found, expected / spread if spread > 0 else 0 * expected, atol=1e-9)


def test_the_order_that_users_saw_is_what_is_left_without_clicks_to_learn_from():
    """With a ridge that allows no weights of its own; where clicks speak against the order, nothing is left."""
    log = log_of([6] * 200)
    features = log.features.astype(np.float64)
    order = order_weights(log, features)
    for sign, clicked in ((1, True), (-1, False)):
        liked = np.exp(sign * 0.5 * features @ order)
        clicks = np.random.default_rng(1).poisson(log.examined * liked).astype(float)
        parts = linear_weights(replace(log, clicks=clicks), features, 1e9, order)
        assert_allclose(parts[:-1], 0, atol=1e-5)
        assert (parts[-1] > 0) == clicked
        if clicked:
            assert parts[-1] == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_no_numbers_never_reach_the_kernels(value):
    features = np.ones((2, 2, 1))
    features[1, 0, 0] = value
    with pytest.raises(FultrError, match="finite"):
        ImpressionLog.from_arrays([1, 1], [[7, 8], [9, 7]], [[1, 0], [1, 1]], features=features)


def flat(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([part.ravel() for part in parts]).astype(np.float64)


def likelihood_of_weights(log: Pooled, hidden: int, limit: float) -> Callable[[np.ndarray], float]:
    """Per click, of a network given as one vector."""
    x = log.features.astype(np.float64)

    def told(w: np.ndarray) -> float:
        total, counted, _ = plain.likelihood(network_scores(x, w, hidden, 1), *counts_of(log, limit))
        return total / counted if counted else 0.0

    return told


@every_log
def test_slopes_of_networks(log):
    random = np.random.default_rng(4)
    shapes: list[tuple[int, ...]] = [(WIDTH,), (4, WIDTH), (4,), (4,)]
    parts = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected = by_differences(likelihood_of_weights(log, 4, LIMIT), flat(parts))
    assert_allclose(flat(network._slopes(log, log.features, parts)), expected, atol=2e-5)  # of float32


def test_training_a_network_is_adam():
    """Batches with all queries: four steps of Adam by its formulas, in float64."""
    log, hidden = LOGS["several"], 4
    how = network.Network(hidden=hidden, rate=0.05, decay=0.1, batch=10, epochs=4)
    start = np.array([0.3, -0.2, 0.1])
    found = network.trained_units(log, log.features, start, np.arange(3), np.arange(0), how, seed=7)
    random = generator(7, Purpose.INITIAL_WEIGHTS)
    rows = random.standard_normal((hidden, WIDTH), np.float32) * (2 / WIDTH) ** 0.5
    w = flat([start, rows, random.standard_normal(hidden, np.float32), np.zeros(hidden)])
    mean, square = np.zeros(w.size), np.zeros(w.size)
    for step in range(1, 5):
        slope = by_differences(likelihood_of_weights(log, hidden, LIMIT), w)
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        moved = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-6)
        w = w + 0.05 * (moved - 0.1 * w)
    assert found.epochs == 4
    assert_allclose(flat([found.linear, found.hidden, found.bias, found.output]), w, atol=1e-4)
