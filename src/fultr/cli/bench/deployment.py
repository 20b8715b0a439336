"""What a deployment costs: `fultr node` and Flower's own node side by side, and the same rounds in one process."""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fultr.cli.bench.pilot import megabytes, most, prepare
from fultr.cli.bench.supernodes import submit, use_supernodes
from fultr.cli.console import say
from fultr.deploy.folder import Deployment, free_port, load_deployment
from fultr.deploy.processes import Process, machine_seconds, processor_seconds
from fultr.deploy.services import running, service_processes
from fultr.deploy.training import follow, read_settings
from fultr.device.local import LocalDevices
from fultr.federated.federate import federate

Rows: TypeAlias = list[tuple[str, float, str, str]]


def deployment_rounds(
    nodes: tuple[int, ...] = (3, 5, 10, 30), flower: tuple[int, ...] = (3, 5, 10), rounds: int = 6
) -> Rows:
    """Rounds of federations on this machine, over TLS: SuperLink and all nodes share its processors.

    Args:
        nodes: how many, of each federation.
        flower: for which of these Flower's own nodes are measured too: one takes 0.4 GB while it works.
        rounds: of each; the first, in which what trains is loaded, is not counted.

    Returns:
        What was measured, its value, its unit, and what is wanted.
    """
    figures: Rows = []
    for count in nodes:
        for theirs in (False, True) if count in flower else (False,):
            say(f"deployment: {count} nodes{' of Flower' if theirs else ''}")
            with tempfile.TemporaryDirectory(prefix="fultr-bench-") as made:
                figures += _measured(Path(made) / "federation", count, rounds, theirs)
    return figures


def _measured(folder: Path, nodes: int, rounds: int, theirs: bool) -> Rows:
    deployment = prepare(folder, nodes, rounds)
    name = f"{nodes} nodes{' of Flower' if theirs else ''}: "
    with _counted(folder) as sent:
        if theirs:
            use_supernodes(deployment)

        def mark() -> tuple[float, ...]:
            """Processor seconds of the machine, of the SuperLink, of the nodes; bytes to the server, and back."""
            server, own = (processor_seconds(each()) for each in (superlink, all_nodes))
            return (machine_seconds(), server, own, sent["up"], sent["down"])

        def superlink() -> list[Process]:
            return service_processes(deployment, "superlink")

        def first() -> list[Process]:
            return service_processes(deployment, "node-1")

        def all_nodes() -> list[Process]:
            return [process for node in deployment.nodes for process in service_processes(deployment, node.name)]

        with running(folder, 600.0):
            before = megabytes(first())
            marks: list[tuple[float, ...]] = []
            sizes = {"node": lambda: megabytes(first()), "superlink": lambda: megabytes(superlink())}
            with most(sizes) as peak:
                follow(folder, submit(deployment), True, lambda _: marks.append(mark()))
            time.sleep(3.0)
            after = megabytes(first())
    reports = [json.loads(line) for line in (folder / "state" / "progress.jsonl").read_text().splitlines()]
    seconds = float(np.median([report["seconds"] for report in reports[1:]]))
    busy, server, own, up, down = np.subtract(marks[-1], marks[0]) / ((len(marks) - 1) * nodes)
    rows = [
        (f"{name}a round, median", seconds, "s", ""),
        (
            "  replies accepted, the round with fewest",
            min(len(report["accepted"]) for report in reports),
            "",
            f"{nodes}",
        ),
        ("  processor time per device and round, whole machine", 1e3 * busy, "ms", ""),
        ("  of the nodes", 1e3 * own, "ms", ""),
        ("  of SuperLink and server app", 1e3 * server, "ms", ""),
        ("  memory of a node before any task", before, "MB", ""),
        ("  most", peak["node"], "MB", ""),
        ("  after the rounds", after, "MB", ""),
        ("  memory of the SuperLink with its server app, most", peak["superlink"], "MB", ""),
        ("  sent by a device in a round, TLS and polls included", up / 1e3, "kB", ""),
        ("  received", down / 1e3, "kB", ""),
    ]
    return rows if theirs else [*rows, ("  a round in one process", _alone(deployment, rounds), "s", "")]


def _alone(deployment: Deployment, rounds: int) -> float:
    """Seconds a round of the same devices in this process; the first is not counted."""
    settings, _ = read_settings(deployment)
    logs = {node.device: node.folder / "device.db" for node in deployment.nodes}
    federate(LocalDevices(logs), settings, deployment.folder / "local")
    lines = (deployment.folder / "local" / "progress.jsonl").read_text().splitlines()
    return float(np.median([json.loads(line)["seconds"] for line in lines[1:]]))


@contextmanager
def _counted(folder: Path) -> Iterator[Counter[str]]:
    """Nodes reach the SuperLink, which is moved to another port, through a relay that counts the bytes both ways."""
    env, listened = folder / "superlink" / "superlink.env", load_deployment(folder).port
    port = free_port()
    env.write_text(env.read_text().replace(f"\nPORT={listened}", f"\nPORT={port}"))
    counts: Counter[str] = Counter()

    def relay(node: socket.socket) -> None:
        with contextlib.suppress(OSError), node, socket.create_connection(("127.0.0.1", port)) as server:
            for end in (node, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # no waiting for more to send
            back = threading.Thread(target=pump, args=(server, node, "down"), daemon=True)
            back.start()
            pump(node, server, "up")
            back.join(1.0)

    def pump(source: socket.socket, target: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                counts[way] += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def listen() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=relay, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", listened)) as listener:
        threading.Thread(target=listen, daemon=True).start()
        yield counts
        listener.shutdown(socket.SHUT_RDWR)
