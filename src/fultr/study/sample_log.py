"""A sample click log: what simulated users were shown and clicked, with the truth that no real log has.

It is for trying things out: estimates, training and evaluation from a click log can be compared with what is true.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fultr.clicks.impressions import ImpressionLog, number_pairs
from fultr.clicks.log import ClickLog
from fultr.clicks.models.model import click_model_of
from fultr.clicks.models.position_based import bias_severities, examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float64s, Int32s, Int64s
from fultr.core.checks import check_number, check_seed
from fultr.core.errors import FultrError
from fultr.core.files import written_whole
from fultr.core.streams import Purpose, uniforms
from fultr.data.load import load
from fultr.data.ranking import RankingData, Splits
from fultr.rankers.metrics import default_relevant_grade
from fultr.study.policy import display, train_policy
from fultr.study.settings import PolicySettings
from fultr.study.users import attraction

_MOST_SESSIONS = 100  # that a click may take on average, before a user gives up
_BLOCK = 1 << 22  # sessions for which there is room at a time


@dataclass(frozen=True, eq=False)
class SampleLog:
    """A click log of simulated users, and the truth behind it.

    Attributes:
        log: the click log, with users and features.
        policy: int64 [impressions], which logging policy made each page, from 1.
        examination: [K], how likely users examined each rank: the mean over pages of the propensity of a click there.
        severities: [users], gamma_u.
        grades: int32 [pairs], the relevance grade of each query-document pair of the log.
        attraction: [pairs], the probability of a click if it is examined.
        settings: all that it was made from.
    """

    log: ImpressionLog
    policy: Int64s
    examination: Float64s
    severities: Float64s
    grades: Int32s
    attraction: Float64s
    settings: dict[str, Any]

    def table(self, layout: Any = "rows") -> Any:
        """The log as an Arrow table, see `fultr.clicks.tables.table_of`; `.to_pandas()` makes a data frame."""
        from fultr.clicks.tables import table_of

        return table_of(self.log, layout, more={"policy": self.policy})

    def save(self, path: str | Path, layout: Any = "pages", *, features: bool = True) -> Path:
        """Write the log to a file, and the truth to another beside it, whose path is returned.

        Args:
            path: of the log; its ending says how it is written, see `fultr.clicks.tables.write_click_log`.
            layout: "pages" or "rows".
            features: with the documents' features.
        """
        from fultr.clicks.tables import write_click_log

        path, side = Path(path), truth_beside(path)
        with written_whole(side) as temporary:  # there once the log is, too
            temporary.write_text(json.dumps(self.truth()) + "\n", encoding="utf-8")
            write_click_log(self.log, path, layout, features=features, more={"policy": self.policy})
        return side

    def truth(self) -> dict[str, Any]:
        """What no real log has, as JSON types."""
        names = self.log.query_names[self.log.query_of_pair]
        assert self.log.user_names is not None
        return {
            "settings": self.settings,
            "examination": self.examination.tolist(),
            "users": {"user": self.log.user_names.tolist(), "severity": self.severities.tolist()},
            "relevance": {
                "query": names.tolist(),
                "document": self.log.document_names.tolist(),
                "grade": self.grades.tolist(),
                "click_if_examined": self.attraction.tolist(),
            },
        }


def truth_beside(path: str | Path) -> Path:
    """The file of the truth behind a sample click log.

    >>> truth_beside("logs/clicks.csv.gz").name
    'clicks.truth.json'
    """
    from fultr.clicks.tables import check_log_name

    path = Path(path)
    kind = check_log_name(path)
    return path.with_name(path.name[: path.name.rindex(kind)] + ".truth.json")


def sample_clicks(
    data: Splits | str = "synthetic",
    *,
    clicks: int = 10_000,
    users: int = 1000,
    queries: int = 10,
    policies: int = 2,
    displayed: int = 5,
    click_model: ClickModel = ClickModel(),
    policy: PolicySettings = PolicySettings(),
    seed: int = 0,
) -> SampleLog:
    """A click log of simulated users, to try things out on, with its truth.

    A user has a bias severity, and some queries, of which each search takes one at random; one of the logging policies,
    at random, makes the page. Users search until they have made their share of the clicks; the page under way counts.

    Args:
        data: a data set, or its name, whose training queries the users ask.
        clicks: how many there are to be, in all; some more are made.
        users: who make them, equally many each.
        queries: that each user asks.
        policies: the logging policies in use; each is trained on a sample of its own of the judged queries. With one,
            every document of a query is always at the same rank, and clicks alone cannot tell rank from relevance.
        displayed: K, documents on a page.
        click_model: how users examine and click; by default position-based with gamma 1.
        policy: how the logging policies are trained.
        seed: of all that is random.

    >>> sample = sample_clicks(clicks=200, users=20)
    >>> sample.log.features.shape[1], sample.examination.round(1).tolist()
    (64, [1.0, 0.5, 0.3, 0.2, 0.2])
    >>> sample.table().column_names[:6]
    ['user', 'session', 'query', 'document', 'rank', 'click']
    """
    for name, value, most in (("clicks", clicks, 10**9), ("users", users, 10**7), ("queries", queries, 10**6)):
        check_number(name, value, least=1, most=most, whole=True)
    check_number("policies", policies, least=1, most=1000, whole=True)
    check_number("displayed", displayed, least=1, most=1000, whole=True)
    check_seed(seed)
    splits = load(data) if isinstance(data, str) else data
    if not isinstance(splits, Splits):
        raise FultrError(
            f"data: expected the name of a data set, or what fultr.load gives; found {type(data).__name__}"
        )
    train = splits.train
    queries = min(queries, train.queries)
    each = -(-clicks // users)
    if click_model.relevant_grade is None:
        click_model = replace(click_model, relevant_grade=default_relevant_grade(train))
    versions = np.stack([train_policy(train, policy, seed, version) for version in range(policies)])
    shown = display(train, versions, displayed=displayed, seed=seed)
    attracted = attraction(train, shown, click_model)
    model = click_model_of(click_model, train.query_ids)
    sessions = Sessions(queries, each, most_sessions=min(10**6, max(1000, _MOST_SESSIONS * each)))
    everyone = np.arange(users)
    severities = bias_severities(click_model, uniforms(seed, int(Purpose.BIAS_SEVERITY), 0, everyone))
    parts: list[ClickLog] = []
    looked = np.zeros(displayed)
    for some in np.array_split(everyone, max(1, users * sessions.most_sessions // _BLOCK)):
        base = examination(severities[some], displayed)
        part = simulate_clicks(model, attracted, base, some, sessions=sessions, seed=seed, round_=0, versions=policies)
        looked += model.examination_given_clicks(base, part).sum(axis=0)
        parts.append(ClickLog(part.queries.copy(), part.clicks.copy(), part.offsets))
    who = np.repeat(everyone, np.concatenate([np.diff(part.offsets) for part in parts]))
    page = np.concatenate([part.queries for part in parts])
    log, rows = _impressions(train, shown.documents[page], np.concatenate([part.clicks for part in parts]), who, page)
    settings = {
        "data": splits.name,
        "clicks": int(clicks),
        "users": int(users),
        "queries": int(queries),
        "policies": int(policies),
        "displayed": int(displayed),
        "click_model": asdict(click_model),
        "policy": asdict(policy),
        "seed": int(seed),
    }
    attracts = np.zeros(train.documents)  # by row of the data
    attracts[shown.documents[shown.documents >= 0]] = attracted[shown.documents >= 0]
    made_by = (page // train.queries).astype(np.int64) + 1
    return SampleLog(log, made_by, looked / page.size, severities, train.labels[rows], attracts[rows], settings)


def _impressions(
    train: RankingData, documents: Int64s, clicks: Any, users: Int64s, page: Int32s
) -> tuple[ImpressionLog, Int64s]:
    """The pages as a click log, and the row of each of its pairs in the data."""
    there = documents >= 0
    query = (page % train.queries).astype(np.int64)
    asked, code = np.unique(query, return_inverse=True)
    (owner, rows), pairs = number_pairs(code[:, np.newaxis], np.where(there, documents, 0), there)
    log = ImpressionLog(
        code.astype(np.int32),
        pairs,
        clicks,
        users.astype(np.int32),
        owner.astype(np.int32),
        _called("q", train.query_ids[asked]),
        _called("d", rows),
        train.features[rows],
        _called("u", np.arange(1, int(users.max()) + 2)),
        tuple(f"f{i}" for i in train.feature_ids.tolist()),
    )
    return log, rows


def _called(letter: str, numbers: Int64s) -> Any:
    return np.array([f"{letter}{number}" for number in numbers.tolist()], object)
