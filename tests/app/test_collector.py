"""Garbage is collected between answers, and after many in any case."""

from __future__ import annotations

import gc

import pytest

from fultr.app.collector import Collector


@pytest.fixture
def collected(monkeypatch):
    times = []
    monkeypatch.setattr(gc, "collect", lambda: times.append(1))
    return times


def test_it_waits_until_nobody_does(collected):
    now = [10.0]
    collector = Collector(lambda: now[0])
    collector.look()
    assert not collected  # nothing was answered
    collector.answered()
    collector.look()
    assert not collected
    now[0] += 1
    collector.look()
    collector.look()
    assert len(collected) == 1


def test_many_answers_are_reason_enough(collected):
    collector = Collector(lambda: 0.0)
    for _ in range(400):
        collector.answered()
    assert len(collected) == 2


def test_afterwards_python_does_it_again():
    with Collector().at_work():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
