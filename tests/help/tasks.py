"""Tasks for devices with a log of three features."""

from __future__ import annotations

from typing import Any

import numpy as np

from fultr import DeviceLog
from fultr.device.ledger import Moment
from fultr.device.policy import DevicePolicy
from fultr.federated.budget import model_of
from fultr.federated.federate import task_of
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server
from fultr.federated.messages import Task

FEATURES, DISPLAYED = 3, 2
SMALL = DevicePolicy(least_clicks=4, least_impressions=6, held_out=0.0, seconds_apart=0.0)


def a_task(t: int = 0, **settings: Any) -> Task:
    """What a server asks in its first round, under the number of a later one."""
    usual = {"features": FEATURES, "displayed": DISPLAYED, "judge": False, "propensity": "none"}
    made = FederationSettings.of({**usual, **settings})
    model = model_of(made)
    return task_of(made, t, Server.initial(made.algorithm(), model, model.initial(), made.displayed))


def use(log: DeviceLog, impressions: int, clicks: int, seed: int = 0) -> list[int]:
    """Log impressions of two documents, each with features of its own, and clicks on the first of them."""
    rng = np.random.default_rng(seed)
    ids = [log.log_impression(i, rng.random((DISPLAYED, FEATURES))) for i in range(impressions)]
    for id_ in ids[:clicks]:
        assert log.log_click(id_, 1 + int(rng.integers(2)))
    return ids


def at(seconds: float, *, boot: str = "a", clock: float | None = None) -> Moment:
    """So many seconds after the device was started; its clock shows that, or what is said."""
    return Moment(seconds if clock is None else clock, boot, seconds)
