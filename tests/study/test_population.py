"""A finite population of different users."""

from __future__ import annotations

import numpy as np
import plain
import pytest

from fultr.clicks.settings import ClickModel
from fultr.core.errors import FultrError
from fultr.study.settings import FiniteUsers, FreshUsers
from fultr.study.users import cohorts, query_clusters


@pytest.fixture(scope="module")
def train():
    return plain.random_data(np.random.default_rng(0), queries=300, features=5)


def make(train, clients=100, seed=0, **settings):
    return cohorts(FiniteUsers(**{"users": 1000, "clusters": 10, **settings}), train, ClickModel(), clients, seed)


def test_uniform_cohorts_have_the_asked_size_and_everyone_takes_part_alike(train):
    users = make(train)
    counts = np.zeros(1000)
    for t in range(200):
        cohort = users.cohort(t)
        assert cohort.size == np.unique(cohort).size == 100
        counts[cohort] += 1
    expected = 200 * 0.1
    spread = ((counts - expected) ** 2).mean() / (200 * 0.1 * 0.9)
    assert abs(spread - 1) < 4 * np.sqrt(2 / 1000)
    np.testing.assert_array_equal(users.cohort(3), make(train).cohort(3))


def test_poisson_cohorts_vary_around_the_asked_size(train):
    users = make(train, sampling="poisson")
    sizes = np.array([users.cohort(t).size for t in range(500)])
    assert abs(sizes.mean() - 100) < 4 * np.sqrt(90 / 500)
    assert abs(sizes.var() / 90 - 1) < 4 * np.sqrt(2 / 500)
    assert users.expected == 100


def test_users_keep_their_bias_and_their_queries(train):
    users = make(train)
    everyone = np.arange(1000)
    np.testing.assert_array_equal(users.severities(0, everyone), users.severities(9, everyone))
    np.testing.assert_array_equal(users.pools, make(train).pools)
    assert users.pools.shape == (1000, 50)
    assert users.pools.min() >= 0
    assert users.pools.max() < train.queries


def test_a_small_concentration_makes_users_differ(train):
    cluster_of = query_clusters(train, 10, 0)

    def largest_share(concentration):
        pools = make(train, concentration=concentration).pools
        return np.mean([np.bincount(cluster_of[pool], minlength=10).max() / pool.size for pool in pools])

    shares = [largest_share(c) for c in (0.02, 0.5, 1000.0)]
    assert shares[0] > 0.85
    assert shares[0] > shares[1] + 0.1 > shares[2] + 0.2


def test_alike_users_draw_every_query_alike(train):
    pools = make(train, concentration=1e6).pools
    counts = np.bincount(pools.ravel(), minlength=train.queries)
    expected = pools.size / train.queries
    assert abs(((counts - expected) ** 2 / expected).mean() - 1) < 6 * np.sqrt(2 / train.queries)


def test_pools_hold_distinct_queries(train):
    pools = make(train, concentration=10.0).pools
    assert all(np.unique(pool).size == pool.size for pool in pools)


def test_a_tiny_concentration_gives_clusters_by_their_size(train):
    """Then every user has one cluster; how many have which follows the clusters' sizes."""
    cluster_of = query_clusters(train, 10, 0)
    sizes = np.bincount(cluster_of, minlength=10) / train.queries
    for concentration in (1e-3, 1e-6):
        first = cluster_of[make(train, users=4000, pool=3, concentration=concentration).pools[:, 0]]
        found = np.bincount(first, minlength=10) / 4000
        assert (np.abs(found - sizes) < 4 * np.sqrt(sizes * (1 - sizes) / 4000) + 1e-12).all()


def test_fresh_users_are_new_in_every_round(train):
    users = cohorts(FreshUsers(), train, ClickModel(), 50, 0)
    assert users.pools.size == 0
    assert not np.array_equal(users.severities(0, users.cohort(0)), users.severities(1, users.cohort(1)))


def test_a_cohort_larger_than_the_population_is_refused(train):
    with pytest.raises(FultrError, match="clients: expected a number, at most 1,000, found 1001"):
        make(train, clients=1001)
