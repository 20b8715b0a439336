"""What a personal layer adds to a shared ranker, for users who differ in what they search for, or in what they like.

`python -m fultr.study.personalisation` prints the table of docs/learning-more.md; it takes some minutes.

The shared ranker is the recommended one, trained by a fixed population of users whose queries come from a few clusters
each (`FiniteUsers`). Then some of them go on searching with it. A user's clicks on one half of the queries fit the
layer, by the code of devices (`fultr.device.personal`); the other half, by grades, says what it is worth. Users with
tastes prefer documents that are high in one feature, another one for each user: a document's grade is theirs by as much
as `_TASTE` higher or lower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module

import numpy as np

from fultr.clicks.log import Records
from fultr.clicks.models.model import click_model_of
from fultr.clicks.models.position_based import examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float32s, Float64s
from fultr.core.streams import Purpose, generator
from fultr.core.threads import default_threads
from fultr.data.load import load
from fultr.data.ranking import RankingData, Splits
from fultr.device.personal import clicked_of, layer_of
from fultr.federated.recommended import recommended, recommended_refresh
from fultr.rankers.metrics import ndcg
from fultr.study.engine import each_finished
from fultr.study.policy import display
from fultr.study.settings import FiniteUsers, Showing
from fultr.study.simulate import simulate
from fultr.study.users import attraction, cohorts

DATA, SEED, K = "synthetic", 7, 5
POPULATION = FiniteUsers(10_000, pool=80)
USERS = 200
CLICKS = (30, 100, 300, 1000)
_TASTE = 1  # grades


@dataclass(frozen=True)
class Worth:
    """NDCG@5 on the other half of users' queries, as means over users, and standard errors.

    Attributes:
        shared: the shared ranker's.
        always: how much higher with the layer, whatever it was judged to be.
        always_error: its standard error.
        judged: how much higher with it where it was judged to be surely no worse, and without it elsewhere.
        judged_error: its standard error.
        used: share of the users for whom it was.
    """

    shared: float
    always: float
    always_error: float
    judged: float
    judged_error: float
    used: float

    @classmethod
    def of(cls, shared: Float64s, personal: Float64s, used: Float64s) -> Worth:
        """From each user's values.

        >>> found = Worth.of(np.array([0.5, 0.7]), np.array([0.6, 0.6]), np.array([1.0, 0.0]))
        >>> round(found.always, 3), round(found.judged, 3), found.used
        (0.0, 0.05, 0.5)
        """
        gains = [personal - shared, np.where(used > 0, personal - shared, 0.0)]
        errors = [float(gain.std(ddof=1)) / math.sqrt(gain.size) for gain in gains]
        always, judged = (float(gain.mean()) for gain in gains)
        return cls(float(shared.mean()), always, errors[0], judged, errors[1], float(used.mean()))


def worth(
    data: Splits,
    ranker: Float32s,
    *,
    clicks: int,
    tastes: bool,
    users: int = USERS,
    population: FiniteUsers = POPULATION,
    seed: int = SEED,
) -> Worth:
    """What a layer that is fitted to this many clicks of each user is worth.

    Args:
        data: the population's queries are the training ones.
        ranker: the shared one, linear.
        clicks: of a user.
        tastes: do users differ in what they like, too?
        users: how many, of
        population: all users, whose queries come from a few clusters each.
        seed: of users and clicks.
    """
    train, model = data.train, ClickModel()
    everyone = cohorts(population, train, model, users, seed)
    names = [f"feature {i}" for i in train.feature_ids]
    found = []
    for user in range(users):
        asked, held = (train.take(half) for half in np.array_split(everyone.pools[user], 2))
        if tastes:
            asked, held = (_liked(half, user, seed) for half in (asked, held))
        shown = display(asked, ranker, displayed=K, seed=seed)
        log = simulate_clicks(
            click_model_of(model, asked.query_ids),
            attraction(asked, shown, model),
            examination(everyone.severities(0, np.array([user])), K),
            np.zeros(1, np.int64),
            sessions=Sessions(asked.queries, clicks, most_sessions=100 * clicks),
            seed=seed * users + user,
            round_=0,
        )
        features = shown.features[:, : train.width]
        scores = (features @ ranker).astype(np.float64)
        clicked = clicked_of(Records(log, shown), features, scores, log.queries.astype(np.int64))
        layer = layer_of(clicked, names, data.normalised, "shared", int(log.clicks.sum()), 0.0)
        delta = np.array([layer.weights.get(name, 0.0) for name in names], np.float32)
        quality = [_quality(weights, held) for weights in (ranker, (ranker + delta).astype(np.float32))]
        found.append((*quality, float(layer.used)))
    return Worth.of(*np.array(found).T)


def _quality(weights: Float32s, held: RankingData) -> float:
    return float(np.nanmean(ndcg((held.features @ weights).astype(np.float32), held, k=K)))


def _liked(data: RankingData, user: int, seed: int) -> RankingData:
    """The same documents with grades as a user sees them who likes those that are high in one feature."""
    column = data.features[:, generator(seed, Purpose.POPULATION, 2 + user).integers(data.width)]
    moved = data.labels + np.where(column > 0.5, _TASTE, -_TASTE)
    return replace(data, labels=np.clip(moved, 0, 4).astype(data.labels.dtype))


@lru_cache(maxsize=1)
def _trained() -> tuple[Splits, Float32s]:
    data = load(DATA)
    showing = Showing(recommended_refresh())
    run = simulate(data, recommended(200), rounds=200, population=POPULATION, showing=showing, seed=SEED)
    return data, run.ranker.weights


def _of(case: tuple[bool, int]) -> Worth:
    data, ranker = _trained()
    return worth(data, ranker, tastes=case[0], clicks=case[1])


def table() -> Iterator[str]:
    """A row for each kind of users and number of clicks."""
    cases = [(tastes, clicks) for tastes in (False, True) for clicks in CLICKS]
    found: dict[int, Worth] = {}
    for i, one, _ in each_finished(_of, cases, workers=default_threads()):
        found[i] = one
    yield "| users differ in | clicks | shared ranker | with the layer | where it is judged no worse | used by |"
    yield "|---|---|---|---|---|---|"
    for i, (tastes, clicks) in enumerate(cases):
        one = found[i]
        gains = [(one.always, one.always_error), (one.judged, one.judged_error)]
        told = [f"{clicks}", f"{one.shared:.4f}", *(f"{gain:+.4f} ± {error:.4f}" for gain, error in gains)]
        yield f"| {'queries and tastes' if tastes else 'queries'} | {' | '.join(told)} | {one.used:.0%} |"


def main() -> None:
    """Print the table."""
    for line in table():
        print(line, flush=True)


if __name__ == "__main__":
    import_module("fultr.study.personalisation").main()  # under its own name, which the processes of the runs know
