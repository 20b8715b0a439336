"""`UnbiasedRanker` and other software on the same click logs: what rankers reach on judged queries, at what cost.

Simulated users click on pages of one logging policy, or of three that are used at random. Every method gets the same
table with a row for each displayed document; LightGBM and XGBoost get each page as a group, with the clicks as labels.
"Tuned" ones have the best of four settings, and as many trees as are best, by NDCG on judged validation queries: more
than anyone with a click log could do. Other software runs with as many threads as ours. Where there are few judged
queries, each repeat divides them anew into those to train on and those to test on.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fultr.clicks.models.position_based import PositionBased, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float32s, Int64s, UInt8s
from fultr.core.checks import check_number
from fultr.core.errors import FultrError
from fultr.core.threads import default_threads
from fultr.data.ranking import RankingData, Splits
from fultr.learn.ranker import UnbiasedRanker
from fultr.rankers.metrics import ndcg
from fultr.study.lightgbm_ceiling import lightgbm_ndcg
from fultr.study.policy import display, train_policy
from fultr.study.settings import FreshUsers
from fultr.study.users import attraction, cohorts

DISPLAYED = 5
_CLICKS_OF_A_USER = 10
_USERS_AT_A_TIME = 2000
_TREES, _PATIENCE = 500, 30
_FEW = 1000  # test queries: with fewer, each repeat divides all queries anew
_FIRST_PAGES = 1000  # of a log, to compile with
_LIGHTGBM = [{"num_leaves": leaves, "min_data_in_leaf": least} for leaves in (7, 31) for least in (20, 500)]
_XGBOOST = [{"max_depth": depth, "min_child_weight": least} for depth in (3, 6) for least in (1, 20)]

Score: TypeAlias = Callable[[Float32s], Any]
Fit: TypeAlias = Callable[["Table", RankingData], Score]


@dataclass(frozen=True, order=True)
class Case:
    """A click log to be made: which data, how users click, how many policies and clicks, and the seed of all."""

    repeat: int
    clicks: int
    data: str
    gamma: float
    policies: int

    def __post_init__(self) -> None:
        check_number("clicks", self.clicks, least=1, whole=True)
        check_number("gamma", self.gamma, least=0)
        check_number("policies", self.policies, least=1, whole=True)


@dataclass(frozen=True, eq=False)
class Table:
    """A click log with a row for each displayed document, page by page, in the order of ranks."""

    features: Float32s
    clicks: UInt8s
    query: Int64s
    rank: Int64s
    user: Int64s
    page: Int64s

    def take(self, rows: Any) -> Table:
        """Some of the rows."""
        return Table(*(column[rows] for column in vars(self).values()))

    @property
    def groups(self) -> Int64s:
        """How many rows each page has."""
        return np.unique(self.page, return_counts=True)[1]


def divided(splits: Splits, seed: int) -> Splits:
    """All queries of a data set, divided anew: 60% to train on, 20% for validation, 20% for the test.

    >>> data = RankingData.from_arrays([[0.0]] * 5, labels=[0] * 5, query_ids=range(5))
    >>> again = divided(Splits(data, data, data, "fifteen"), seed=1)
    >>> [part.queries for part in again]
    [9, 3, 3]
    """
    parts = list(splits)
    begins = np.cumsum([0, *(part.documents for part in parts)])
    whole = RankingData(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([[0], *(part.offsets[1:] + begin for part, begin in zip(parts, begins, strict=False))]),
        np.concatenate([part.query_ids for part in parts]),
        splits.train.feature_ids,
    )
    train, valid, test = whole.split(seed=seed)
    return replace(splits, train=train, valid=valid, test=test)


def made_log(train: RankingData, case: Case) -> tuple[Table, Float32s]:
    """A click log of simulated users, and the weights of its logging policies."""
    policies = np.stack([train_policy(train, seed=case.repeat, version=version) for version in range(case.policies)])
    shown = display(train, policies, displayed=DISPLAYED, seed=case.repeat)
    model = ClickModel(gamma=case.gamma)
    number = max(1, case.clicks // _CLICKS_OF_A_USER)
    users = cohorts(FreshUsers(), train, model, number, case.repeat)
    attracted = attraction(train, shown, model)
    logs = []
    for begin in range(0, number, _USERS_AT_A_TIME):
        clients = np.arange(begin, min(begin + _USERS_AT_A_TIME, number))
        logs.append(
            simulate_clicks(
                PositionBased(),
                attracted,
                examination(users.severities(0, clients), DISPLAYED),
                clients,
                sessions=Sessions(clicks=_CLICKS_OF_A_USER),
                seed=case.repeat,
                round_=0,
                versions=case.policies,
            )
        )
    pages = np.concatenate([log.queries for log in logs])
    sizes = np.concatenate([np.diff(log.offsets) for log in logs])
    clicks = np.concatenate([log.clicks for log in logs])
    documents = shown.documents[pages]
    there = documents >= 0
    page = np.repeat(np.arange(pages.size), there.sum(axis=1))
    rank = np.broadcast_to(np.arange(1, DISPLAYED + 1), documents.shape)[there]
    table = Table(
        train.features[documents[there]],
        clicks[there],
        (pages % train.queries)[page].astype(np.int64),
        rank,
        np.repeat(np.arange(number), sizes)[page],
        page,
    )
    return table, policies


def _ours(model: str) -> Fit:
    def fit(table: Table, valid: RankingData) -> Score:
        ranker = UnbiasedRanker(model)  # type: ignore[arg-type]
        return ranker.fit(table.features, table.clicks, query=table.query, rank=table.rank).predict

    return fit


def _lightgbm(positions: bool, tuned: bool) -> Fit:
    def fit(table: Table, valid: RankingData) -> Score:
        import lightgbm

        common = {"objective": "lambdarank", "verbose": -1, "num_threads": default_threads()}
        place = table.rank - 1 if positions else None
        train = lightgbm.Dataset(
            table.features, table.clicks, group=table.groups, position=place, params=common, free_raw_data=False
        )
        if not tuned:
            return lightgbm.train(common, train).predict
        judged = train.create_valid(valid.features, valid.labels, group=np.diff(valid.offsets))
        found = []
        for settings in _LIGHTGBM:
            how = {**common, **settings, "learning_rate": 0.05, "feature_fraction": 0.5, "metric": "ndcg"}
            stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
            found.append(
                lightgbm.train({**how, "eval_at": [DISPLAYED]}, train, _TREES, valid_sets=[judged], callbacks=[stop])
            )
        best = max(found, key=lambda one: one.best_score["valid_0"][f"ndcg@{DISPLAYED}"])
        return best.predict

    return fit


def _xgboost(tuned: bool) -> Fit:
    def fit(table: Table, valid: RankingData) -> Score:
        import xgboost

        common = {"objective": "rank:ndcg", "lambdarank_unbiased": True, "n_jobs": default_threads()}
        if not tuned:
            return xgboost.XGBRanker(**common).fit(table.features, table.clicks, qid=table.page).predict
        judged = np.repeat(np.arange(valid.queries), np.diff(valid.offsets))
        found = []
        for settings in _XGBOOST:
            how = {**common, **settings, "learning_rate": 0.1, "colsample_bytree": 0.5, "n_estimators": _TREES}
            one = xgboost.XGBRanker(**how, eval_metric=f"ndcg@{DISPLAYED}", early_stopping_rounds=_PATIENCE)
            held = [(valid.features, valid.labels)]
            one.fit(table.features, table.clicks, qid=table.page, eval_set=held, eval_qid=[judged], verbose=False)
            found.append(one)
        return max(found, key=lambda one: one.best_score).predict  # with the trees up to the best

    return fit


METHODS: dict[str, Fit] = {
    "fultr": _ours("trees"),
    "fultr linear": _ours("linear"),
    "fultr mlp": _ours("mlp"),
    "LightGBM": _lightgbm(False, False),
    "LightGBM position": _lightgbm(True, False),
    "XGBoost unbiased": _xgboost(False),
    "LightGBM tuned": _lightgbm(False, True),
    "LightGBM position tuned": _lightgbm(True, True),
    "XGBoost unbiased tuned": _xgboost(True),
}
"""Every method, by name: a table and judged queries to tune by in, a function out that scores documents."""


def cases(data: list[str], gammas: list[float], policies: list[int], clicks: list[int], repeats: int) -> Iterator[Case]:
    """All logs, repeat by repeat, small ones first."""
    for repeat, size, name, gamma, several in product(range(repeats), sorted(clicks), data, gammas, policies):
        yield Case(repeat, size, name, gamma, several)


def measure(
    loaded: dict[str, Splits],
    wanted: list[Case],
    methods: list[str],
    path: Path,
    tell: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Measure every method on every log, a line of JSON each; what is in the file already is not measured again.

    Returns:
        All lines of the file: a case's fields, the method, NDCG@5 on the test queries, and seconds of processor time
        (all threads) and of the clock to fit.
    """
    found, compiled = read_lines(path), False
    done = {(*_case_of(line), line["method"]) for line in found}
    for case in wanted:
        key = tuple(asdict(case).values())
        missing = [name for name in ("policy", "grades", *methods) if (*key, name) not in done]
        if not missing:
            continue
        splits = loaded[case.data]
        few = splits.test.queries < _FEW
        splits = divided(splits, case.repeat) if few else splits
        told = [line for line in found if line["data"] == case.data and (line["repeat"] == case.repeat or not few)]
        table, policies = made_log(splits.train, case)
        if not compiled:  # what is compiled on first use, or loaded, is not part of fitting
            for name in (name for name in missing if name.startswith("fultr")):
                METHODS[name](table.take(table.page < _FIRST_PAGES), splits.valid)
            compiled = True
        for name in missing:
            line = {**asdict(case), "method": name, **_measured(name, splits, table, policies, told)}
            found.append(line)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
            tell(f"{case}: {name} {line['ndcg']:.4f}, {line['cpu']:.1f} s of processor time")
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What was measured before; a last line that was cut off is dropped."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    found = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            found.append(json.loads(line))
            _case_of(found[-1]), found[-1]["method"], found[-1]["ndcg"], found[-1]["cpu"]
        except (ValueError, KeyError, TypeError):
            raise FultrError(f"{path}, line {number}: expected a measurement, found {line[:40]!r}") from None
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return found


def _case_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("repeat", "clicks", "data", "gamma", "policies"))


def _measured(
    name: str, splits: Splits, table: Table, policies: Float32s, told: list[dict[str, Any]]
) -> dict[str, float]:
    """What a method reaches; `told` are lines of the same queries, whatever was clicked."""
    features = splits.test.features

    def level(scores: Any) -> float:
        return float(np.nanmean(ndcg(np.asarray(scores, np.float32), splits.test, k=DISPLAYED)))

    if name == "policy":
        return {"ndcg": float(np.mean([level(features @ policy) for policy in policies])), "cpu": 0.0, "clock": 0.0}
    if name == "grades":  # the same for every log of the same queries
        for line in told:
            if line["method"] == "grades":
                return {part: line[part] for part in ("ndcg", "cpu", "clock")}
        processor, clock = time.process_time(), time.perf_counter()
        reached = float(lightgbm_ndcg(splits, ["test"], k=DISPLAYED)["test"][0])
        return {"ndcg": reached, "cpu": time.process_time() - processor, "clock": time.perf_counter() - clock}
    processor, clock = time.process_time(), time.perf_counter()
    score = METHODS[name](table, splits.valid)
    seconds = {"cpu": time.process_time() - processor, "clock": time.perf_counter() - clock}
    return {"ndcg": level(score(features)), **seconds}
