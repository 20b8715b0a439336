"""The commands `fultr deploy ...`: a federation of real devices, with Flower."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fultr.cli.console import print_json, print_table, round_bar, say, spoken_time, working
from fultr.cli.lazy import OrderedGroup
from fultr.cli.options import PATH, json_option
from fultr.cli.releases import promote, releases, rollback, rollout
from fultr.cli.stopping import resumable
from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from fultr.core.arrays import Float32s
    from fultr.data.ranking import Splits
    from fultr.deploy.services import Status
    from fultr.deploy.training import TrainingProgress

_WARN_DAYS = 30
_folder = click.argument("folder", metavar="DIR", type=PATH)


@click.group(cls=OrderedGroup)
def deploy() -> None:
    """Run a federation of real devices with Flower.

    \b
    A pilot on one machine
      fultr deploy init fed --nodes 3    certificates, keys, settings, README.md
      fultr device simulate --nodes 3 --dir fed
      fultr deploy start fed             the SuperLink (server) and the nodes
      fultr deploy train fed             the training; interrupted, it resumes
      fultr deploy rollout fed           try the new ranker on some devices
      fultr deploy promote fed           give it to all
      fultr deploy status fed
      fultr deploy stop fed

    `fultr deploy demo` does all of this with simulated users.
    """


@deploy.command()
@_folder
@click.option("--nodes", type=click.IntRange(min=1),
              help="Number of nodes in all.  [default: 2; for an existing deployment, unchanged]")  # fmt: skip
@click.option("--address", metavar="HOST:PORT",
              help="Where nodes reach the SuperLink. If HOST is not this machine's loopback, it listens on all "
              "interfaces.  [default: a free port on 127.0.0.1]")  # fmt: skip
@click.option("--name", help="Name of the federation.  [default: pilot]")
def init(folder: Path, nodes: int | None, address: str | None, name: str | None) -> None:
    """Write the folder of a federation.

    It holds all that an operator needs: certificates, keys, settings, scripts, systemd units and instructions
    (README.md). DIR must be missing, empty, or an existing deployment; to a deployment only what it lacks
    is added, such as new nodes or a certificate that was deleted to renew it. Keep DIR to yourself: it holds private
    keys.

    \b
    Examples
      fultr deploy init fed                  two nodes on this machine
      fultr deploy init fed --nodes 5        three more
      fultr deploy init fed --nodes 20 --address fed.example.org:9092
    """
    from fultr.deploy.folder import init_deployment, load_deployment

    written = init_deployment(folder, nodes, address, name)
    deployment = load_deployment(folder)
    for line in written:
        print(line)
    if not written:
        say(f"{folder}: nothing was missing")
    else:
        say(f"{folder}: {deployment.name}, {_nodes(len(deployment.nodes))}, at {deployment.address}")
        say(f"Read {folder / 'README.md'}, or begin with: fultr deploy start {folder}")


@deploy.command()
@_folder
@click.option("--wait", "patience", default=120.0, show_default=True, type=click.FloatRange(min=1),
              help="Seconds to wait for the SuperLink to answer, and then for the nodes to connect.")  # fmt: skip
def start(folder: Path, patience: float) -> None:
    """Start the SuperLink and the nodes.

    Waits until all nodes whose folders are in DIR are connected. What is running already is left alone: after a crash,
    start again.
    """
    _start(folder, patience)


def _start(folder: Path, patience: float) -> None:
    from fultr.deploy.services import start

    begun = time.monotonic()
    with working("starting"):
        started, deployment = start(folder, patience, say)
    here = sum(node.here for node in deployment.nodes)
    if not started:
        say(f"{folder}: the SuperLink and {_nodes(here)} are running already")
    else:
        say(f"{_nodes(here)} connected after {spoken_time(time.monotonic() - begun)}: fultr deploy train {folder}")


@deploy.command()
@_folder
@click.option("--detach", is_flag=True, help="Submit the training and return; the same command follows it later.")
@json_option
def train(folder: Path, detach: bool, as_json: bool) -> None:
    """Run the training, follow it, or resume it.

    The settings are in DIR/federation.toml. Shows the rounds and the time left. A run in progress is followed, not
    submitted again; one that was interrupted resumes from its checkpoint in state-dir. Interrupting this command does
    not stop the training: `fultr deploy stop` does.
    """
    run, new = _submitted(folder)
    last = None
    if not detach:
        end = shlex.join(["fultr", "deploy", "stop", str(folder)])
        stays = f"run {run} continues until {end}, and the same command follows it again"
        with resumable(lambda: stays):
            last = _followed(folder, run, new)
    if as_json:
        print_json({"run": run, "new": new, "latest": None if last is None else last.latest})


def _submitted(folder: Path) -> tuple[int, bool]:
    """The number of the run, and whether it is new or one in progress."""
    from fultr.deploy.training import submit

    run, new = submit(folder)
    say(f"run {run} {'submitted' if new else 'is in progress'}")
    return run, new


def _followed(folder: Path, run: int, new: bool) -> TrainingProgress | None:
    """Show a run until it ends; its last progress."""
    from fultr.deploy.training import follow

    begun = time.monotonic()
    last: TrainingProgress | None = None
    with round_bar() as tell:

        def show(progress: TrainingProgress) -> None:
            nonlocal last
            last = progress
            tell(progress.round, progress.rounds, progress.seconds_left)

        follow(folder, run, new, show)
    say(f"run {run} completed after {spoken_time(time.monotonic() - begun)}")
    return last


@deploy.command()
@_folder
@json_option
def status(folder: Path, as_json: bool) -> None:
    """Show what is running and connected, and the latest run."""
    from fultr.deploy.services import status

    found = status(folder)
    if as_json:
        print_json(asdict(found))
        return
    rows = [["service", "state", "connected", "process", "memory"]]
    for service in (found.superlink, *found.nodes):
        used = f"{service.memory / 1e6:.0f} MB" if service.memory else ""
        rows.append(
            [service.name, service.state, "yes" if service.connected else "no", str(service.process or ""), used]
        )
    print_table(rows, left=3)
    print(f"Latest run: {_run(found)}")
    days = found.certificate_days
    if days < _WARN_DAYS:
        raise FultrError(
            f"{folder / 'superlink' / 'server.crt'}: {f'expires in {days:.0f} days' if days > 0 else 'has expired'}; "
            "README.md says how to renew it"
        )


def _run(found: Status) -> str:
    if found.run is None:
        return "none" if found.superlink.connected else "not known, the SuperLink does not answer"
    return f"{found.run.number} {found.run.state}{f': {found.run.details}' if found.run.details else ''}"


@deploy.command()
@_folder
def stop(folder: Path) -> None:
    """Stop what `fultr deploy start` started, and nothing else."""
    _stop(folder)


def _stop(folder: Path) -> None:
    from fultr.deploy.services import stop

    with working("stopping"):
        stopped = stop(folder, say)
    say(f"{folder}: stopped {', '.join(stopped)}" if stopped else f"{folder}: nothing was running")


@deploy.command()
@_folder
def register(folder: Path) -> None:
    """Admit the nodes whose keys are in DIR, and no others.

    The keys are in DIR/superlink/node-keys; nodes whose keys are no longer there are turned away for good. `start` does
    this too: this command is for a SuperLink that systemd runs.
    """
    from fultr.deploy.control import register_nodes
    from fultr.deploy.folder import load_deployment

    deployment = load_deployment(folder)
    new, gone = register_nodes(deployment)
    say(f"{_nodes(len(deployment.nodes))} admitted; new: {', '.join(new) or 'none'}; no longer: {gone}")


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


@deploy.command()
@click.argument("folder", metavar="[DIR]", required=False, type=PATH)
@click.option("--nodes", default=5, show_default=True, type=click.IntRange(min=2), help="Number of devices.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Rounds of training.")
@click.option("--seed", default=0, show_default=True, help="Seed of the users, their queries and clicks.")
def demo(folder: Path | None, nodes: int, rounds: int, seed: int) -> None:
    """Try a whole federation on this machine.

    Simulated users fill the logs of some devices; each device is a process of its own, which connects over TLS and
    trains for some rounds; at the end, NDCG before and after. Takes two to three minutes. With DIR, everything is kept
    there.
    """
    import tempfile

    if folder is None:
        with tempfile.TemporaryDirectory(prefix="fultr-demo-") as made:
            _demo(Path(made) / "federation", nodes, rounds, seed)
        return
    _demo(folder, nodes, rounds, seed)
    say(f"Everything is in {folder}: README.md, versions of the ranker (state/versions), logs of the processes.")


def _demo(folder: Path, nodes: int, rounds: int, seed: int) -> None:
    """Make, fill, start, train, measure, stop."""
    import numpy as np

    from fultr.core.checks import check_seed
    from fultr.data.load import load
    from fultr.deploy.folder import init_deployment
    from fultr.federated.federation import FederationSettings, fill_in
    from fultr.rankers.versions import Versions
    from fultr.study.fill_devices import fill_devices
    from fultr.study.policy import train_policy

    check_seed(seed)
    FederationSettings.of({"features": 1, "rounds": rounds, "least_devices": nodes})  # refused now, or never
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
        _start(folder, 300.0)
        say("4 of 4: training; only updates and sums leave the nodes")
        _followed(folder, *_submitted(folder))
    finally:
        _stop(folder)
    version = Versions(folder / "state" / "versions").read("latest")
    rows = [
        ["untrained (random order)", _ndcg(np.zeros(data.train.width, np.float32), data)],
        ["logging policy, which made the impressions", _ndcg(train_policy(data.train, seed=seed), data)],
        [f"federated, {rounds} rounds: {version.name}", _ndcg(version.ranker.weights, data, version.ranker.model)],
    ]
    print_table([["ranker", "NDCG@5 on test queries"], *rows])


def _ndcg(weights: Float32s, data: Splits, model: str = "linear") -> str:
    import numpy as np

    from fultr.rankers.metrics import mean_over_queries, ndcg_of_rankers
    from fultr.rankers.model import model_named

    values = ndcg_of_rankers(model_named(model, data.test.width), weights[np.newaxis], data.test)
    return f"{mean_over_queries(values)[0]:.4f}"


for _command in (rollout, promote, rollback, releases):
    deploy.add_command(_command)
