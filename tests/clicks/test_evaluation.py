"""What rankers would have got, on simulated logs whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fultr.clicks.bootstrap import units_of
from fultr.clicks.evaluated import ESTIMATORS, METRICS, Examined
from fultr.clicks.evaluation import evaluate_from_clicks
from fultr.clicks.impressions import ImpressionLog
from fultr.core.errors import FultrError
from fultr.rankers.ranker import Ranker

K = 6
EXAMINATION = 1 / np.arange(1, K + 1)
QUERIES = 30
RELEVANCE = np.random.default_rng(0).beta(0.7, 1.5, (QUERIES, K))
GAINS = {
    "dcg": 1 / np.log2(np.arange(2, K + 2)),
    "reciprocal": EXAMINATION,
    "precision": np.full(K, 1 / K),
    "clicks": EXAMINATION,
    "rank": np.arange(1.0, K + 1),
}


def simulated(rng: np.random.Generator, users: int = 150, pages: int = 6, noise: float = 0.0) -> ImpressionLog:
    """Users of different activity search queries at random; pages are in a random order of the query's documents."""
    active = rng.integers(1, 2 * pages, users)
    user = np.repeat(np.arange(users), active)
    query = rng.integers(QUERIES, size=user.size)
    order = np.argsort(rng.normal(size=(user.size, K)) - RELEVANCE[query], axis=1)
    attraction = noise + (1 - noise) * np.take_along_axis(RELEVANCE[query], order, axis=1)
    clicks = rng.random(order.shape) < EXAMINATION * attraction
    return ImpressionLog.from_arrays(query, order, clicks, user)


def scores(log: ImpressionLog, by_query: np.ndarray) -> np.ndarray:
    """Scores of a log's pairs from a table [queries, K]."""
    return by_query[log.query_names[log.query_of_pair], log.document_names]


def truth(by_query: np.ndarray, metric: str, *, per_relevant: bool = False) -> float:
    """The mean metric of a ranker over queries, which are searched equally often."""
    sorted_ = np.take_along_axis(RELEVANCE, np.argsort(-by_query, axis=1), axis=1)
    value = (sorted_ * GAINS[metric]).sum(axis=1).mean()
    return value / RELEVANCE.sum(axis=1).mean() if per_relevant else value


GOOD = RELEVANCE + 0.1 * np.random.default_rng(1).normal(size=RELEVANCE.shape)
POOR = 0.2 * RELEVANCE + np.random.default_rng(2).normal(size=RELEVANCE.shape)


def test_equal_scores_keep_what_was_on_the_page():
    log = ImpressionLog.from_arrays([1, 1, 1, 2], [[5, 6, -1], [7, 8, 9], [9, -1, -1], [1, 2, -1]], np.zeros((4, 3)))
    log = replace(log, clicks=np.where(log.shown, 1, 0).astype(np.uint8))

    def unseen(by_document):
        given = np.array([by_document.get(name, 0.0) for name in log.document_names.tolist()])
        return evaluate_from_clicks(log, {"new": given}, [1, 0.5, 0.3], draws=20)

    same = unseen({})
    assert same.unseen == (0, 0)
    assert (same.better("new").low, same.better("new").high) == (0, 0)
    assert unseen({9: 1.0}).unseen[1] == pytest.approx(1 / 8)  # of 2 + 3 + 1 + 2: on the first page 9, then 5
    assert unseen({5: 1.0, 9: 1.0}).unseen[1] == pytest.approx(2 / 8)  # also on the second: 5, 9 and 7


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("metric", METRICS)
def test_estimates_are_those_of_a_plain_loop(metric, estimator):
    log = simulated(np.random.default_rng(3), users=12)
    clip = 3.0
    found = evaluate_from_clicks(
        log, {"good": scores(log, GOOD)}, EXAMINATION, metric=metric, estimator=estimator, clip=clip, cutoff=4, draws=20
    )
    gain = GAINS[metric] if metric != "precision" else np.full(K, 1 / 4)
    total, weight = 0.0, 0.0
    unit = units_of(log, "users")
    for i in range(log.impressions):
        order = sorted(range(K), key=lambda k: -scores(log, GOOD)[log.documents[i, k]])
        for place, k in enumerate(order):
            w = min(1 / EXAMINATION[k], clip) * log.clicks[i, k]
            if estimator == "doubly-robust":
                made = seen = every = examined = 0.0
                for j in np.flatnonzero(unit % 2 != unit[i] % 2):
                    for rank in range(K):
                        every += log.clicks[j, rank]
                        examined += EXAMINATION[rank]
                        if log.documents[j, rank] == log.documents[i, k]:
                            made += log.clicks[j, rank]
                            seen += EXAMINATION[rank]
                relevance = (made + every / examined) / (seen + 1)
                w += relevance * (1 - EXAMINATION[k] * min(1 / EXAMINATION[k], clip))
            total += w * gain[place] * (place < 4)
            weight += w
    divisor = weight if estimator == "self-normalised" else log.impressions
    assert found.means[1] == pytest.approx(total / divisor)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_means_over_many_logs_are_the_truth(estimator):
    """Within 4 standard errors; the ratio of "self-normalised" is biased by less than these at 1,000 pages a log."""
    rng, means = np.random.default_rng(4), []
    for _ in range(60):
        log = simulated(rng)
        rankers = {"good": scores(log, GOOD), "poor": scores(log, POOR)}
        means.append(evaluate_from_clicks(log, rankers, EXAMINATION, estimator=estimator, draws=20).means[1:])
    expected = [truth(table, "dcg", per_relevant=estimator == "self-normalised") for table in (GOOD, POOR)]
    errors = np.std(means, axis=0, ddof=1) / math.sqrt(len(means))
    assert np.all(np.abs(np.mean(means, axis=0) - expected) < 4 * errors)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_intervals_cover_as_often_as_they_say_and_answers_are_right(estimator):
    """600 logs: 90% to 98% of nominal 95% intervals cover, and the poor ranker is never called better."""
    rng = np.random.default_rng(5)
    value, expected = [], truth(GOOD, "dcg", per_relevant=estimator == "self-normalised")
    gap = truth(GOOD, "dcg") - truth(POOR, "dcg")
    gaps, answers, nulls = [], [], []
    for _ in range(600):
        log = simulated(rng, users=60)
        rankers = {"good": scores(log, GOOD), "poor": scores(log, POOR), "same": scores(log, 3 * GOOD)}
        found = evaluate_from_clicks(log, rankers, EXAMINATION, estimator=estimator, draws=200)
        good = found.values[1]
        value.append(good.low <= expected <= good.high)
        compared = found.better("good", "poor")
        gaps.append(compared.low <= gap <= compared.high)
        answers.append(compared.answer)
        nulls.append(found.better("good", "same").answer)
    assert 0.90 <= np.mean(value) <= 0.98
    if estimator != "self-normalised":  # whose difference is per relevant document
        assert 0.90 <= np.mean(gaps) <= 0.98
    assert answers.count("yes") > 450
    assert answers.count("no") == 0
    assert set(nulls) == {"inconclusive"}


def test_estimated_examination_widens_intervals():
    """With the examination of each draw, as estimated from it, intervals know that it is not known."""
    log = simulated(np.random.default_rng(6))
    rankers = {"good": scores(log, GOOD)}
    known = evaluate_from_clicks(log, rankers, EXAMINATION, draws=200).values[1]
    spread = EXAMINATION * np.exp(0.3 * np.random.default_rng(7).normal(size=(200, K)))
    spread[:, 0] = 1
    unsure = evaluate_from_clicks(log, rankers, Examined(EXAMINATION, draws=spread), draws=200).values[1]
    assert unsure.mean == known.mean
    assert unsure.high - unsure.low > 1.5 * (known.high - known.low)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("metric", METRICS)
def test_draws_with_examination_of_their_own_are_those_without_if_it_is_the_same(metric, estimator):
    """Two ways to compute a draw; that doubly robust ones predict relevance anew makes no difference without a clip."""
    log = simulated(np.random.default_rng(6), users=40)
    rankers = {"good": scores(log, GOOD), "poor": scores(log, POOR)}
    same = Examined(EXAMINATION, draws=np.tile(EXAMINATION, (30, 1)))
    options = dict(
        metric=metric, estimator=estimator, cutoff=4, clip=1e9 if estimator == "doubly-robust" else 2.5, draws=30
    )
    once = evaluate_from_clicks(log, rankers, EXAMINATION, **options)
    anew = evaluate_from_clicks(log, rankers, same, **options)
    np.testing.assert_allclose(anew.draws, once.draws, rtol=1e-9)
    np.testing.assert_allclose(anew.means, once.means, rtol=1e-12)


def test_affine_credit_removes_clicks_on_what_is_not_relevant():
    """Clicks happen with probability p (n + (1 - n) r): slope p (1 - n), offset p n; by standard errors over logs."""
    rng, noise, found = np.random.default_rng(8), 0.2, []
    affine = Examined(EXAMINATION * (1 - noise), EXAMINATION * noise)
    for _ in range(60):
        log = simulated(rng, noise=noise)
        rankers = {"poor": scores(log, POOR)}
        found.append([evaluate_from_clicks(log, rankers, e, draws=20).means[1] for e in (affine, EXAMINATION)])
    error = np.std(found, axis=0, ddof=1) / math.sqrt(len(found))
    off = np.abs(np.mean(found, axis=0) - truth(POOR, "dcg")) / error
    assert off[0] < 4
    assert off[1] > 10  # without it


def test_a_log_that_cannot_tell_says_so():
    few = simulated(np.random.default_rng(9), users=3, pages=2)
    found = evaluate_from_clicks(few, {"good": scores(few, GOOD)}, EXAMINATION, draws=20)
    assert found.refusal == "There are only 3 users to resample: intervals would be too narrow."
    assert found.better("good").answer == "inconclusive"
    log = simulated(np.random.default_rng(10))
    blind = evaluate_from_clicks(log, {"good": scores(log, GOOD)}, np.r_[np.ones(K - 1), 0.0], draws=20)
    assert blind.refusal == "Rank 6 has clicks, but its examination is 0: no weight makes up for that."
    small = simulated(np.random.default_rng(9), users=20)
    steep = evaluate_from_clicks(small, {"good": scores(small, GOOD)}, 1e-3 ** np.arange(K), draws=20)
    last = int(small.clicks[:, -1].sum())  # all weight is theirs
    total = int(small.clicks.sum())
    assert steep.refusal == f"After weighting, {total} clicks count as {last}: too few to tell."


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_nothing_is_said_of_nothing(estimator):
    """A log without clicks is refused; clicks where nothing is examined count nothing, and nothing has no share."""
    pages = [[0, 1]] * 20
    silent = ImpressionLog.from_arrays(range(20), pages, np.zeros((20, 2)))
    with pytest.raises(FultrError, match="click log: no document was clicked, so no ranker can be judged"):
        evaluate_from_clicks(silent, {}, [1, 0.5], estimator=estimator)
    unseen = ImpressionLog.from_arrays(range(20), pages, [[0, 1]] * 20)
    found = evaluate_from_clicks(unseen, {}, [1, 0], estimator=estimator, draws=20)
    assert found.refusal == "Rank 2 has clicks, but its examination is 0: no weight makes up for that."
    assert np.isnan(found.means[0]) == (estimator == "self-normalised")


def test_lower_ranks_are_better():
    log = simulated(np.random.default_rng(11))
    rankers = {"good": scores(log, GOOD), "poor": scores(log, POOR)}
    found = evaluate_from_clicks(log, rankers, EXAMINATION, metric="rank", draws=200)
    assert found.means[1] < found.means[2]
    assert found.better("good", "poor").answer == "yes"
    assert found.better("poor", "good").answer == "no"


def test_bad_input_is_one_line():
    log = simulated(np.random.default_rng(12), users=20)
    with pytest.raises(FultrError, match=r"examination: expected 6 numbers, one per rank, at least 0"):
        evaluate_from_clicks(log, {}, [1.0])
    with pytest.raises(FultrError, match=r"rankers: expected a finite score from a for each of the log's \d+ pairs"):
        evaluate_from_clicks(log, {"a": [1.0]}, EXAMINATION)
    with pytest.raises(FultrError, match=r"rankers: expected scores from a, found a ranker; fultr.score_pairs"):
        evaluate_from_clicks(log, {"a": Ranker(np.float32([1]), np.array([1]))}, EXAMINATION)
    with pytest.raises(FultrError, match=r"rankers: expected scores by name"):
        evaluate_from_clicks(log, [np.ones(log.pairs)], EXAMINATION)
    for most in (-5, 2, "x"):
        with pytest.raises(FultrError, match=r"most_unseen: expected a number, at least 0, at most 1, found"):
            evaluate_from_clicks(log, {}, EXAMINATION, most_unseen=most)
    with pytest.raises(FultrError, match=r"examination: expected numbers, found"):
        evaluate_from_clicks(log, {}, "auto")
    listed = evaluate_from_clicks(log, {}, Examined(EXAMINATION.tolist()), draws=20)
    assert listed.means == evaluate_from_clicks(log, {}, EXAMINATION, draws=20).means
    with pytest.raises(FultrError, match=r"another name"):
        evaluate_from_clicks(log, {"displayed": np.ones(log.pairs)}, EXAMINATION)
    with pytest.raises(FultrError, match=r"ranker: expected one of displayed; found"):
        evaluate_from_clicks(log, {}, EXAMINATION).better("b")
