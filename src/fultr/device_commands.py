"""What the commands `fultr device ...` do and print."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from fultr.clicks import ClickModel, Sessions
from fultr.console import print_json, print_table, progress_bar, say, working
from fultr.datasets import load
from fultr.device import DeviceLog
from fultr.device_simulation import fill_devices
from fultr.errors import FultrError
from fultr.federation_settings import fill_in


def simulate_logs(
    folder: Path,
    data: str,
    devices: int,
    periods: int,
    clicks: int,
    displayed: int,
    gamma: float,
    seed: int,
    as_json: bool,
) -> None:
    """`fultr device simulate`."""
    paths = _log_paths(folder, devices)
    with working("Loading the data"):
        splits = load(data)
    settings = {"features": splits.train.width, "displayed": displayed}
    federation = folder / "federation.toml"
    if federation.exists():
        fill_in(federation, settings, write=False)  # a contradiction: better now than when logs are filled
    with progress_bar(devices, "Filling logs") as done:
        fill_devices(
            paths,
            splits,
            periods=periods,
            seed=seed,
            displayed=displayed,
            model=ClickModel(gamma),
            sessions=Sessions(clicks=clicks),
            on_device=lambda _: done(None),
        )
    changed = fill_in(federation, settings) if federation.exists() else []
    if as_json:
        print_json({"logs": [str(path) for path in paths], **settings, "set": changed})
        return
    if changed:
        say(f"{federation}: set {' and '.join(f'{name} = {settings[name]}' for name in changed)}, as in these logs")
    say(f"{devices} logs of {periods} days, {splits.train.width} features, {displayed} documents displayed:")
    for path in paths:
        print(path)


def _log_paths(folder: Path, devices: int) -> list[Path]:
    """Where the devices' logs go: into the nodes of a deployment, if the folder is one."""
    nodes = folder / "nodes"
    if not nodes.is_dir():
        return [folder / f"device-{u}.db" for u in range(devices)]
    paths = [nodes / f"node-{u + 1}" / "device.db" for u in range(devices)]
    missing = [path.parent for path in paths if not path.parent.is_dir()]
    if missing:
        raise FultrError(f"{missing[0]}: the deployment has no such node; fultr deploy init {folder} --nodes {devices}")
    return paths


def show_log(path: Path, as_json: bool) -> None:
    """`fultr device show`."""
    with DeviceLog.open(path, retention=None) as log:
        stats, schemas = log.stats(), log.schemas()
    if as_json:
        print_json({"log": str(path), **asdict(stats), "schemas": [asdict(schema) for schema in schemas]})
        return
    rows = [
        ["impressions", f"{stats.impressions:,}"],
        ["with a click", f"{stats.clicked_impressions:,}"],
        ["clicks", f"{stats.clicks:,}"],
        ["different queries", f"{stats.queries:,}"],
        ["from", _date(stats.oldest)],
        ["to", _date(stats.newest)],
        ["features", ", ".join(str(schema.count) for schema in schemas if schema.current)],
        ["left out of training: other features", f"{stats.other_schema:,}"],
        ["with text", f"{stats.with_text:,}"],
        ["size", f"{stats.bytes / 1e6:.2f} MB"],
    ]
    print_table([["", str(path)], *rows])


def _date(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def export_log(path: Path, out: Path | None) -> None:
    """`fultr device export`."""
    with DeviceLog.open(path, retention=None) as log:
        count = log.export(sys.stdout if out is None else out)
    say(f"{count:,} impressions")


def forget_from_log(path: Path, query: str | None, before: str | None, everything: bool) -> None:
    """`fultr device forget`."""
    if (query is not None) + (before is not None) + everything != 1:
        raise FultrError("forget: expected one of --query, --before and --all")
    with DeviceLog.open(path, retention=None) as log:
        if query is not None:
            gone = log.forget(query=query)
        elif before is not None:
            gone = log.forget(before=_seconds(before))
        else:
            gone = log.forget(all=True)
    say(f"{gone:,} impressions are forgotten")


def _seconds(date: str) -> float:
    try:
        when = datetime.fromisoformat(date)
    except ValueError:
        raise FultrError(f"--before: expected a date such as 2026-01-31, found {date!r}") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
