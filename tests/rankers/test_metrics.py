"""Metrics against scikit-learn, trec_eval and plain loops."""

from __future__ import annotations

import numpy as np
import plain
import pytest
from pytrec_eval import RelevanceEvaluator
from sklearn.metrics import ndcg_score

from fultr.core.errors import FultrError
from fultr.data.ranking import RankingData
from fultr.rankers.linear import Linear
from fultr.rankers.metrics import (
    average_relevant_position,
    mean_over_queries,
    mrr,
    ndcg,
    ndcg_of_rankers,
    precision,
    ranking,
    relevant_ranks,
    summarise,
)


def by_query(data: RankingData):
    return [slice(a, b) for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)]


def distinct_scores(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.permutation(n).astype(np.float32)


@pytest.mark.parametrize("k", [1, 3, 5, 10, 50])
def test_ndcg_equals_scikit_learn(k):
    rng = np.random.default_rng(k)
    data = plain.random_data(rng, queries=300, most=20)
    scores = distinct_scores(rng, data.documents)
    values = ndcg(scores, data, k=k)
    for value, rows in zip(values, by_query(data), strict=True):
        gains = 2.0 ** data.labels[rows] - 1
        if gains.max() == 0:
            assert np.isnan(value)
        elif gains.size > 1:  # scikit-learn refuses a single document
            assert value == pytest.approx(ndcg_score([gains], [scores[rows]], k=k), rel=1e-12)
        else:
            assert value == 1


@pytest.mark.parametrize("k", [1, 3, 5, 10, 50])
def test_ndcg_precision_and_mrr_equal_trec_eval(k):
    """TREC's own program, in C: it takes gains where we take grades, and counts a query without relevant ones as 0."""
    rng = np.random.default_rng(100 + k)
    data = plain.random_data(rng, queries=300, most=20)
    scores = distinct_scores(rng, data.documents)
    grades, run = {}, {}
    for q, rows in zip(data.query_ids, by_query(data), strict=True):
        grades[str(q)] = {str(d): 2 ** int(data.labels[d]) - 1 for d in range(rows.start, rows.stop)}
        run[str(q)] = {str(d): float(scores[d]) for d in range(rows.start, rows.stop)}
    answers = {}
    for measures, least in (({f"ndcg_cut.{k}"}, 1), ({f"P.{k}", "recip_rank"}, 2**3 - 1)):
        told = RelevanceEvaluator(grades, measures, relevance_level=least).evaluate(run)
        for name in next(iter(told.values())):
            answers[name] = np.array([told[str(q)][name] for q in data.query_ids])
    for found, wanted, least in (
        (ndcg(scores, data, k=k), answers[f"ndcg_cut_{k}"], 1),
        (precision(scores, data, k=k, relevant_grade=3), answers[f"P_{k}"], 3),
        (mrr(scores, data, relevant_grade=3), answers["recip_rank"], 3),
    ):
        without = np.maximum.reduceat(data.labels, data.offsets[:-1]) < least
        assert 0 < without.sum() < data.queries / 2
        np.testing.assert_allclose(found[~without], wanted[~without], rtol=1e-12)
        assert np.isnan(found[without]).all()


def test_expected_values_by_hand():
    data = RankingData.from_arrays([[0.0]] * 4, labels=[3, 0, 1, 4], query_ids=[5] * 4)
    scores = np.float32([0.1, 0.9, 0.5, 0.3])  # ranks 4, 1, 2, 3
    dcg = 0 / np.log2(2) + 1 / np.log2(3) + 15 / np.log2(4)
    ideal = 15 / np.log2(2) + 7 / np.log2(3) + 1 / np.log2(4)
    assert ndcg(scores, data, k=3)[0] == pytest.approx(dcg / ideal, rel=1e-12)
    assert relevant_ranks(scores, data, relevant_grade=3).tolist() == [4, 0, 0, 3]
    assert mrr(scores, data, relevant_grade=3).tolist() == [1 / 3]
    assert precision(scores, data, k=3, relevant_grade=3).tolist() == [1 / 3]
    assert average_relevant_position(scores, data, relevant_grade=3).tolist() == [(3 + 4) / 2]


def test_ties_are_broken_at_random_and_never_by_file_order():
    """With equal scores, the best document is first as often as chance has it, wherever it stands in the file."""
    n, documents = 4000, 4
    for place in (0, documents - 1):
        labels = np.zeros((n, documents), int)
        labels[:, place] = 1
        data = RankingData.from_arrays(np.zeros((n * documents, 1)), labels.ravel(), np.repeat(np.arange(n), documents))
        first = precision(np.zeros(data.documents, np.float32), data, k=1, relevant_grade=1)
        error = np.sqrt(0.25 * 0.75 / n)
        assert abs(first.mean() - 1 / documents) < 4 * error
        assert np.array_equal(ndcg(np.zeros(data.documents, np.float32), data, k=1), first)


def test_tie_order_belongs_to_the_query_not_to_its_place_in_the_data():
    rng = np.random.default_rng(3)
    data = plain.random_data(rng, queries=50)
    part = data.take([7, 30, 2])
    whole = ndcg(np.zeros(data.documents, np.float32), data)
    np.testing.assert_array_equal(ndcg(np.zeros(part.documents, np.float32), part), whole[[7, 30, 2]])


def test_nan_scores_rank_last():
    data = RankingData.from_arrays([[0.0]] * 3, labels=[1, 0, 0], query_ids=[1] * 3)
    assert relevant_ranks(np.float32([np.nan, -np.inf, -5]), data, relevant_grade=1).tolist() == [3, 0, 0]
    assert ndcg(np.float32([np.nan, 1, 2]), data, k=2).tolist() == [0.0]


def test_ranking_agrees_with_the_metrics():
    rng = np.random.default_rng(5)
    data = plain.random_data(rng, queries=40)
    scores = rng.integers(0, 3, data.documents).astype(np.float32)
    rows = ranking(scores, data)
    ranks = relevant_ranks(scores, data, relevant_grade=1)
    for part in by_query(data):
        assert sorted(rows[part]) == list(range(part.start, part.stop))
        for place, row in enumerate(rows[part], start=1):
            assert ranks[row] in (0, place)


@pytest.mark.parametrize("features", [1, 5, 46, 64, 519])
def test_a_ranker_scores_the_same_alone_among_others_and_with_any_number_of_threads(features):
    rng = np.random.default_rng(features)
    data = plain.random_data(rng, queries=70, features=features)
    weights = rng.standard_normal((33, features)).astype(np.float32)
    together = ndcg_of_rankers(Linear(data.width), weights, data, threads=1)
    np.testing.assert_array_equal(ndcg_of_rankers(Linear(data.width), weights, data, threads=2), together)
    for i in (0, 1, 7, 32):
        np.testing.assert_array_equal(
            ndcg_of_rankers(Linear(data.width), weights[i : i + 1], data)[:, 0], together[:, i]
        )
    for begin, end in ((0, 5), (3, 10), (32, 33)):
        np.testing.assert_array_equal(
            ndcg_of_rankers(Linear(data.width), weights[begin:end], data), together[:, begin:end]
        )


def test_rankers_equal_their_scores():
    rng = np.random.default_rng(9)
    data = plain.random_data(rng, queries=50, features=20)
    weights = rng.standard_normal((3, 20)).astype(np.float32)
    scores = data.features.astype(np.float64) @ weights.T.astype(np.float64)
    data = RankingData(
        np.round(data.features * 8) / np.float32(8), data.labels, data.offsets, data.query_ids, data.feature_ids
    )
    weights = np.round(weights * 8).astype(np.float32) / 8  # exact in float32: ties are ties for both
    scores = (data.features.astype(np.float64) @ weights.T).astype(np.float32)
    np.testing.assert_array_equal(ndcg_of_rankers(Linear(data.width), weights, data), ndcg(scores, data))


def test_means_leave_out_queries_without_a_relevant_document():
    values = np.array([[0.5, 0.25], [np.nan, np.nan], [1.0, 0.75]])
    assert mean_over_queries(values).tolist() == [0.75, 0.5]
    summary = summarise(values[:, 0])
    assert (summary.mean, summary.queries) == (0.75, 2)
    assert summary.standard_error == pytest.approx(np.std([0.5, 1.0], ddof=1) / np.sqrt(2))
    with pytest.raises(FultrError, match="nothing to measure"):
        mean_over_queries(values[1:2])


def test_cutoff_below_one_is_refused():
    data = plain.random_data(np.random.default_rng(0))
    with pytest.raises(FultrError, match="k: expected"):
        ndcg(np.zeros(data.documents, np.float32), data, k=0)
