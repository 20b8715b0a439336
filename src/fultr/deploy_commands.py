"""What the commands `fultr deploy ...` do and print."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fultr.console import print_json, print_table, round_bar, say, spoken_time, working
from fultr.deployment import init_deployment, load_deployment
from fultr.deployment_control import register_nodes
from fultr.deployment_processes import Status, start, status, stop
from fultr.deployment_train import TrainingProgress, follow, read_settings, submit
from fultr.errors import FultrError
from fultr.federation_settings import FederationSettings

_WARN_DAYS = 30


def init_command(folder: Path, nodes: int | None, address: str | None, name: str | None) -> None:
    """Write a deployment, or add what it lacks."""
    written = init_deployment(folder, nodes, address, name)
    deployment = load_deployment(folder)
    for line in written:
        print(line)
    if not written:
        say(f"{folder}: nothing was missing")
    else:
        say(f"{folder}: {deployment.name}, {_nodes(len(deployment.nodes))}, at {deployment.address}")
        say(f"Read {folder / 'README.md'}, or begin with: fultr deploy start {folder}")


def start_command(folder: Path, patience: float) -> None:
    """Start what does not run."""
    begun = time.monotonic()
    with working("starting"):
        started, deployment = start(folder, patience, say)
    here = sum(node.here for node in deployment.nodes)
    if not started:
        say(f"{folder}: the SuperLink and {_nodes(here)} run already")
    else:
        say(f"{_nodes(here)} connected after {spoken_time(time.monotonic() - begun)}: fultr deploy train {folder}")


def train_command(folder: Path, detach: bool, as_json: bool) -> None:
    """Submit the training, or find the one that is going on; follow it."""
    _check_settings(folder)
    run, new = submit(folder)
    say(f"run {run} {'submitted' if new else 'is going on'}")
    last: list[TrainingProgress] = []
    if not detach:
        begun = time.monotonic()
        try:
            with round_bar() as tell:

                def show(progress: TrainingProgress) -> None:
                    last[:] = [progress]
                    tell(progress.round, progress.rounds, progress.seconds_left)

                follow(folder, run, new, show)
        except KeyboardInterrupt:
            say(f"run {run} goes on: fultr deploy train {folder} watches it again, fultr deploy stop ends it")
            raise
        say(f"run {run} is complete after {spoken_time(time.monotonic() - begun)}")
    if as_json:
        print_json({"run": run, "new": new, "latest": last[0].latest if last else None})


def _check_settings(folder: Path) -> None:
    """Refuse settings that fultr's own server app would refuse, before anything is sent."""
    deployment = load_deployment(folder)
    app = deployment.folder / "app" / "pyproject.toml"
    if "fultr.flower.server_app" not in app.read_text(encoding="utf-8"):
        return  # an app of their own has settings of its own
    settings = read_settings(deployment)
    del settings["state-dir"]
    try:
        FederationSettings.of(settings)
    except FultrError as error:
        raise FultrError(f"{deployment.folder / 'federation.toml'}: {error}") from None


def status_command(folder: Path, as_json: bool) -> None:
    """Print how a federation is."""
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


def stop_command(folder: Path) -> None:
    """Stop what runs."""
    with working("stopping"):
        stopped = stop(folder, say)
    say(f"{folder}: stopped {', '.join(stopped)}" if stopped else f"{folder}: nothing was running")


def register_command(folder: Path) -> None:
    """Make the SuperLink know the keys that are in the folder, and no others."""
    deployment = load_deployment(folder)
    new, gone = register_nodes(deployment)
    say(f"{_nodes(len(deployment.nodes))} may take part; new: {', '.join(new) or 'none'}; no longer: {gone}")


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _run(found: Status) -> Any:
    if found.run is None:
        return "none" if found.superlink.connected else "not known, the SuperLink does not answer"
    return f"{found.run.number} {found.run.state}{f': {found.run.details}' if found.run.details else ''}"
