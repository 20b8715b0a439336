"""Data sets by name and path: however they are loaded, training comes out the same."""

from __future__ import annotations

import numpy as np
import plain
import pytest

from fultr.core.errors import FultrError
from fultr.data.letor.writer import write_letor
from fultr.data.load import load
from fultr.study.simulate import simulate


def weights(data) -> np.ndarray:
    return simulate(data, clients=60, rounds=5, displayed=3).ranker.weights


def test_plain_compressed_cached_and_uncached_files_train_the_same_ranker(tmp_path):
    rng = np.random.default_rng(0)
    parts = {name: plain.random_data(rng, queries=40, features=6) for name in ("train", "vali", "test")}
    for suffix in ("", ".gz", ".xz", ".bz2", ".zst"):
        (tmp_path / f"set{suffix}").mkdir()
        for name, part in parts.items():
            write_letor(part, tmp_path / f"set{suffix}" / f"{name}.txt{suffix}")
    expected = weights(load(tmp_path / "set", cache=False, threads=1))
    for suffix in ("", ".gz", ".xz", ".bz2", ".zst"):
        for cache in (False, True, True):  # not cached; cached now; taken from the cache
            np.testing.assert_array_equal(weights(load(tmp_path / f"set{suffix}", cache=cache)), expected)


def test_a_generated_data_set_is_the_same_from_the_cache():
    fresh, stored, again = load("synthetic", cache=False), load("synthetic"), load("synthetic")
    for part, other, third in zip(fresh, stored, again, strict=True):
        for name in ("features", "labels", "offsets", "query_ids", "feature_ids"):
            np.testing.assert_array_equal(getattr(part, name), getattr(other, name))
            np.testing.assert_array_equal(getattr(part, name), getattr(third, name))
    assert not again.train.features.flags.writeable  # mapped, not copied
    assert load("synthetic", seed=1).train.fingerprint() != fresh.train.fingerprint()


def test_names_and_paths_that_are_not_there():
    with pytest.raises(FultrError, match="expected synthetic, synthetic-yahoo, synthetic-istella"):
        load("synthetic-web")
    with pytest.raises(FultrError, match="nowhere"):
        load("nowhere")
