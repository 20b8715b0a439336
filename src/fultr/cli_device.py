"""The commands `fultr device`: what a device's log holds, and logs filled by simulated users."""

from __future__ import annotations

from pathlib import Path

import click

from fultr.cli_options import json_option

_LOG = click.argument("log", type=click.Path(path_type=Path))


@click.group()
def device() -> None:
    """Look into a device's log, forget, export; fill logs with simulated users.

    A search application writes its log with fultr.DeviceLog: see docs/device-log.md.
    """


@device.command()
@click.option("--nodes", "devices", default=5, show_default=True, type=click.IntRange(min=1), help="Devices.")
@click.option("--dir", "folder", required=True, type=click.Path(path_type=Path), help="Folder of the logs.")
@click.option("--data", default="synthetic", show_default=True, help="Data set whose training queries users ask.")
@click.option("--periods", default=60, show_default=True, type=click.IntRange(min=1), help="Days that a log covers.")
@click.option("--clicks", default=10, show_default=True, type=click.IntRange(min=1), help="Clicks a day.")
@click.option("--displayed", default=5, show_default=True, type=click.IntRange(1, 1000), help="Documents displayed, K.")
@click.option("--gamma", default=1.0, show_default=True, help="Bias severity: examination is (1 / rank) ** gamma.")
@click.option("--seed", default=0, show_default=True, help="Users, queries and clicks follow from it.")
@json_option
def simulate(
    devices: int,
    folder: Path,
    data: str,
    periods: int,
    clicks: int,
    displayed: int,
    gamma: float,
    seed: int,
    as_json: bool,
) -> None:
    """Fill the logs of some devices with simulated users: device-0.db, device-1.db, ...

    The users are those of `fultr simulate` with --users and the same seed. Times are days from 1970 on.

    In a folder that `fultr deploy init` wrote, the logs are those of its nodes, and federation.toml is told how many
    features they have and how many documents were displayed. If it says otherwise already, nothing is written.

    \b
    Examples
      fultr device simulate --nodes 5 --dir pilot
      fultr device show pilot/device-0.db
      fultr device simulate --nodes 5 --dir fed      after fultr deploy init fed --nodes 5
    """
    from fultr.device_commands import simulate_logs

    simulate_logs(folder, data, devices, periods, clicks, displayed, gamma, seed, as_json)


@device.command()
@_LOG
@json_option
def show(log: Path, as_json: bool) -> None:
    """What LOG holds: impressions, clicks, versions, dates, size."""
    from fultr.device_commands import show_log

    show_log(log, as_json)


@device.command()
@_LOG
@click.option("--out", type=click.Path(path_type=Path), help="File to write; standard output if missing.")
def export(log: Path, out: Path | None) -> None:
    """All that LOG holds, as lines of JSON, for its user to read."""
    from fultr.device_commands import export_log

    export_log(log, out)


@device.command()
@_LOG
@click.option("--query", help="Forget the impressions of this query.")
@click.option("--before", help="Forget impressions before this date, such as 2026-01-31.")
@click.option("--all", "everything", is_flag=True, help="Forget everything.")
def forget(log: Path, query: str | None, before: str | None, everything: bool) -> None:
    """Delete from LOG, beyond recovery, what one of the options says."""
    from fultr.device_commands import forget_from_log

    forget_from_log(log, query, before, everything)
