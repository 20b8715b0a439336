"""What a deployment costs: seconds a round, memory and bytes of a node, against the same rounds in one process."""

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

import numpy as np

from fultr.cli.console import say
from fultr.data.load import load
from fultr.deploy.folder import Deployment, free_port, init_deployment, load_deployment
from fultr.deploy.processes import memory
from fultr.deploy.services import running, service_processes
from fultr.deploy.training import follow, read_settings, submit
from fultr.device.local import LocalDevices
from fultr.federated.federate import federate
from fultr.federated.federation import fill_in
from fultr.study.fill_devices import fill_devices

_DATA = "synthetic"


def deployment_rounds(nodes: tuple[int, ...] = (3, 5, 10), rounds: int = 6) -> list[tuple[str, float, str, str]]:
    """Rounds of federations on this machine, over TLS: SuperLink and all nodes share its processors.

    Args:
        nodes: how many, of each federation.
        rounds: of each; the first, in which devices introduce themselves, is not counted.

    Returns:
        What was measured, its value, its unit, and what is wanted.
    """
    figures = []
    for count in nodes:
        say(f"deployment: {count} nodes")
        with tempfile.TemporaryDirectory(prefix="fultr-bench-") as made:
            figures += _measured(Path(made) / "federation", count, rounds)
    return figures


def _measured(folder: Path, nodes: int, rounds: int) -> list[tuple[str, float, str, str]]:
    init_deployment(folder, nodes)
    data = load(_DATA)
    logs = {u: folder / "nodes" / f"node-{u + 1}" / "device.db" for u in range(nodes)}
    fill_devices(list(logs.values()), data)
    chosen = {"features": data.train.width, "displayed": 5, "rounds": rounds, "least_devices": nodes}
    fill_in(folder / "federation.toml", chosen, replace=True)
    with _counted(folder) as sent, running(folder, 300.0) as deployment, _watched(deployment) as most:
        run, new = submit(folder)
        marks: list[tuple[int, int, float, float]] = []  # bytes to and from the server, processor seconds, time
        follow(folder, run, new, lambda _: marks.append((sent["up"], sent["down"], _busy(), time.monotonic())))
    reports = [json.loads(line) for line in (folder / "state" / "progress.jsonl").read_text().splitlines()]
    seconds = float(np.median([report["seconds"] for report in reports[1:]]))
    up, down, busy, passed = np.subtract(marks[-1], marks[0])
    settings, _ = read_settings(load_deployment(folder))
    began = time.perf_counter()
    federate(LocalDevices(logs), settings, folder / "local")
    local = (time.perf_counter() - began) / rounds
    messages = (len(marks) - 1) * nodes
    name = f"{nodes} nodes: "
    return [
        (f"{name}a round, median", seconds, "s", ""),
        ("  the same in one process", local, "s", ""),
        ("  processors busy", 100 * busy / passed, "% of one", ""),
        ("  processor time per device and round", busy / messages, "s", ""),
        ("  memory of a node, most", most["node-1"] / 1e6, "MB", ""),
        ("  while it waits", most["node-1 waiting"] / 1e6, "MB", ""),
        ("  memory of the SuperLink with its server app, most", most["superlink"] / 1e6, "MB", ""),
        ("  sent by a device in a round, TLS and polls included", up / messages / 1e3, "kB", ""),
        ("  received", down / messages / 1e3, "kB", ""),
    ]


def _busy() -> float:
    """Seconds that the machine's processors have worked (Linux)."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / 100


@contextmanager
def _watched(deployment: Deployment) -> Iterator[dict[str, int]]:
    """The most memory that the first node and the SuperLink take within the block, and what the node takes before."""
    most = {"node-1 waiting": _memory(deployment, "node-1"), "node-1": 0, "superlink": 0}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            for name in ("node-1", "superlink"):
                most[name] = max(most[name], _memory(deployment, name))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def _memory(deployment: Deployment, name: str) -> int:
    return sum(memory(process) for process in service_processes(deployment, name))


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
