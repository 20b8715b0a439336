"""The commands `fultr device ...`: what a device's log holds, and logs filled by simulated users."""

from __future__ import annotations

import os
import sys
import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fultr.cli.console import print_json, print_table, progress_bar, say, working
from fultr.cli.lazy import OrderedGroup
from fultr.cli.options import PATH, features_option, json_option
from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from fultr.device.ledger import Entry
    from fultr.device.view import FeatureSchema

_LOG = click.argument("log", type=PATH)


@click.group(cls=OrderedGroup)
def device() -> None:
    """Inspect, export or delete a device's log, or simulate some.

    A search application writes its log with fultr.DeviceLog: see docs/device-log.md.
    """


@device.command()
@click.option(
    "--nodes", "devices", default=5, show_default=True, type=click.IntRange(1, 10**6), help="Number of devices."
)
@click.option("--dir", "folder", required=True, type=PATH, help="Folder for the logs.")
@click.option("--data", default="synthetic", show_default=True, help="Data set whose training queries users ask.")
@click.option("--periods", default=60, show_default=True, type=click.IntRange(min=1), help="Days that a log covers.")
@click.option("--clicks", default=10, show_default=True, type=click.IntRange(min=1), help="Clicks per day.")
@click.option("--displayed", default=5, show_default=True, type=click.IntRange(1, 1000),
              help="Documents displayed per query, K.")  # fmt: skip
@click.option("--gamma", default=1.0, show_default=True, help="Bias severity: examination is (1 / rank) ** gamma.")
@click.option("--seed", default=0, show_default=True, help="Seed of the users, their queries and clicks.")
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
    """Fill the logs of some devices with simulated users.

    The logs are device-0.db, device-1.db, ... in --dir. The users are those of `fultr simulate --users` with the same
    seed. Dates start in 1970.

    In a folder that `fultr deploy init` wrote, the logs are those of its nodes, and the number of features and of
    displayed documents is set in its federation.toml. If other numbers are set there already, nothing is written.

    \b
    Examples
      fultr device simulate --nodes 5 --dir pilot
      fultr device show pilot/device-0.db
      fultr deploy init fed --nodes 5 && fultr device simulate --nodes 5 --dir fed
    """
    from fultr.clicks.settings import ClickModel, Sessions
    from fultr.data.load import load
    from fultr.federated.federation import fill_in
    from fultr.study.fill_devices import fill_devices

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
            on_device=lambda _: done(),
        )
    changed = fill_in(federation, settings) if federation.exists() else []
    if as_json:
        print_json({"logs": [str(path) for path in paths], **settings, "set": changed})
        return
    if changed:
        say(f"{federation}: set {' and '.join(f'{name} = {settings[name]}' for name in changed)}, as in these logs")
    logs = f"{_counted(devices, 'log')} of {_counted(periods, 'day')}"
    say(f"{logs}, {splits.train.width} features, {displayed} documents displayed:")
    for path in paths:
        print(path)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


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


@device.command()
@_LOG
@json_option
def show(log: Path, as_json: bool) -> None:
    """Show what LOG holds: impressions, clicks, versions, dates, size.

    \b
    Example
      fultr device show fed/nodes/node-1/device.db
    """
    from fultr.device.log import DeviceLog

    with DeviceLog.open(log, retention=None) as opened:
        stats, schemas = opened.stats(), opened.schemas()
    if as_json:
        print_json({"log": str(log), **asdict(stats), "schemas": [asdict(schema) for schema in schemas]})
        return
    rows = [
        ["impressions", f"{stats.impressions:,}"],
        ["with a click", f"{stats.clicked_impressions:,}"],
        ["clicks", f"{stats.clicks:,}"],
        ["different queries", f"{stats.queries:,}"],
        ["from", _date(stats.oldest)],
        ["to", _date(stats.newest)],
        ["features", ", ".join(_features(schema) for schema in schemas if schema.current)],
        ["left out of training: other features", f"{stats.other_schema:,}"],
        ["with text", f"{stats.with_text:,}"],
        ["size", f"{stats.bytes / 1e6:.2f} MB"],
    ]
    print_table([["", str(log)], *rows])


def _features(schema: FeatureSchema) -> str:
    return f"{schema.count:,}, {'scaled to [0, 1] within each query' if schema.normalised else 'not normalised'}"


def _date(seconds: float | None) -> str:
    try:
        return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return "no date"  # a clock that was set out of range


@device.command()
@click.argument("node", type=PATH, required=False)
@json_option
def policy(node: Path | None, as_json: bool) -> None:
    """Show what a device is willing to answer: the [policy] of NODE.

    NODE is a node.toml, or the folder that has one; without it, the defaults are shown. docs/device-log.md explains
    them.

    \b
    Example
      fultr device policy fed/nodes/node-1
    """
    from fultr.core.settings import leaves
    from fultr.device.policy import DevicePolicy

    file = node / "node.toml" if node is not None and node.is_dir() else node
    found = DevicePolicy() if file is None else DevicePolicy.read(file)
    if as_json:
        print_json({"file": None if file is None else str(file), **asdict(found)})
        return
    rows = [["setting", str(file or "default"), "meaning"]]
    for name, leaf in leaves(DevicePolicy).items():
        value = getattr(found, name)
        shown = (", ".join(value) or "nothing") if isinstance(value, tuple) else f"{value}"
        rows.append([name, shown, leaf.help])
    print_table(rows, left=3)


@device.command()
@_LOG
@click.option("--policy", "node", type=PATH, help="node.toml that says how many answers are left.  [default limits]")
@json_option
def history(log: Path, node: Path | None, as_json: bool) -> None:
    """Show every task that came, and what became of it.

    What was asked, what was sent, and why anything was refused. The newest is last. Times are those of the device's
    clock, in UTC. Reasons never leave the device.

    \b
    Example
      fultr device history node-1/device.db --policy node-1/node.toml
    """
    from fultr.device.log import DeviceLog
    from fultr.device.policy import DevicePolicy

    limits = DevicePolicy() if node is None else DevicePolicy.read(node)
    with DeviceLog.open(log, retention=None) as opened:
        found = opened.history()
    in_all = max(0, limits.answers_in_all - found.answered)
    left = {"left_in_all": in_all, "left_today": min(in_all, max(0, limits.answers_a_day - found.answered_today))}
    if as_json:
        print_json({"log": str(log), **asdict(found), **left})
        return
    if found.earlier_refusals:
        print(f"{_counted(found.earlier_refusals, 'earlier refusal')}, which are only counted")
    for entry in found.entries:
        for line in _told(entry):
            print(line)
    print(f"{_counted(found.answered, 'answer')}, {found.answered_today:,} of them in the last 24 hours;")
    print(f"{left['left_today']:,} left today, {left['left_in_all']:,} in all.")


def _told(entry: Entry) -> list[str]:
    """What became of a task, in lines for a terminal of 80 columns."""
    asked = entry.asked
    estimator = f" ({asked.estimator})" if asked.estimator else ""
    lines = [f"{_date(entry.time)}  {entry.outcome}"]
    if asked.kinds:
        lines[0] += f": {', '.join(asked.kinds)}{estimator}"
        lines.append(f"run {asked.run}, round {asked.round + 1}")
    if entry.outcome == "answered":
        made = f"from {_counted(entry.clicks, 'click')} in {_counted(entry.impressions, 'impression')}"
        lines[-1] += f"; {made}, up to batch {entry.batch}"
        sent = "; ".join(f"{part.name}, {_counted(part.size, 'number')}, norm {part.norm:.3g}" for part in entry.sent)
        lines.append(f"sent: {sent or 'nothing, as it stopped before the answer was complete'}")
    if entry.reason:
        lines.append(entry.reason)
    rest = [textwrap.wrap(line, 79, initial_indent="    ", subsequent_indent="      ") for line in lines[1:]]
    return [lines[0], *(part for wrapped in rest for part in wrapped)]


@device.command()
@_LOG
@click.option("--out", type=PATH, help="File to write to.  [default: stdout]")
@click.option("--click-log", is_flag=True,
              help="As a click log, which fultr estimate reads: --out FILE.tsv, .csv or .parquet.")  # fmt: skip
def export(log: Path, out: Path | None, click_log: bool) -> None:
    """Write all that LOG holds as lines of JSON, for its user to read.

    As a click log, only impressions with the latest features are written; queries are called by their hash.

    \b
    Example
      fultr device export search.db --out mine.jsonl
    """
    from fultr.device.log import DeviceLog

    if click_log and out is None:
        raise FultrError("--click-log: expected a file to write to, --out FILE.tsv, .csv or .parquet; found none")
    with DeviceLog.open(log, retention=None) as opened:
        if click_log and out is not None:
            from fultr.clicks.tables import write_click_log
            from fultr.device.conversion import click_log_of

            found = click_log_of(opened)
            before = os.umask(0o077)  # what a user clicked is for nobody else on the device
            try:
                write_click_log(found, out)
            finally:
                os.umask(before)
            count = found.impressions
        else:
            count = opened.export(sys.stdout if out is None else out)
    say(f"{count:,} impressions")


@device.command("import")
@click.argument("clicklog", type=PATH)
@click.option("--dir", "folder", required=True, type=PATH, help="Folder for the logs.")
@click.option("--raw", is_flag=True, help="The features are not scaled to [0, 1] within each query.")
@click.option("--version", "version", default="", help="Version of the ranker that made the impressions.")
@features_option
def import_(clicklog: Path, folder: Path, raw: bool, version: str, features: list[str] | None) -> None:
    """Fill device logs from a click log, one for each user.

    CLICKLOG is what fultr estimate reads, with features; without users, it is the log of one device.

    \b
    Example
      fultr device import clicks.tsv --dir logs
    """
    from fultr.clicks.files import read_click_log
    from fultr.device.conversion import fill_from_click_log

    with working("Reading"):
        log = read_click_log(clicklog, features=features)
    users = 1 if log.user_names is None else len(log.user_names)
    with progress_bar(users, "Writing") as done:
        paths = fill_from_click_log(log, folder, normalised=not raw, version=version, on_device=lambda path: done())
    say(f"{log.impressions:,} impressions in {len(paths):,} logs, {paths[0]} to {paths[-1]}")


@device.command()
@_LOG
@click.option("--query", help="Delete the impressions of this query.")
@click.option("--before", help="Delete impressions before this date, such as 2026-01-31.")
@click.option("--all", "everything", is_flag=True, help="Delete everything.")
def forget(log: Path, query: str | None, before: str | None, everything: bool) -> None:
    """Delete impressions from LOG, beyond recovery.

    One of the options says which.

    \b
    Examples
      fultr device forget search.db --query "best pizza"
      fultr device forget search.db --before 2026-01-31
    """
    from fultr.device.log import DeviceLog

    if (query is not None) + (before is not None) + everything != 1:
        raise FultrError("forget: expected one of --query, --before and --all")
    with DeviceLog.open(log, retention=None) as opened:
        if query is not None:
            gone = opened.forget(query=query)
        elif before is not None:
            gone = opened.forget(before=_seconds(before))
        else:
            gone = opened.forget(all=True)
    say(f"{gone:,} impressions deleted")


def _seconds(date: str) -> float:
    try:
        when = datetime.fromisoformat(date)
    except ValueError:
        raise FultrError(f"--before: expected a date such as 2026-01-31, found {date!r}") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
