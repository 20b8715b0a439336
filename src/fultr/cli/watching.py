"""What `fultr deploy` shows of a federation: rounds, devices, its state; the commands `report` and `metrics`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fultr.cli.console import print_table, say
from fultr.cli.options import PATH

if TYPE_CHECKING:
    from fultr.deploy.history import DeviceHistory, History, Round
    from fultr.deploy.services import Status

_FAILING = 3  # times in a row that a device was of no use, before attention is drawn to it
_folder = click.argument("folder", metavar="DIR", type=PATH)


def round_lines(happened: Round) -> list[str]:
    """What went wrong in a round, a line each."""
    return [f"  round {happened.number}: {line}" for line in happened.trouble()]


def devices_json(history: History | None) -> list[dict[str, Any]]:
    """What became of asking each device, for programs."""
    return [] if history is None else [asdict(one) for one in history.devices()]


def show_devices(history: History) -> None:
    """Print what became of asking each device."""
    rows = [["device", "asked", "answered", "refused", "silent", "median s", "main reason"]]
    for one in history.devices():
        reason = _spoken(next(iter(one.reasons), ""))
        counts = (one.device, one.asked, one.answered, one.refused, one.silent)
        rows.append([*map(str, counts), "" if one.seconds is None else f"{one.seconds:.1f}", reason])
    numbers = [one.number for one in history.rounds]
    span = f"Devices in rounds {min(numbers)} to {max(numbers)}" if numbers else "No device was asked"
    failed = len(history.rounds) - len(history.completed)
    also = f", with {failed} failed attempt{'' if failed == 1 else 's'}" if failed else ""
    print_table(rows, title=span + also, left=0, words="main reason")


def show_status(found: Status) -> None:
    """Print the state of a federation."""
    rows = [["service", "state", "connected", "process", "memory"]]
    for service in (found.superlink, *found.nodes):
        used = f"{service.memory / 1e6:.0f} MB" if service.memory else ""
        rows.append(
            [service.name, service.state, "yes" if service.connected else "no", str(service.process or ""), used]
        )
    print_table(rows, left=3)
    if any(one.asked for one in found.devices):
        names = {node.device: node.name for node in found.nodes}
        heads = ["node", "device", "last answer", "asked", "refused", "silent", "latest reason"]
        table = [[names.get(one.device, "removed"), *_device_row(one)] for one in found.devices]
        print_table([heads, *table], words="latest reason")
        for one in found.devices:
            if one.failing >= _FAILING and one.device in names:
                print(f"{names[one.device]} needs attention: {_failing(one)}")
    print(f"Latest run: {_run(found)}")


def _device_row(one: DeviceHistory) -> list[str]:
    last = f"round {one.last_answered}" if one.last_answered else "never" if one.asked else ""
    return [str(one.device), last, str(one.asked), str(one.refused), str(one.silent), _spoken(one.latest_reason)]


def _spoken(why: str) -> str:
    """A reason as a table has it, under the heading that somebody was refused."""
    return "it refused to answer" if why == "it refused" else why


def _failing(one: DeviceHistory) -> str:
    """Since when a device is of no use.

    >>> from fultr.deploy.history import DeviceHistory
    >>> _failing(DeviceHistory(2, asked=7, refused=7, failing=7, latest_reason="it refused"))
    'not one of 7 questions answered (it refused to answer)'
    >>> _failing(DeviceHistory(2, asked=9, answered=5, silent=4, failing=4, last_answered=5))
    'no usable answer since round 5, to 4 questions (silent)'
    """
    why = _spoken(one.latest_reason) or "silent"
    if one.last_answered is None:
        return f"not one of {one.asked} questions answered ({why})"
    return f"no usable answer since round {one.last_answered}, to {one.failing} questions ({why})"


def _run(found: Status) -> str:
    if found.run is None:
        return "none" if found.superlink.connected else "not known, the SuperLink does not answer"
    return f"{found.run.number} {found.run.state}{f': {found.run.details}' if found.run.details else ''}"


@click.command()
@_folder
@click.option("--out", metavar="FILE", type=PATH, help="The page.  [default: DIR/report.html]")
def report(folder: Path, out: Path | None) -> None:
    """Write a page about the training so far.

    One HTML file that needs no other: quality on held-out clicks over the rounds, examination by rank, which device
    answered in which round and why others were refused, versions, releases, certificates. Made from the files in DIR;
    nothing needs to run. It names no user and holds no query, document or click.

    \b
    Examples
      fultr deploy report fed
      fultr deploy report fed --out pilot.html
    """
    from fultr.deploy.report import write_report

    print(write_report(folder, out))


@click.command()
@_folder
@click.option("--port", default=9464, show_default=True, type=click.IntRange(0, 65535),
              help="Where to serve, on 127.0.0.1; 0: any free port.")  # fmt: skip
def metrics(folder: Path, port: int) -> None:
    """Serve metrics for Prometheus.

    At http://127.0.0.1:PORT/metrics, for programs on this machine only: rounds, devices connected, how often each was
    asked, answered, refused and was silent, seconds, quality on held-out clicks, examination by rank, the state of the
    run, days until certificates expire. Made from the files in DIR and by asking the SuperLink at each request; if that
    is down, fultr_superlink_up is 0. Stop it with Ctrl-C.

    \b
    Examples
      fultr deploy metrics fed
      curl http://127.0.0.1:9464/metrics
    """
    import threading

    from fultr.deploy.metrics import serving

    with serving(folder, port) as address:
        say(f"http://127.0.0.1:{address}/metrics")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:  # that is how it ends
            return
