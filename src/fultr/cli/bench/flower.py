"""A round of fultr's simulator against the same clients in Flower's simulation engine (Ray), in one run."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fultr.cli.console import say
from fultr.clicks.models.position_based import PositionBased
from fultr.clicks.settings import ClickModel, Sessions
from fultr.core.arrays import Float32s
from fultr.core.checks import check_number
from fultr.core.errors import FultrError
from fultr.core.threads import default_threads
from fultr.data.load import load
from fultr.federated.fedips import Broadcast, Server, broadcast, nothing, server_round
from fultr.federated.settings import FedIPS
from fultr.rankers.linear import Linear
from fultr.study.policy import display, train_policy
from fultr.study.rounds import Simulated, collect
from fultr.study.settings import FreshUsers
from fultr.study.users import attraction, cohorts

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.serverapp import Grid

_DATA = "synthetic"
_PATIENCE = 600.0  # seconds that a round in Flower may take
_OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_LOG_LEVEL": "ERROR",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray warns unless one says that its default is fine
}


class _Rounds(NamedTuple):
    """What some rounds led to: the weights after each, how many clients had a click, how long they took."""

    weights: list[Float32s]
    repliers: list[int]
    seconds: list[float]


def flower_round(clients: int = 200, more: int = 2000, rounds: int = 3) -> list[tuple[str, float, str, str]]:
    """Seconds a round of fultr and of Flower, with the same clients; the first round of each is not counted.

    Args:
        clients: clients per round, of both.
        more: a larger number of clients, of fultr alone.
        rounds: how many in Flower, the first included.

    Returns:
        What was measured, its value, its unit, and what is wanted.
    """
    if importlib.util.find_spec("flwr") is None or importlib.util.find_spec("ray") is None:
        raise FultrError("fultr bench flower compares with Flower: pip install 'fultr[flower,ray]'")
    check_number("rounds", rounds, least=2, whole=True)
    say(f"flower: {clients:,} clients per round in Flower")
    theirs = _flower_rounds(clients, rounds)
    say("flower: the same in fultr")
    ours = _own_rounds(clients, max(rounds, 20))
    large = _own_rounds(more, 10)
    differences = [float(np.abs(a - b).max()) for a, b in zip(ours.weights, theirs.weights, strict=False)]
    alike = np.allclose(ours.weights[:rounds], theirs.weights, rtol=1e-5)  # sums are made in another order
    if not alike or ours.repliers[:rounds] != theirs.repliers:
        raise FultrError(f"Flower's rounds and fultr's differ, by up to {max(differences):.3g} a weight: no comparison")
    flower, own = min(theirs.seconds[1:]), min(ours.seconds[1:])
    return [
        (f"round of {clients:,} clients in Flower's simulation, {_DATA}", flower, "s", ""),
        (f"round of {clients:,} clients in fultr", own, "s", ""),
        ("  Flower / fultr", flower / own, "", "above 1"),
        (f"  largest difference of a weight after {rounds} rounds", max(differences), "", "rounding"),
        (f"round of {more:,} clients in fultr", min(large.seconds[1:]), "s", ""),
    ]


@lru_cache(maxsize=1)
def _simulated(clients: int) -> Simulated:
    """The clients' world, made once a process."""
    train, model = load(_DATA).train, ClickModel()
    shown = display(train, train_policy(train))
    users = cohorts(FreshUsers(), train, model, clients, 0)
    attracted = attraction(train, shown, model)
    return Simulated(FedIPS(), Linear(train.width), shown, PositionBased(), attracted, users, Sessions(), 0, None)


def _start(run: Simulated) -> Server:
    return Server.initial(run.algorithm, run.model, run.model.initial(), run.display.ranks)


def _own_rounds(clients: int, rounds: int) -> _Rounds:
    run = _simulated(clients)
    server, done = _start(run), _Rounds([], [], [])
    for t in range(rounds):
        begun = time.perf_counter()
        [(total, _)] = collect([run], t, [broadcast(run.algorithm, server)], run.users.cohort(t))
        server = server_round(run.algorithm, run.model, server, total, run.users.expected)
        _note(done, server.weights, int(total["trained"].sum()), begun)
    return done


def _note(done: _Rounds, weights: Float32s, repliers: int, begun: float) -> None:
    done.seconds.append(time.perf_counter() - begun)
    done.weights.append(weights)
    done.repliers.append(repliers)


def _flower_rounds(clients: int, rounds: int) -> _Rounds:
    """The rounds in Flower, in a process of its own: Ray and Flower change the one they run in."""
    spawn = multiprocessing.get_context("spawn")
    # Ray puts sockets there, whose paths must be short.
    with (
        tempfile.TemporaryDirectory(dir="/tmp" if sys.platform == "darwin" else None) as folder,
        ProcessPoolExecutor(1, mp_context=spawn) as process,
    ):
        return process.submit(_run_flower, clients, rounds, folder).result()


def _run_flower(clients: int, rounds: int, folder: str) -> _Rounds:
    """Algorithm 1 with a Flower ClientApp and ServerApp; calls nobody, leaves nothing running."""
    os.environ.update(_OFFLINE, FLWR_HOME=folder)
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    client_app, server_app, done = ClientApp(), ServerApp(), _Rounds([], [], [])
    client_app.train()(_train)

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        _serve(grid, clients, rounds, done)

    ray: dict[str, Any] = {
        "address": "local",  # not a cluster that happens to run here
        "_node_ip_address": "127.0.0.1",
        "num_cpus": default_threads(),
        "object_store_memory": 200_000_000,
        "log_to_driver": False,
        "logging_level": "ERROR",
        "_temp_dir": folder,
    }
    run_simulation(
        server_app, client_app, clients, backend_config={"init_args": ray, "client_resources": {"num_cpus": 1}}
    )
    if len(done.weights) < rounds:
        raise FultrError(f"Flower ended after {len(done.weights)} of {rounds} rounds")
    return done


def _serve(grid: Grid, clients: int, rounds: int, done: _Rounds) -> None:
    """The server: sends the weights to every client, adds up the updates in the order of the clients' numbers."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

    run = _simulated(clients)
    server = _start(run)
    deadline = time.monotonic() + _PATIENCE
    while len(nodes := list(grid.get_node_ids())) < clients:  # Flower registers them meanwhile
        if time.monotonic() > deadline:
            raise FultrError(f"Flower has {len(nodes)} of {clients} clients after {_PATIENCE:.0f} s")
        time.sleep(0.1)
    for t in range(rounds):
        begun = time.perf_counter()
        content = RecordDict(
            {"weights": ArrayRecord([server.weights]), "round": ConfigRecord({"round": t, "clients": clients})}
        )
        messages = [Message(content, node, MessageType.TRAIN, group_id=str(t)) for node in nodes]
        replies = list(grid.send_and_receive(messages, timeout=_PATIENCE))
        failed = [reply.error.reason or "" for reply in replies if reply.has_error()]
        if failed or len(replies) < clients:
            cause = failed[0].strip().split("\n")[-1] if failed else f"no reply within {_PATIENCE:.0f} s"
            raise FultrError(f"Flower: {len(failed) or clients - len(replies)} of {clients} clients failed: {cause}")
        total = nothing(run.algorithm, run.model, run.display.ranks)
        for reply in sorted(replies, key=lambda reply: _whole(reply.content.metric_records["counts"]["client"])):
            total["update"][0] += reply.content.array_records["update"].to_numpy_ndarrays()[0]
            total["trained"] += _whole(reply.content.metric_records["counts"]["repliers"])
        server = server_round(run.algorithm, run.model, server, total, run.users.expected)
        _note(done, server.weights, int(total["trained"].sum()), begun)


def _train(message: Message, context: Context) -> Message:
    """A client: its clicks and local training, by the functions that fultr's own simulator calls."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    client, setting = _whole(context.node_config["partition-id"]), message.content.config_records["round"]
    weights = message.content.array_records["weights"].to_numpy_ndarrays()[0]
    run, t = _simulated(_whole(setting["clients"])), _whole(setting["round"])
    [(total, _)] = collect([run], t, [Broadcast(weights, {}, {})], np.array([client]))
    content = RecordDict(
        {
            "update": ArrayRecord([total["update"][0].astype(np.float32)]),  # one client's: a float32 without loss
            "counts": MetricRecord({"client": client, "repliers": int(total["trained"].sum())}),
        }
    )
    return Message(content, reply_to=message)


def _whole(value: object) -> int:
    """A number out of a record, which may hold other things."""
    assert isinstance(value, int)
    return value
