"""What trains is compiled before the first task."""

from __future__ import annotations

import pytest

from fultr.device import prepare as module
from fultr.device.prepare import prepare, prepared


@pytest.mark.process
def test_the_usual_task_can_be_answered_from_then_on(monkeypatch):
    assert prepare()
    assert prepared()
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    assert not prepare()  # a node starts all the same
