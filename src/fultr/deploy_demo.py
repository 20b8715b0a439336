"""`fultr deploy demo`: a whole federation on this machine, from certificates to a trained ranker."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from fultr.console import print_table, say, working
from fultr.data import Splits
from fultr.datasets import load
from fultr.deploy_commands import start_command, stop_command, train_command
from fultr.deployment import init_deployment
from fultr.device_simulation import fill_devices
from fultr.federation_settings import fill_in
from fultr.metrics import mean_over_queries, ndcg_of_rankers
from fultr.policy import train_policy
from fultr.types import Float32s
from fultr.versions import Versions


def demo_command(folder: Path | None, nodes: int, rounds: int, seed: int) -> None:
    """Make, fill, start, train, measure, stop."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="fultr-demo-") as made:
            _demo(Path(made) / "federation", nodes, rounds, seed)
        return
    _demo(folder, nodes, rounds, seed)
    say(f"All of it is in {folder}: README.md, the versions of the ranker in state/versions, logs of the processes.")


def _demo(folder: Path, nodes: int, rounds: int, seed: int) -> None:
    say(f"1 of 4: certificates, keys and configuration of {nodes} nodes")
    init_deployment(folder, nodes)
    say("2 of 4: simulated users fill the devices' logs")
    with working("Loading the data"):
        data = load("synthetic")
    fill_devices([folder / "nodes" / f"node-{u + 1}" / "device.db" for u in range(nodes)], data, periods=60, seed=seed)
    settings = {"features": data.train.width, "displayed": 5, "rounds": rounds, "least_devices": nodes}
    fill_in(folder / "federation.toml", settings, replace=True)
    try:
        say("3 of 4: SuperLink and nodes start, over TLS on loopback, each node with its own key")
        start_command(folder, 300.0)
        say("4 of 4: training; only updates and sums leave the nodes")
        train_command(folder, detach=False, as_json=False)
    finally:
        stop_command(folder)
    version = Versions(folder / "state" / "versions").read("latest")
    rows = [
        ["untrained (random order)", _ndcg(np.zeros(data.train.width, np.float32), data)],
        ["logging policy, which made the impressions", _ndcg(train_policy(data.train, seed=seed), data)],
        [f"federated, {rounds} rounds: {version.name}", _ndcg(version.ranker.weights, data)],
    ]
    print_table([["ranker", "NDCG@5 on test queries"], *rows])


def _ndcg(weights: Float32s, data: Splits) -> str:
    return f"{mean_over_queries(ndcg_of_rankers(weights[np.newaxis], data.test))[0]:.4f}"
