"""The commands `fultr deploy ...`."""

from __future__ import annotations

from pathlib import Path

import click

from fultr.cli_options import json_option

_folder = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


@click.group()
def deploy() -> None:
    """Run a federation of real devices with Flower: certificates, keys, start, train, stop.

    \b
    A pilot on one machine
      fultr deploy init fed --nodes 3         what an operator needs, README.md included
      fultr device simulate --nodes 3 --dir fed
      fultr deploy start fed                  the SuperLink (server) and the nodes
      fultr deploy train fed                  the training; goes on where it was interrupted
      fultr deploy status fed
      fultr deploy stop fed

    `fultr deploy demo` does all of it with simulated users.
    """


@deploy.command()
@_folder
@click.option("--nodes", type=click.IntRange(min=1), help="How many in all.  [default: 2; of a deployment: as it has]")
@click.option("--address", metavar="HOST:PORT",
              help="Where nodes reach the SuperLink; with another host than this one, it listens on all interfaces.  "
              "[default: a free port on 127.0.0.1]")  # fmt: skip
@click.option("--name", help="Of the federation.  [default: pilot]")
def init(folder: Path, nodes: int | None, address: str | None, name: str | None) -> None:
    """Write a federation's folder, with all that an operator needs.

    That is: certificates, keys, settings, scripts, systemd units, the Flower app and instructions (README.md). DIR
    must be missing or empty; or be a deployment, to which only what is missing is added, such as new nodes or a
    certificate that was deleted to renew it. DIR is for its owner's eyes: it holds private keys.

    \b
    Examples
      fultr deploy init fed                                        two nodes on this machine
      fultr deploy init fed --nodes 5                              three more
      fultr deploy init fed --nodes 20 --address fed.example.org:9092
    """
    from fultr.deploy_commands import init_command

    init_command(folder, nodes, address, name)


@deploy.command()
@_folder
@click.option("--wait", "patience", default=120.0, show_default=True, type=click.FloatRange(min=1),
              help="Seconds for the SuperLink to answer, and for the nodes to connect.")  # fmt: skip
def start(folder: Path, patience: float) -> None:
    """Start the SuperLink and the nodes.

    The nodes are those that are in DIR. Waits until all are connected. What runs already is left alone: use it
    again after a crash.
    """
    from fultr.deploy_commands import start_command

    start_command(folder, patience)


@deploy.command()
@_folder
@click.option("--detach", is_flag=True, help="Submit and return; the same command follows it later.")
@json_option
def train(folder: Path, detach: bool, as_json: bool) -> None:
    """Run the training, or go on with it.

    DIR/federation.toml holds its settings. Shows the rounds and the time left. A run that is going on is followed,
    not submitted again. One that was interrupted goes on from its checkpoint in state-dir. Interrupting this
    command does not stop the training: `fultr deploy stop` does.
    """
    from fultr.deploy_commands import train_command

    train_command(folder, detach, as_json)


@deploy.command()
@_folder
@json_option
def status(folder: Path, as_json: bool) -> None:
    """Show what runs, who is connected, and the latest run."""
    from fultr.deploy_commands import status_command

    status_command(folder, as_json)


@deploy.command()
@_folder
def stop(folder: Path) -> None:
    """Stop what `fultr deploy start` began, and nothing else."""
    from fultr.deploy_commands import stop_command

    stop_command(folder)


@deploy.command()
@_folder
def register(folder: Path) -> None:
    """Let in the nodes whose keys are here.

    They are in DIR/superlink/node-keys; nodes whose keys are no longer there are turned away for good. `start` does
    this too; it is for a SuperLink that systemd runs.
    """
    from fultr.deploy_commands import register_command

    register_command(folder)


@deploy.command()
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--nodes", default=5, show_default=True, type=click.IntRange(min=2), help="Devices.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="Rounds of training.")
@click.option("--seed", default=0, show_default=True, help="Users, queries and clicks follow from it.")
def demo(folder: Path | None, nodes: int, rounds: int, seed: int) -> None:
    """Try a whole federation on this machine: simulated users, real processes, TLS, some rounds, NDCG before and after.

    What is made is kept in DIR if it is given. Takes two to three minutes.
    """
    from fultr.deploy_demo import demo_command

    demo_command(folder, nodes, rounds, seed)
