"""scikit-learn's own checks, pipelines, and searches with metadata routing.

The checks call fit(X, y) with any y. An estimator of click logs needs to know the query and the rank of each row, too:
the classes here add what the checks do not give (pages of five rows), and take values above the median for clicks.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import fultr

PAGE = 5


def _clicks(y):
    """Values above the median as clicks; whatever is no number goes on to the estimator, to be refused there."""
    if np.iscomplexobj(y):
        return y
    try:
        values = np.asarray(y, np.float64)
    except (TypeError, ValueError):
        return y
    if not values.size or values.ndim != 1 or not np.isfinite(values).all():
        return y
    above = values > np.median(values)
    return (above if above.any() else ~above).astype(int)


def _pages(rows):
    return {"query": np.arange(rows) // PAGE, "rank": np.arange(rows) % PAGE + 1}


class CheckedRanker(fultr.UnbiasedRanker):
    def fit(self, X, y=None):  # noqa: N803
        rows = len(y) if y is not None else 0
        return super().fit(X, None if y is None else _clicks(y), **_pages(rows))

    def score(self, X, y):  # noqa: N803
        return super().score(X, _clicks(y), **_pages(len(y)))


class CheckedBias(fultr.PositionBias):
    def fit(self, X, y=None):  # noqa: N803
        rows = len(y) if y is not None else 0
        return super().fit(X, None if y is None else _clicks(y), **_pages(rows))


@parametrize_with_checks([CheckedRanker(folds=2, n_jobs=1), CheckedRanker("linear", folds=2), CheckedBias(draws=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def _log(pages=3000):
    """Pages of four documents; feature 0 is relevance, feature 1 the order that users saw, rank k is examined 1 / k."""
    rng = np.random.default_rng(0)
    x = rng.random((pages, 4, 3))
    x = np.take_along_axis(x, np.argsort(-x[..., 1], axis=1)[..., np.newaxis], axis=1).reshape(-1, 3)
    rank = np.tile([1, 2, 3, 4], pages)
    clicks = (rng.random(4 * pages) < (0.1 + 0.5 * x[:, 0]) / rank).astype(int)
    return x, clicks, {"query": np.repeat(np.arange(pages), 4), "rank": rank}


def _routed(**parameters):
    ranker = fultr.UnbiasedRanker("linear", folds=2, **parameters)
    return ranker.set_fit_request(query=True, rank=True).set_score_request(query=True, rank=True)


def test_a_search_with_grouped_folds_prefers_what_corrects_clicks():
    x, clicks, given = _log()
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(_routed(), {"propensity": ["auto", "none"]}, cv=GroupKFold(3))
        search.fit(x, clicks, groups=given["query"], **given)
    assert search.best_params_ == {"propensity": "auto"}
    relevance, order = search.best_estimator_.ranker_.weights[:2]
    assert relevance > 3 * abs(order)


@pytest.mark.parametrize("given", [True, False])
def test_a_search_keeps_the_propensities_that_it_is_given(given):
    """As the ranker's own parameter, or as one that is tried: what was fitted on another log is not fitted anew."""
    x, clicks, columns = _log(600)
    bias = fultr.PositionBias("regression", draws=0).fit(x, clicks, **columns)
    bias.examination_ = np.array([1, 0.9, 0.8, 0.7])  # as from another log
    with config_context(enable_metadata_routing=True):
        ranker, tried = (_routed(propensity=bias), [2]) if given else (_routed(), [2])
        grid = {"folds": tried} if given else {"folds": tried, "propensity": [bias]}
        search = GridSearchCV(ranker, grid, cv=GroupKFold(3)).fit(x, clicks, groups=columns["query"], **columns)
    assert search.best_estimator_.examination_.tolist() == [1, 0.9, 0.8, 0.7]
    assert search.best_estimator_.report_.propensity == "given"
    copied = clone(bias)
    assert copied is not bias
    assert copied.set_params(method="em").fit(x, clicks, **columns).method_ == "em"
    assert bias.method == bias.method_ == "regression"


def test_a_pipeline_fits_predicts_scores_and_is_searched():
    x, clicks, given = _log()
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), _routed()).fit(x, clicks, **given)
        assert 0.5 < pipeline.score(x, clicks, **given) < 1
        search = GridSearchCV(pipeline, {"unbiasedranker__propensity": ["none", "auto"]}, cv=GroupKFold(3))
        search.fit(x, clicks, groups=given["query"], **given)
    assert search.best_params_ == {"unbiasedranker__propensity": "auto"}
    assert pipeline.predict([[0.9, 0.5, 0.5]])[0] > pipeline.predict([[0.1, 0.5, 0.5]])[0]
