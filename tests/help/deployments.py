"""Federations for tests: real processes with small logs, always stopped in the end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fultr.deploy.folder import Deployment, init_deployment, load_deployment
from fultr.device.log import DeviceLog

FEATURES, DISPLAYED = 4, 3


def small_deployment(folder: Path, nodes: int = 2, **settings: object) -> Deployment:
    """A deployment whose nodes have small logs, and answer as often as they are asked."""
    init_deployment(folder, nodes)
    for node in load_deployment(folder).nodes:
        fill_log(node.folder / "device.db", node.device)
        allow(node.folder, answers_a_day=10**6, answers_in_all=10**6, seconds_apart=0)
    write_settings(folder, **{"least_devices": nodes, **settings})
    return load_deployment(folder)


def fill_log(path: Path, seed: int, impressions: int = 200) -> None:
    """Impressions of random documents, each with a click."""
    rng = np.random.default_rng(seed)
    with DeviceLog.open(path, features=FEATURES) as log:
        for i in range(impressions):
            shown = log.log_impression(i, rng.random((DISPLAYED, FEATURES)).astype(np.float32))
            log.log_click(shown, int(rng.integers(1, DISPLAYED + 1)))


def allow(node: Path, **policy: object) -> None:
    """Change a node's policy."""
    path = node / "node.toml"
    lines = path.read_text().splitlines()
    for name, value in policy.items():
        (at,) = (i for i, line in enumerate(lines) if line.startswith(f"{name} ="))
        lines[at] = f"{name} = {_toml(value)}"
    path.write_text("\n".join(lines) + "\n")


def write_settings(folder: Path, state: str = "state", **settings: object) -> None:
    """The whole federation.toml."""
    usual = {"features": FEATURES, "displayed": DISPLAYED, "rounds": 2, "timeout": 60.0, "propensity": "none"}
    lines = [f"{name} = {_toml(value)}" for name, value in {**usual, **settings}.items()]
    (folder / "federation.toml").write_text("\n".join([f'state-dir = "{state}"', *lines, ""]))


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Nothing in the block takes longer: a hanging test fails instead."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
