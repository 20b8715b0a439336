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
from fultr.cli.watching import devices_json, metrics, report, round_lines, show_devices, show_status
from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from fultr.core.arrays import Float32s
    from fultr.data.ranking import Splits
    from fultr.deploy.history import History
    from fultr.deploy.training import TrainingProgress
    from fultr.rankers.model import ModelSettings

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
      fultr deploy releases fed          the first ranker is released by itself
      fultr deploy rollout fed           try a later one on some devices
      fultr deploy promote fed           give it to all
      fultr deploy status fed            what is running, who answers
      fultr deploy report fed            a page about the rounds, fed/report.html
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

    \b
    Example
      fultr deploy start fed
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
@click.option("--devices", "all_devices", is_flag=True,
              help="At the end show what became of asking each device, even if nothing went wrong.")  # fmt: skip
@json_option
def train(folder: Path, detach: bool, all_devices: bool, as_json: bool) -> None:
    """Run the training, follow it, or resume it.

    The settings are in DIR/federation.toml. Shows the rounds and the time left, and after a round in which devices
    refused, were refused or did not answer, who and why; then at the end a table of the devices. A run in progress is
    followed, not submitted again; one that was interrupted resumes from its checkpoint in state-dir. Interrupting this
    command does not stop the training: `fultr deploy stop` does.

    \b
    Examples
      fultr deploy train fed
      fultr deploy train fed --detach        in the background
      fultr deploy train fed --devices       with the table of devices in any case
    """
    run, new = _submitted(folder)
    seen: list[TrainingProgress] = []
    failure = None
    if not detach:
        end = shlex.join(["fultr", "deploy", "stop", str(folder)])
        stays = f"run {run} continues until {end}, and the same command follows it again"
        with resumable(lambda: stays):
            try:
                _followed(folder, run, new, seen)
            except FultrError as error:
                failure = error  # which devices were the cause is said first
    history = None if detach else _history(folder, new, seen)
    if as_json:
        latest = seen[-1].latest if seen else None
        print_json({"run": run, "new": new, "latest": latest, "devices": devices_json(history)})
    elif history is not None and (history.trouble or all_devices):
        show_devices(history)
    if failure is not None:
        raise failure


def _history(folder: Path, new: bool, seen: list[TrainingProgress]) -> History:
    """What became of the rounds of a run: those that were seen, or all if it was in progress before."""
    from fultr.deploy.folder import load_deployment
    from fultr.deploy.history import History, read_history
    from fultr.deploy.training import state_folder

    if new:
        return History(tuple(progress.happened for progress in seen))
    return read_history(state_folder(load_deployment(folder)))


def _submitted(folder: Path) -> tuple[int, bool]:
    """The number of the run, and whether it is new or one in progress."""
    from fultr.deploy.training import submit

    run, new = submit(folder)
    say(f"run {run} {'submitted' if new else 'is in progress'}")
    return run, new


def _followed(folder: Path, run: int, new: bool, seen: list[TrainingProgress] | None = None) -> None:
    """Show a run until it ends; adds what it saw to a list."""
    from fultr.deploy.training import follow

    begun = time.monotonic()
    with round_bar() as tell:

        def show(progress: TrainingProgress) -> None:
            if seen is not None:
                seen.append(progress)
            tell(progress.round, progress.rounds, progress.seconds_left, round_lines(progress.happened))

        follow(folder, run, new, show)
    say(f"run {run} completed after {spoken_time(time.monotonic() - begun)}")


@deploy.command()
@_folder
@json_option
def status(folder: Path, as_json: bool) -> None:
    """Show what is running, who answers, and the latest run.

    For each device: the last round that it answered, how often it was refused or silent, and why. One that is refused
    in every round, or never answers, is named below the tables.

    \b
    Examples
      fultr deploy status fed
      fultr deploy status fed --json
    """
    from fultr.deploy.services import status

    found = status(folder)
    if as_json:
        print_json(asdict(found))
        return
    show_status(found)
    days = found.certificate_days
    if days < _WARN_DAYS:
        raise FultrError(
            f"{folder / 'superlink' / 'server.crt'}: {f'expires in {days:.0f} days' if days > 0 else 'has expired'}; "
            "README.md says how to renew it"
        )


@deploy.command()
@_folder
def stop(folder: Path) -> None:
    """Stop what `fultr deploy start` started, and nothing else.

    \b
    Example
      fultr deploy stop fed
    """
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

    \b
    Example
      fultr deploy register fed
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

    \b
    Examples
      fultr deploy demo
      fultr deploy demo demo-fed    keep it, and look around
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


def _ndcg(weights: Float32s, data: Splits, model: ModelSettings | str = "linear") -> str:
    import numpy as np

    from fultr.rankers.metrics import mean_over_queries, ndcg_of_rankers
    from fultr.rankers.model import model_named

    values = ndcg_of_rankers(model_named(model, data.test.width), weights[np.newaxis], data.test)
    return f"{mean_over_queries(values)[0]:.4f}"


for _command in (rollout, promote, rollback, releases, report, metrics):
    deploy.add_command(_command)
