"""RankingData against plain NumPy."""

from __future__ import annotations

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fultr.core.errors import FultrError
from fultr.data.ranking import RankingData, Splits


def plain_normalised(data: RankingData) -> np.ndarray:
    out = np.zeros_like(data.features)
    for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        x = data.features[a:b].astype(np.float64)
        low, span = x.min(axis=0), x.max(axis=0) - x.min(axis=0)
        out[a:b] = np.where(span > 0, (x - low) / np.where(span > 0, span, 1), 0)
    return out


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-38, 1e-3, 1.0, 1e7, 3e38]))
def test_normalisation(seed, scale):
    rng = np.random.default_rng(seed)
    data = plain.random_data(rng, queries=9, features=6)
    features = (data.features * 2 - 1) * np.float32(scale)
    features[:, 3] = 5  # constant everywhere
    data = RankingData(features, data.labels, data.offsets, data.query_ids, data.feature_ids)
    expected = plain_normalised(data)
    found = data.normalise()
    np.testing.assert_array_equal(found.features, expected)
    assert not found.features[:, 3].any()
    assert found.features.min() >= 0
    assert found.features.max() <= 1
    assert found.features is not data.features
    for threads in (1, 2):
        np.testing.assert_array_equal(data.normalise(threads=threads).features, expected)
    again = data.normalise(overwrite=True)
    assert again.features is data.features
    np.testing.assert_array_equal(data.features, expected)


def test_filter_with_and_without_overwriting():
    for seed in range(20):
        data = plain.random_data(np.random.default_rng(seed), queries=30, most=3, grades=2)
        keep = [q for q in range(30) if np.unique(data.labels[data.offsets[q] : data.offsets[q + 1]]).size > 1]
        wanted = data.take(keep)
        for filtered in (data.filter(), data.filter(overwrite=True)):
            for name in ("features", "labels", "offsets", "query_ids", "feature_ids"):
                np.testing.assert_array_equal(getattr(filtered, name), getattr(wanted, name))
        assert np.shares_memory(data.filter(overwrite=True).features, data.features)


def test_filter_that_leaves_nothing():
    data = RankingData.from_arrays([[1.0], [2.0]], labels=[1, 1], query_ids=[1, 1])
    with pytest.raises(FultrError, match="nothing to rank"):
        data.filter()


def test_overwriting_mapped_features_is_refused(tmp_path):
    data = plain.random_data(np.random.default_rng(0))
    data.features.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        data.normalise(overwrite=True)


def test_splits_are_whole_queries_and_follow_the_seed():
    data = plain.random_data(np.random.default_rng(0), queries=50)
    parts = data.split([0.5, 0.3, 0.2], seed=1)
    assert [p.queries for p in parts] == [25, 15, 10]
    assert sorted(np.concatenate([p.query_ids for p in parts])) == sorted(data.query_ids)
    for part in parts:
        for i, q in enumerate(part.query_ids):
            j = np.flatnonzero(data.query_ids == q)[0]
            np.testing.assert_array_equal(
                part.features[part.offsets[i] : part.offsets[i + 1]],
                data.features[data.offsets[j] : data.offsets[j + 1]],
            )
    assert not np.array_equal(data.split([0.5, 0.5], seed=2)[0].query_ids, data.split([0.5, 0.5], seed=3)[0].query_ids)
    with pytest.raises(FultrError, match="too few to split"):
        data.take([0]).split([0.5, 0.5])
    with pytest.raises(FultrError, match="add up to 1"):
        data.split([0.5, 0.6])


def test_splits_must_have_the_same_features():
    rng = np.random.default_rng(0)
    with pytest.raises(FultrError, match="expected the same features in all three"):
        Splits(plain.random_data(rng, features=5), plain.random_data(rng, features=5), plain.random_data(rng), "x")


def test_fingerprints_tell_data_apart():
    data = plain.random_data(np.random.default_rng(0))
    other = plain.random_data(np.random.default_rng(0))
    assert data.fingerprint() == other.fingerprint()
    for row, column in ((0, 0), (3, 2), (-1, -1)):
        before = other.fingerprint()
        other.features[row, column] += 1
        assert other.fingerprint() != before
    swapped = data.features.copy()
    swapped[[0, 5]] = swapped[[5, 0]]
    assert RankingData(swapped, data.labels, data.offsets, data.query_ids, data.feature_ids).fingerprint() != (
        data.fingerprint()
    )


@pytest.mark.parametrize(
    ("features", "labels", "query_ids", "message"),
    [
        ([[1.0], [np.nan]], [0, 1], [1, 1], "features: expected finite"),
        ([[1.0], [np.inf]], [0, 1], [1, 1], "features: expected finite"),
        ([[1.0], [2.0]], [0, 1.5], [1, 1], "labels: expected one whole-number grade"),
        ([[1.0], [2.0]], [0, 31], [1, 1], "labels: expected grades 0 to 30, found 0 to 31"),
        ([[1.0], [2.0]], [0, -1], [1, 1], "labels: expected grades 0 to 30, found -1 to 0"),
        ([[1.0], [2.0], [3.0]], [0, 1, 0], [1, 2, 1], "documents of a query to be adjacent"),
        ([[1.0], [2.0]], [0, 1], [1], "query_ids: expected one per document"),
        ([1.0, 2.0], [0, 1], [1, 1], "features: expected two dimensions, found 1"),
    ],
)
def test_bad_arrays_are_named(features, labels, query_ids, message):
    with pytest.raises(FultrError, match=message):
        RankingData.from_arrays(features, labels, query_ids)
