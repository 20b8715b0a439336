"""What is particular to the dependent click, trust and contextual models; the rest is in the contract of all."""

from __future__ import annotations

import numpy as np
import pytest

from fultr.clicks.log import ClickLog
from fultr.clicks.models.contextual import Contextual
from fultr.clicks.models.dependent_click import DependentClick
from fultr.clicks.models.model import click_model_of
from fultr.clicks.models.position_based import examination
from fultr.clicks.models.trust import Trust
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.checks import SettingError


def test_continuing_after_a_click_depends_on_its_rank():
    log = ClickLog(np.int32([0, 0]), np.uint8([[1, 0, 0], [0, 1, 1]]), np.array([0, 2]))
    base = np.array([[1.0, 0.5, 0.25]])
    found = DependentClick(0.5).examination_given_clicks(base, log)
    assert found.tolist() == [[1, 0.5 * 0.5, 0.25 * 0.5], [1, 0.5, 0.25 * 0.75]]  # 1 - 1/2 / 1, and 1 - 1/2 / 2


def test_trust_makes_a_click_affine_in_relevance():
    """Constants by rank: epsilon- from .1 + .9 trust / r, epsilon+ from certain clicks."""
    model = Trust(0.5)
    np.testing.assert_allclose(model.click_if_examined(np.full(3, 0.1)), [0.1 + 0.9 * 0.5 / r for r in (1, 2, 3)])
    np.testing.assert_allclose(model.click_if_examined(np.ones(3)), 1)


@pytest.mark.parametrize("name", ["other_click", "relevant_click"])
def test_trust_needs_attraction(name):
    with pytest.raises(SettingError, match=rf"^{name}: expected above 0 with the click model trust"):
        ClickModel(click_model="trust", **{name: 0.0})


def test_the_kind_of_a_query_decides_and_is_the_same_in_all_versions():
    """Click rates by kind, within 4 standard errors; queries 2 and 3 are queries 0 and 1 of a second version."""
    attraction, clients = np.full((4, 3), 0.5), np.arange(4000)
    base, sessions = examination(np.ones(4000), 3), Sessions(queries=2, clicks=10**6, most_sessions=20)
    model = Contextual(0.5)
    log = simulate_clicks(model, attraction, base, clients, sessions=sessions, seed=1, round_=0, versions=2)
    given = model.examination_given_clicks(base, log)
    for query, power in enumerate((0.5, 1.5, 0.5, 1.5)):
        wanted, of_it = np.array([1, 2, 3.0]) ** -power, log.queries == query
        np.testing.assert_allclose(given[of_it], np.tile(wanted, (of_it.sum(), 1)))
        rate = 0.5 * wanted
        error = np.sqrt(rate * (1 - rate) / of_it.sum())
        assert (np.abs(log.clicks[of_it].mean(axis=0) - rate) < 4 * error).all()


def test_kinds_are_drawn_by_the_ids_of_queries():
    ids = np.array([31, 5, 12, 8, 99])
    model = click_model_of(ClickModel(click_model="contextual"), ids)
    assert isinstance(model, Contextual)
    assert model.kinds.tolist() == Contextual.kinds_of(ids[::-1]).tolist()[::-1]
