"""Federations on this machine to be measured: their logs and settings, and what their processes take (Linux)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fultr.data.load import load
from fultr.deploy.folder import Deployment, init_deployment, load_deployment
from fultr.deploy.processes import Process, memory
from fultr.federated.federation import fill_in
from fultr.study.fill_devices import fill_devices

_DATA = "synthetic"
_PERIODS = 60  # days of a log: enough for the policy that devices have by default
_LOGS = 30  # different ones; further devices have copies


def prepare(folder: Path, nodes: int, rounds: int) -> Deployment:
    """Write a deployment whose nodes have logs, and answer without a pause."""
    init_deployment(folder, nodes)
    deployment, data = load_deployment(folder), load(_DATA)
    logs = [node.folder / "device.db" for node in deployment.nodes]
    fill_devices(logs[:_LOGS], data, periods=_PERIODS)
    for i, log in enumerate(logs[_LOGS:]):
        shutil.copy(logs[i % _LOGS], log)
    for node in deployment.nodes:
        settings = node.folder / "node.toml"
        settings.write_text(f'server = "{deployment.address}"\n[policy]\nseconds_apart = 0\n')
    chosen = {"features": data.train.width, "displayed": 5, "rounds": rounds, "least_devices": nodes, "timeout": 600}
    fill_in(folder / "federation.toml", chosen, replace=True)
    return deployment


def megabytes(processes: Iterable[Process]) -> float:
    """Memory that processes take, what they share divided among them."""
    return sum(memory(process) for process in processes) / 1e6


@contextmanager
def most(measures: dict[str, Callable[[], float]]) -> Iterator[dict[str, float]]:
    """The largest value that each measure has within the block, by looks a second apart."""
    found, ended = dict.fromkeys(measures, 0.0), threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            for name, measure in measures.items():
                found[name] = max(found[name], measure())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
