"""How many nodes one SuperLink serves: hundreds of them in a few processes, all on this machine."""

from __future__ import annotations

import json
import logging
import multiprocessing
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fultr.cli.bench.pilot import megabytes, most, prepare
from fultr.cli.console import say
from fultr.core.errors import FultrError
from fultr.deploy.control import connected_nodes
from fultr.deploy.folder import Deployment
from fultr.deploy.processes import Process, process_now, processor_seconds
from fultr.deploy.services import running, service_process, service_processes
from fultr.deploy.training import follow, submit

_HOSTS = 3  # processes that share the nodes
_PATIENCE = 600.0  # seconds for all nodes to connect
_IDLE = 60.0  # seconds; by then nodes ask as rarely as they do
_LOOK = 20.0  # seconds of idleness that are measured


def scale(counts: tuple[int, ...] = (100, 300, 1000), rounds: int = 4) -> list[tuple[str, float, str, str]]:
    """Rounds of large federations; the first round of each is not counted.

    Args:
        counts: nodes.
        rounds: of each federation.

    Returns:
        What was measured, its value, its unit, and what is wanted.
    """
    figures = []
    for nodes in counts:
        with tempfile.TemporaryDirectory(prefix="fultr-bench-") as made:
            figures += _measured(Path(made) / "federation", nodes, rounds)
    return figures


def _measured(folder: Path, nodes: int, rounds: int) -> list[tuple[str, float, str, str]]:
    say(f"scale: {nodes:,} nodes: keys and logs")
    begun = time.monotonic()
    prepare(folder, nodes, rounds)
    (folder / "nodes").rename(folder / "hosted")  # nodes elsewhere, for `running`
    prepared = time.monotonic()
    with running(folder) as deployment, _hosted(folder / "hosted", nodes) as hosts:
        registered = time.monotonic()
        say(f"scale: {nodes:,} nodes: connecting")
        _wait_until_connected(deployment, nodes)
        connected = time.monotonic()
        say(f"scale: {nodes:,} nodes: idle")
        time.sleep(_IDLE)
        asked, before, began = hosts.requests(), _seconds(deployment, hosts), time.monotonic()
        time.sleep(_LOOK)
        idle = (_seconds(deployment, hosts) - before) / (time.monotonic() - began)
        before_rounds = hosts.requests()
        say(f"scale: {nodes:,} nodes: {rounds} rounds")
        sizes = {
            "superlink": lambda: megabytes([service_process(deployment, "superlink")]),
            "server app": lambda: megabytes(_helpers(deployment)),
        }
        marks = []
        with most(sizes) as memory:
            follow(folder, *submit(folder), lambda _: marks.append(_seconds(deployment, hosts)))
        made = hosts.requests().total() - before_rounds.total()
        size = megabytes(hosts.processes) / nodes
    reports = [json.loads(line) for line in (folder / "state" / "progress.jsonl").read_text().splitlines()]
    seconds = [report["seconds"] for report in reports[1:]]
    busy = (marks[-1] - marks[0]) / (len(marks) - 1)
    replies = min(len(report["accepted"]) for report in reports)
    return [
        (f"{nodes:,} nodes: a round, median", float(np.median(seconds)), "s", "at most 60 s" if nodes == 300 else ""),
        ("  the first round", reports[0]["seconds"], "s", ""),
        ("  replies accepted, the round with fewest", replies, "", f"{nodes}"),
        ("  processor time of the SuperLink a round", float(busy[0]), "s", ""),
        ("  of the server app", float(busy[1]), "s", ""),
        ("  of the nodes", float(busy[2]), "s", ""),
        ("  memory of the SuperLink, most", memory["superlink"], "MB", ""),
        ("  of the server app, most", memory["server app"], "MB", ""),
        ("  of a node", size, "MB", ""),
        ("  requests by a node and task, waiting included", made / nodes / (rounds + 1), "", ""),
        ("  while idle, requests of all nodes", (before_rounds.total() - asked.total()) / _LOOK, "a second", ""),
        ("  processor of the SuperLink", 100 * float(idle[0]), "% of one", ""),
        ("  of the nodes", 100 * float(idle[2]), "% of one", ""),
        ("  making keys and logs", prepared - begun, "s", ""),
        ("  starting the SuperLink and registering", registered - prepared, "s", ""),
        ("  connecting", connected - registered, "s", ""),
    ]


def _helpers(deployment: Deployment) -> list[Process]:
    """What the SuperLink has started: the server app, and what starts that."""
    main = service_process(deployment, "superlink")
    return [process for process in service_processes(deployment, "superlink") if process != main]


def _seconds(deployment: Deployment, hosts: _Hosts) -> np.ndarray:
    """Processor time of the SuperLink, of the server app and of the nodes."""
    main = service_process(deployment, "superlink")
    return np.array([processor_seconds(each) for each in ([main], _helpers(deployment), hosts.processes)])


def _wait_until_connected(deployment: Deployment, nodes: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while (there := len(connected_nodes(deployment))) < nodes:
        if time.monotonic() > deadline:
            raise FultrError(f"{there:,} of {nodes:,} nodes are connected after {_PATIENCE:.0f} s")
        time.sleep(2.0)


class _Hosts(NamedTuple):
    """Processes with nodes in them."""

    processes: list[Process]
    pipes: list[Connection]

    def requests(self) -> Counter[str]:
        """What their nodes have asked the SuperLink, by the end of the path."""
        total: Counter[str] = Counter()
        for pipe in self.pipes:
            pipe.send("requests")
            total += pipe.recv()
        return total


@contextmanager
def _hosted(folder: Path, nodes: int) -> Iterator[_Hosts]:
    """The nodes in a folder, running in a few processes."""
    context = multiprocessing.get_context("spawn")
    hosts, children = _Hosts([], []), []
    for i in range(_HOSTS):
        pipe, other = context.Pipe()
        folders = [folder / f"node-{number + 1}" for number in range(i, nodes, _HOSTS)]
        child = context.Process(target=host, args=(folders, other), daemon=True)
        child.start()
        other.close()
        children.append(child)
        process = process_now(child.pid or 0)
        assert process is not None
        hosts.processes.append(process)
        hosts.pipes.append(pipe)
    try:
        yield hosts
    finally:
        for pipe in hosts.pipes:
            pipe.close()
        for child in children:
            child.join(60.0)
            child.kill()


class _Requests(logging.Handler):
    """Counts what httpx says it has requested."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """One more."""
        assert isinstance(record.args, tuple)
        self.counts[str(record.args[1]).rpartition("/")[2]] += 1


def host(folders: list[Path], pipe: Connection) -> None:
    """Run the nodes in some folders until the pipe is closed."""
    from fultr.deploy.flower.node import run_node

    requests, log, stop = _Requests(), logging.getLogger("httpx"), threading.Event()
    log.addHandler(requests)
    log.setLevel(logging.INFO)
    log.propagate = False
    threads = [
        threading.Thread(target=run_node, args=(folder, stop, lambda told: None), daemon=True) for folder in folders
    ]
    for thread in threads:
        thread.start()
    try:
        while pipe.recv():
            pipe.send(requests.counts)
    except EOFError:
        stop.set()
    for thread in threads:
        thread.join()
