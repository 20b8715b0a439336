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
def test_only_a_compilation_that_was_finished_counts(monkeypatch, tmp_path):
    assert prepare()
    assert prepared()
    mark = module._mark().name
    monkeypatch.setattr(module, "_MODULE", tmp_path / "expectations.py")
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    (tmp_path / "expectations.py").touch()
    (cache / "expectations.f-1.py311.nbi").touch()  # the first of many functions
    assert not prepared()
    (cache / mark).touch()
    os.utime(cache / mark, (1.0, 1.0))
    assert not prepared()  # what was installed before was compiled
    (cache / mark).touch()
    os.utime(tmp_path / "expectations.py", (1.0, 1.0))
    assert prepared()


@pytest.mark.process
def test_a_node_starts_all_the_same_where_it_cannot_compile(monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    assert not prepare()
