"""Exploration: neighbours are swapped as often as is said, and the log has the ranks at which a document could be."""

from __future__ import annotations

import numpy as np
import pytest

from fultr import FultrError, Search
from fultr.clicks.examination.harvesting import adjacent_pairs, pair_counts_of_versions
from fultr.device.exploration import orders_for, ranks_in_orders, swapped

FEATURES = {"a": lambda query, candidate: -candidate}


def shown(search: Search, count: int = 1, documents: int = 6):
    return [list(search.rank(f"q{i}", range(documents))) for i in range(count)]


def test_there_is_none_unless_it_is_asked_for(path):
    with Search(path, FEATURES, default={"a": 1.0}) as search:
        assert shown(search, 50) == [list(range(6))] * 50
        assert search.log.records().display.recorded_ranks is None


def test_only_displayed_neighbours_are_swapped_as_often_as_is_said(path):
    count, share = 2000, 0.2
    with Search(path, FEATURES, default={"a": 1.0}, displayed=5, exploration=share) as search:
        orders = [tuple(search.rank("q", range(7), shown=False)) for _ in range(count)]
    assert set(orders) == {(0, 1, 2, 3, 4, 5, 6), (1, 0, 3, 2, 4, 5, 6), (0, 2, 1, 4, 3, 5, 6)}
    for order in [(1, 0, 3, 2, 4, 5, 6), (0, 2, 1, 4, 3, 5, 6)]:
        error = np.sqrt(count * share / 2 * (1 - share / 2))
        assert abs(orders.count(order) - count * share / 2) < 4.5 * error


def test_the_log_has_the_probability_of_every_rank(path):
    share = 0.5
    with Search(path, FEATURES, default={"a": 1.0}, displayed=4, exploration=share) as search:
        for results in (search.rank("q", range(5)) for _ in range(60)):
            records = search.log.records()
            logged = records.display.recorded_ranks[records.log.queries[-1]]
            for rank, document in enumerate(results[:4]):
                chances = {r: np.mean(logged[rank] == r) for r in range(4)}
                around = {0: {0: 0.75, 1: 0.25}, 3: {3: 0.75, 2: 0.25}}.get(
                    document, {document - 1: 0.25, document: 0.5, document + 1: 0.25}
                )
                assert {r: chance for r, chance in chances.items() if chance} == around
    assert orders_for(share) == 4


@pytest.mark.parametrize("displayed", [1, 2, 3])
def test_few_documents(path, displayed):
    with Search(path, FEATURES, default={"a": 1.0}, exploration=2 / 3) as search:
        for _ in range(20):
            results = search.rank("q", range(displayed))
            assert sorted(results) == list(range(displayed))
            assert results.clicked(displayed - 1)


@pytest.mark.parametrize("share", [-0.1, 0.7, 0.001, float("nan"), "x", True])
def test_what_is_no_share_is_refused(path, share):
    with pytest.raises(FultrError, match="exploration: expected"):
        Search(path, FEATURES, exploration=share)


def test_examination_is_harvested_from_swapped_neighbours():
    """Clicks by a known examination and any relevance: what is found is within 4 standard errors of it."""
    random = np.random.default_rng(3)
    count, ranks, orders = 40_000, 4, orders_for(0.4)
    examination = 1 / np.arange(1, ranks + 1)
    relevance = np.array([0.9, 0.5, 0.6, 0.3])
    found = []
    for _ in range(8):
        arrangements = [swapped(int(which), ranks) for which in random.integers(0, orders, count // 8)]
        clicks = np.array([random.random(ranks) < examination * relevance[order] for order in arrangements])
        places = np.stack([ranks_in_orders(order, orders) - 1 for order in arrangements])
        found.append(adjacent_pairs(pair_counts_of_versions(clicks.astype(np.uint8), places)))
    error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - examination) <= 4 * error + 1e-12).all()
