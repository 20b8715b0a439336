"""`UnbiasedRanker` and other software, as `fultr bench practitioner` trains them on a click log.

Every method gets the same table with a row for each displayed document; LightGBM and XGBoost get each page as a group,
with the clicks as labels. Those to be tuned have several candidates, of which the one with the best NDCG on judged
validation queries counts, with as many trees as are best there: more than anyone with a click log could do. Other
software runs with as many threads as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fultr.core.arrays import Float32s
from fultr.core.threads import default_threads
from fultr.data.ranking import RankingData
from fultr.learn.ranker import UnbiasedRanker
from fultr.study.practitioner_logs import DISPLAYED, Table

_TREES, _PATIENCE = 500, 30

Candidate: TypeAlias = Mapping[str, Any]
"""Settings of a method that is tuned, by the names that its software has for them."""


class Fitted(NamedTuple):
    """A function that scores documents, and NDCG on the validation queries; NaN if it was not measured."""

    score: Callable[[Float32s], Any]
    valid: float = float("nan")


@dataclass(frozen=True)
class Method:
    """How something is trained.

    Attributes:
        fit: a table, judged validation queries and a candidate in.
        candidates: what is tried; one that is empty: default settings.
    """

    fit: Callable[[Table, RankingData, Candidate], Fitted]
    candidates: tuple[Candidate, ...] = ({},)


def _ours(model: str) -> Method:
    def fit(table: Table, valid: RankingData, candidate: Candidate) -> Fitted:
        ranker = UnbiasedRanker(model)  # type: ignore[arg-type]
        return Fitted(ranker.fit(table.features, table.clicks, query=table.query, rank=table.rank).predict)

    return Method(fit)


def _lightgbm(positions: bool, *candidates: Candidate) -> Method:
    def fit(table: Table, valid: RankingData, candidate: Candidate) -> Fitted:
        import lightgbm

        common = {"objective": "lambdarank", "verbose": -1, "num_threads": default_threads(), **candidate}
        place = table.rank - 1 if positions else None
        train = lightgbm.Dataset(table.features, table.clicks, group=table.groups, position=place, params=common)
        if not candidate:
            return Fitted(lightgbm.train(common, train).predict)
        judged = train.create_valid(valid.features, valid.labels, group=np.diff(valid.offsets))
        how = {**common, "learning_rate": 0.05, "feature_fraction": 0.5, "metric": "ndcg", "eval_at": [DISPLAYED]}
        stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
        booster = lightgbm.train(how, train, _TREES, valid_sets=[judged], callbacks=[stop])
        return Fitted(booster.predict, booster.best_score["valid_0"][f"ndcg@{DISPLAYED}"])

    return Method(fit, candidates or ({},))


def _xgboost(*candidates: Candidate) -> Method:
    def fit(table: Table, valid: RankingData, candidate: Candidate) -> Fitted:
        import xgboost

        common = {"objective": "rank:ndcg", "lambdarank_unbiased": True, "n_jobs": default_threads(), **candidate}
        if not candidate:
            return Fitted(xgboost.XGBRanker(**common).fit(table.features, table.clicks, qid=table.page).predict)
        judged = np.repeat(np.arange(valid.queries), np.diff(valid.offsets))
        how = {**common, "learning_rate": 0.1, "colsample_bytree": 0.5, "n_estimators": _TREES}
        one = xgboost.XGBRanker(**how, eval_metric=f"ndcg@{DISPLAYED}", early_stopping_rounds=_PATIENCE)
        held = [(valid.features, valid.labels)]
        one.fit(table.features, table.clicks, qid=table.page, eval_set=held, eval_qid=[judged], verbose=False)
        return Fitted(one.predict, one.best_score)  # with the trees up to the best

    return Method(fit, candidates or ({},))


_LIGHTGBM = [{"num_leaves": leaves, "min_data_in_leaf": least} for leaves in (7, 31) for least in (20, 500)]
_XGBOOST = [{"max_depth": depth, "min_child_weight": least} for depth in (3, 6) for least in (1, 20)]

METHODS: dict[str, Method] = {
    "fultr": _ours("trees"),
    "fultr linear": _ours("linear"),
    "fultr mlp": _ours("mlp"),
    "LightGBM": _lightgbm(False),
    "LightGBM position": _lightgbm(True),
    "XGBoost unbiased": _xgboost(),
    "LightGBM tuned": _lightgbm(False, *_LIGHTGBM),
    "LightGBM position tuned": _lightgbm(True, *_LIGHTGBM),
    "XGBoost unbiased tuned": _xgboost(*_XGBOOST),
}
"""Every method, by name."""
