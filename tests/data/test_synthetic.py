"""Generated data sets: what they promise about counts, structure and what rankers can learn from them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from fultr.core.arrays import Float64s
from fultr.core.errors import FultrError
from fultr.core.streams import Purpose, generator
from fultr.data.ranking import RankingData, Splits
from fultr.data.synthetic import GRID, SETTINGS, Settings, _draw_sizes, _draw_world, _grade, generate, generate_from

SMALL = {name: replace(settings, queries=(400, 50, 60)) for name, settings in SETTINGS.items()}


@pytest.fixture(scope="module")
def default() -> Splits:
    return generate("synthetic")


@pytest.fixture(scope="module", params=list(SMALL))
def small(request: pytest.FixtureRequest) -> tuple[Settings, Splits]:
    settings = SMALL[request.param]
    return settings, generate_from(settings, seed=3)


def same(one: Splits, other: Splits) -> bool:
    return all(
        np.array_equal(a.features, b.features)
        and np.array_equal(a.labels, b.labels)
        and np.array_equal(a.offsets, b.offsets)
        and np.array_equal(a.query_ids, b.query_ids)
        for a, b in zip(one, other, strict=True)
    )


# Counts


def test_the_settings_have_the_counts_of_the_paper() -> None:
    yahoo, istella = SETTINGS["synthetic-yahoo"], SETTINGS["synthetic-istella"]
    assert (yahoo.queries[0], yahoo.documents_per_query, yahoo.features) == (14_377, 32.51, 519)
    assert yahoo.grade_shares == (0.26, 0.36, 0.28, 0.08, 0.02)
    assert yahoo.queries[1:] == (round(2_994 * 14_377 / 19_944), round(6_983 * 14_377 / 19_944))
    assert (sum(istella.queries), istella.documents_per_query, istella.features) == (32_625, 103.73, 220)
    assert istella.queries == tuple(round(n * 32_625 / 33_018) for n in (19_245, 7_211, 6_562))
    assert istella.grade_shares[0] > 0.8


@pytest.mark.parametrize("name", SETTINGS)
def test_documents_per_query_are_exact_at_full_size(name: str) -> None:
    settings = SETTINGS[name]
    totals = []
    for queries in settings.queries:
        sizes = _draw_sizes(settings, queries, generator(0, Purpose.SYNTHETIC, 1))
        assert sizes.size == queries
        assert settings.fewest <= sizes.min() < np.median(sizes) < sizes.max() <= settings.most
        assert sizes.sum() == round(queries * settings.documents_per_query)
        totals.append(sizes.sum())
    # Each split is rounded to a whole document: far below half of the second decimal.
    assert round(sum(totals) / sum(settings.queries), 2) == settings.documents_per_query


@pytest.mark.parametrize(("queries", "mean", "spread"), [(1, 5.0, 1.0), (3, 2.0, 0.5), (7, 9.0, 0.5), (11, 4.4, 0.0)])
def test_sizes_at_the_edges(queries: int, mean: float, spread: float) -> None:
    settings = replace(SETTINGS["synthetic"], documents_per_query=mean, fewest=2, most=9, size_spread=spread)
    sizes = _draw_sizes(settings, queries, generator(0, Purpose.SYNTHETIC, 1))
    assert sizes.sum() == round(queries * mean)
    assert 2 <= sizes.min() <= sizes.max() <= 9


def test_counts_of_the_data(small: tuple[Settings, Splits]) -> None:
    settings, splits = small
    assert tuple(part.queries for part in splits) == settings.queries
    for part in splits:
        assert part.documents == round(part.queries * settings.documents_per_query)
        assert part.width == settings.features
    ids = np.concatenate([part.query_ids for part in splits])
    assert np.array_equal(ids, np.arange(1, sum(settings.queries) + 1))
    assert splits.name == settings.name


def test_grades_have_their_shares_and_every_query_two(small: tuple[Settings, Splits]) -> None:
    settings, splits = small
    shares = np.bincount(splits.train.labels, minlength=5) / splits.train.documents
    assert np.abs(shares - settings.grade_shares).max() < 0.005
    for part in splits:
        assert part.mixed_queries().all()


def test_grades_by_thresholds_and_the_repair_of_queries_with_one_grade() -> None:
    relevance = np.array([0.0, 1.0, 2.0, 0.1, 0.3, 0.2, 7.0, 9.0, 8.0], np.float32)
    labels = _grade(relevance, np.array([0.5, 1.5]), np.array([0, 3, 6, 9]))
    assert labels.tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 2]


def test_queries_differ_in_how_many_documents_are_relevant(default: Splits) -> None:
    train = default.train
    relevant = np.add.reduceat((train.labels >= 3).astype(float), train.offsets[:-1]) / np.diff(train.offsets)
    share = np.mean(train.labels >= 3)
    binomial = np.mean(share * (1 - share) / np.diff(train.offsets))  # the variance if all queries were alike
    assert relevant.var() > 2 * binomial


# Features


def test_features_are_normalised_on_the_grid(small: tuple[Settings, Splits]) -> None:
    for part in small[1]:
        grid = np.rint(part.features.astype(np.float64) * GRID)
        assert np.array_equal(part.features, (grid / GRID).astype(np.float32))
        low = np.minimum.reduceat(part.features, part.offsets[:-1])
        high = np.maximum.reduceat(part.features, part.offsets[:-1])
        assert not low.any()
        assert np.isin(high, [0, 1]).all()
        assert np.array_equal(part.normalise().features, part.features)


def test_features_print_short_and_read_back(default: Splits) -> None:
    values = np.unique(default.test.features)
    texts = [f"{value:.4f}".rstrip("0") for value in values]
    assert np.array_equal(np.array([float(text) for text in texts], np.float32), values)


def test_many_features_are_zero_and_some_for_whole_types_of_queries(small: tuple[Settings, Splits]) -> None:
    settings, splits = small
    train = splits.train
    assert 0.3 < np.mean(train.features == 0) < 0.6
    missing = np.maximum.reduceat(train.features, train.offsets[:-1]) == 0
    assert settings.absent / 2 < missing.mean() < settings.absent * 2
    # A query lacks the features of its type: queries fall into as many groups as there are types.
    present = _draw_world(settings, generator(3, Purpose.SYNTHETIC, 0)).present
    assert np.unique(present, axis=0).shape[0] == settings.types
    lacking = np.array([[not row[~kind].any() for kind in present] for row in ~missing])
    assert (lacking.sum(axis=1) >= 1).all()
    assert 0.15 < lacking.mean(axis=0).min() < lacking.mean(axis=0).max() < 0.35


def centred(data: RankingData, values: Float64s) -> Float64s:
    """Values minus their mean within the query."""
    sizes = np.diff(data.offsets)
    shape = (-1,) + (1,) * (values.ndim - 1)
    means = np.add.reduceat(values, data.offsets[:-1]) / sizes.reshape(shape)
    return values - np.repeat(means, sizes, axis=0)


def test_features_of_one_factor_are_correlated_and_irrelevant_ones_tell_nothing(default: Splits) -> None:
    settings, train = SETTINGS["synthetic"], default.train
    main = _draw_world(settings, generator(0, Purpose.SYNTHETIC, 0)).sources[:, 0]
    irrelevant = main >= settings.factors
    assert irrelevant.sum() == settings.irrelevant * settings.features

    features = centred(train, train.features.astype(np.float64))
    correlation = np.abs(np.corrcoef(features, rowvar=False))
    alike = (main[:, None] == main[None, :]) & ~np.eye(main.size, dtype=bool)
    strangers = ~irrelevant[:, None] & irrelevant[None, :]
    assert correlation[alike].mean() > 3 * correlation[strangers].mean()
    assert correlation[alike].max() > 0.5

    grades = centred(train, train.labels.astype(np.float64))
    signal = np.array([np.corrcoef(column, grades)[0, 1] for column in features.T]) * np.sqrt(train.documents)
    assert np.abs(signal[irrelevant]).max() < 4.5  # standard errors, over 32 features
    assert np.mean(np.abs(signal[~irrelevant]) > 4.5) > 0.5


def test_some_features_have_heavy_tails(default: Splits) -> None:
    features = default.train.features
    nonzero = [column[column > 0] for column in features.T]
    skewness = np.array([np.mean((x - x.mean()) ** 3) / x.std() ** 3 for x in nonzero])
    assert np.mean(skewness > 1) > 0.15
    assert np.mean(np.abs(skewness) < 0.5) > 0.15


# Seeds and threads


def test_the_seed_decides_and_threads_do_not(small: tuple[Settings, Splits]) -> None:
    settings, splits = small
    assert same(splits, generate_from(settings, seed=3, threads=1))
    assert same(splits, generate_from(settings, seed=3, threads=2))
    other = generate_from(settings, seed=4)
    assert not np.array_equal(splits.train.offsets, other.train.offsets)
    assert np.mean(splits.train.features[:100] != other.train.features[:100]) > 0.3


def test_splits_share_the_world_but_no_documents(default: Splits) -> None:
    assert not np.array_equal(default.train.features[:100], default.valid.features[:100])
    rows = [{row.tobytes() for row in part.features} for part in default]
    assert sum(len(part) for part in rows) == sum(part.documents for part in default)
    assert not rows[0] & rows[1] | rows[0] & rows[2] | rows[1] & rows[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queries", (10, 0, 10)),
        ("queries", (10, 10)),
        ("fewest", 1),
        ("documents_per_query", 500.0),
        ("grade_shares", (0.5, 0.4)),
        ("grade_shares", (1.0,)),
        ("features", 0),
        ("factors", 1),
        ("query_share", 1.0),
        ("sparse", 1.5),
        ("feature_noise", -1.0),
    ],
)
def test_wrong_settings_are_named(name: str, value: object) -> None:
    with pytest.raises(FultrError, match=f"^{name}: expected .*found"):
        replace(SETTINGS["synthetic"], **{name: value})


def test_relevance_is_not_more_than_its_parts() -> None:
    with pytest.raises(FultrError, match="add up to at most 1"):
        replace(SETTINGS["synthetic"], linear=0.9)
    generate_from(replace(SMALL["synthetic"], linear=0.6, typed=0.1, curved=0.3))  # no noise at all


def test_other_bad_input() -> None:
    with pytest.raises(FultrError, match="'yahoo'; expected synthetic, synthetic-yahoo, synthetic-istella"):
        generate("yahoo")
    with pytest.raises(FultrError, match="seed: expected 0 or more, found -1"):
        generate("synthetic", seed=-1)


def test_few_features_factors_and_documents() -> None:
    tiny = replace(
        SETTINGS["synthetic"], queries=(5, 1, 1), features=1, factors=2, documents_per_query=2, fewest=2, most=2
    )
    for part in generate_from(tiny):
        assert part.mixed_queries().all()
        assert np.isin(part.features, [0, 1]).all()


# What can be learnt


def ndcg_at_5(data: RankingData, scores: Float64s) -> Float64s:
    """Of each query that has a grade above 0; gains 2**y - 1, discount log2(rank + 1), ties in random order."""
    ties = np.random.default_rng(1).random(data.documents)
    discounts = 1 / np.log2(np.arange(5) + 2)

    def dcg(keys: Float64s) -> Float64s:
        query = np.repeat(np.arange(data.queries), np.diff(data.offsets))
        order = np.lexsort((ties, -keys, query))
        rank = np.arange(data.documents) - data.offsets[query]
        gains = np.where(rank < 5, 2.0 ** data.labels[order] - 1, 0) * discounts[np.minimum(rank, 4)]
        return np.add.reduceat(gains, data.offsets[:-1])

    ideal = dcg(data.labels.astype(np.float64))
    return dcg(scores)[ideal > 0] / ideal[ideal > 0]


def least_squares(data: RankingData) -> Float64s:
    """Weights of a linear ranker: ridge regression of grades on features, both centred within queries."""
    features = centred(data, data.features.astype(np.float64))
    grades = centred(data, data.labels.astype(np.float64))
    return np.linalg.solve(features.T @ features + 3 * np.eye(data.width), features.T @ grades)


def trees(data: RankingData) -> lightgbm.Booster:
    """LambdaMART."""
    parameters = {
        "objective": "lambdarank",
        "lambdarank_truncation_level": 10,
        "learning_rate": 0.1,
        "num_leaves": 31,
        "min_data_in_leaf": 50,
        "max_bin": 63,
        "num_threads": 2,
        "deterministic": True,
        "force_row_wise": True,
        "verbose": -1,
    }
    dataset = lightgbm.Dataset(data.features, data.labels, group=np.diff(data.offsets), params=parameters)
    return lightgbm.train(parameters, dataset, num_boost_round=100)


def margin(better: Float64s, worse: Float64s) -> float:
    """How many standard errors of the paired difference `better` is ahead."""
    difference = better - worse
    return float(difference.mean() / (difference.std() / np.sqrt(difference.size)))


@pytest.mark.slow
def test_random_below_linear_on_1_percent_below_linear_on_all_below_trees(default: Splits) -> None:
    train, _, test = default
    random = ndcg_at_5(test, np.zeros(test.documents))
    samples = [train.take(range(30 * i, 30 * (i + 1))) for i in range(10)]
    few = np.mean([ndcg_at_5(test, test.features @ least_squares(sample)) for sample in samples], axis=0)
    full = ndcg_at_5(test, test.features @ least_squares(train))
    forest = ndcg_at_5(test, trees(train).predict(test.features, num_threads=2))
    assert margin(few, random) > 10
    assert margin(full, few) > 8
    assert margin(forest, full) > 6
    # What docs/synthetic.md says of them, within three standard errors of the mean over test queries.
    for measured, stated in ((random, 0.338), (full, 0.603), (forest, 0.672)):
        assert abs(measured.mean() - stated) < 3 * measured.std() / np.sqrt(measured.size)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synthetic-yahoo", "synthetic-istella"])
def test_the_same_order_in_small_copies_of_the_large_ones(name: str) -> None:
    # 1% of the queries that the data set has at full size, and 8 times as many instead of 100 times.
    few = SETTINGS[name].queries[0] // 100
    train, _, test = generate_from(replace(SETTINGS[name], queries=(8 * few, 1, 400)))
    random = ndcg_at_5(test, np.zeros(test.documents))
    samples = [train.take(range(few * i, few * (i + 1))) for i in range(4)]
    policy = np.mean([ndcg_at_5(test, test.features @ least_squares(sample)) for sample in samples], axis=0)
    full = ndcg_at_5(test, test.features @ least_squares(train))
    assert margin(policy, random) > 10
    assert margin(full, policy) > 5


# Memory


MEMORY = """
import resource
from dataclasses import replace
from fultr.data.synthetic import SETTINGS, generate_from

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

settings = SETTINGS["synthetic-yahoo"]
generate_from(replace(settings, queries=(10, 1, 1)))  # compiles
before = peak()
splits = generate_from(replace(settings, queries=(4_000, 100, 100)))
print((peak() - before) / sum(part.features.nbytes for part in splits))
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
def test_memory_is_the_feature_arrays_and_little_beside() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.05
