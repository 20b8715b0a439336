"""What trains is compiled before the first task."""

from __future__ import annotations

import os

import pytest

from fultr.device import prepare as module
from fultr.device.prepare import prepare, prepared


@pytest.mark.process
def test_compiled_code_is_found_where_numba_was_told_to_keep_it(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not prepared()
    assert prepare()
    assert prepared()


@pytest.mark.process
def test_the_usual_task_can_be_answered_from_then_on(monkeypatch, tmp_path):
    assert prepare()
    assert prepared()
    monkeypatch.setattr(module, "_MODULE", tmp_path / "expectations.py")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "expectations.py").touch()
    assert not prepared()
    older = tmp_path / "__pycache__" / "expectations.f-1.py311.nbi"
    older.touch()
    os.utime(older, (1.0, 1.0))
    assert not prepared()  # compiled from what was installed before
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    assert not prepare()  # a node starts all the same
