"""Device logs filled by simulated users: to try a federation before there are any real ones.

The users, queries and clicks are those of `simulate` with the same seed: the impressions of round t carry times of
period t. A federation that replays the logs period by period ends with the weights of the simulation, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fultr.clicks.models.model import click_model_of
from fultr.clicks.models.position_based import examination
from fultr.clicks.sessions import simulate_clicks
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.checks import check_seed
from fultr.core.errors import FultrError
from fultr.core.files import make_folder
from fultr.data.ranking import Splits
from fultr.device.log import DeviceLog
from fultr.study.policy import display, train_policy
from fultr.study.settings import FiniteUsers, PolicySettings
from fultr.study.users import attraction, cohorts

PERIOD = 86_400.0


def fill_devices(
    paths: Sequence[str | Path],
    data: Splits,
    *,
    periods: int = 1,
    begin: float = 0.0,
    period: float = PERIOD,
    seed: int = 0,
    displayed: int = 5,
    model: ClickModel = ClickModel(),
    sessions: Sessions = Sessions(),
    policy: PolicySettings = PolicySettings(),
    on_device: Callable[[object], object] = lambda path: None,
) -> None:
    """Write the logs of simulated users, one a path; none may be there already.

    Args:
        paths: of the logs; their folders are made.
        data: a data set whose training queries users ask.
        periods: how many periods of time each log covers.
        begin: when the first begins, in seconds since 1970.
        period: seconds.
        seed: of users, queries and clicks, and of the logging policy.
        displayed: K.
        model: how users examine and click.
        sessions: queries and clicks of a user in a period.
        policy: how the logging policy is trained.
        on_device: called after each device.
    """
    check_seed(seed)
    for path in paths:
        if Path(path).exists():
            raise FultrError(f"{path}: there is a log already; give another folder")
        make_folder(Path(path).parent)
    train = data.train
    shown = display(train, train_policy(train, policy, seed), displayed=displayed, seed=seed)
    attracted = attraction(train, shown, model)
    users = cohorts(FiniteUsers(len(paths)), train, model, len(paths), seed)
    for u, path in enumerate(paths):
        with DeviceLog.open(path, features=train.width, normalised=data.normalised, retention=None) as device:
            for t in range(periods):
                client = np.array([u])
                log = simulate_clicks(
                    click_model_of(model, train.query_ids),
                    attracted,
                    examination(users.severities(t, client), displayed),
                    client,
                    sessions=sessions,
                    seed=seed,
                    round_=t,
                    pools=users.pools,
                )
                for i, (query, clicks) in enumerate(zip(log.queries, log.clicks, strict=True)):
                    rows = shown.shown[query][shown.shown[query] >= 0]
                    when = begin + (t + (i + 0.5) / log.queries.size) * period
                    impression = device.log_impression(
                        int(train.query_ids[query]), shown.features[rows, : train.width], version="policy", time=when
                    )
                    for rank in np.flatnonzero(clicks) + 1:
                        device.log_click(impression, int(rank), time=when)
        on_device(path)
