"""Click logs of simulated users as tables, as a practitioner would have them.

Users click on pages of one logging policy, or of several that are used at random. A table has a row for each displayed
document, page by page. Where there are few judged queries, each repeat divides them anew into those to train on and
those to test on (`divided`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fultr.clicks.models.position_based import PositionBased, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float32s, Int64s, UInt8s
from fultr.core.checks import check_number
from fultr.data.ranking import RankingData, Splits
from fultr.study.policy import display, train_policy
from fultr.study.settings import FreshUsers
from fultr.study.users import attraction, cohorts

DISPLAYED = 5
_CLICKS_OF_A_USER = 10
_USERS_AT_A_TIME = 2000


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
