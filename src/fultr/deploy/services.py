"""Start, watch and stop a federation on one machine: the SuperLink, and the nodes whose folders are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fultr.core.errors import FultrError
from fultr.core.files import locked, make_folder
from fultr.deploy.control import (
    Run,
    answers,
    connected_nodes,
    control,
    list_runs,
    register_nodes,
    stop_active_runs,
)
from fultr.deploy.folder import Deployment, Node, joined_address, load_deployment, port_is_free
from fultr.deploy.history import DeviceHistory, read_history
from fultr.deploy.keys import days_left, require_flower
from fultr.deploy.processes import (
    Process,
    end,
    is_running,
    marked,
    memory,
    process_now,
    read_record,
    require_processes,
    write_record,
)
from fultr.deploy.training import state_folder
from fultr.device.prepare import prepare, prepared

START_SECONDS = 120.0  # for the SuperLink to answer, and again for the nodes to connect
_STOP_SECONDS = 10.0
_LOG_BYTES = 20_000_000  # a larger log file is set aside at the next start


@dataclass(frozen=True)
class ServiceStatus:
    """The state of the SuperLink or of a node.

    Attributes:
        name: `superlink`, or the node's name.
        state: `running`; `stopped`; `died` (it was started and is gone); `elsewhere` (it runs on another machine, or
            was started by other means).
        process: its process id, if it runs here.
        memory: bytes, including its helper processes.
        connected: is the node connected, or does the SuperLink answer?
        device: the number of the node's device.
    """

    name: str
    state: str
    process: int | None
    memory: int
    connected: bool
    device: int | None = None


@dataclass(frozen=True)
class Status:
    """The state of a federation.

    Attributes:
        superlink: the SuperLink.
        nodes: in the order of their numbers.
        devices: what became of asking them so far, and devices whose nodes were removed.
        run: the latest.
        certificate_days: until the server's certificate expires.
    """

    superlink: ServiceStatus
    nodes: tuple[ServiceStatus, ...]
    devices: tuple[DeviceHistory, ...]
    run: Run | None
    certificate_days: float


def start(
    folder: Path, patience: float = START_SECONDS, say: Callable[[str], None] = lambda text: None
) -> tuple[list[str], Deployment]:
    """Start what is not running yet, register the nodes' keys, and wait until all nodes here are connected.

    A node that cannot be started or does not connect keeps nobody else from running: it is stopped, and named in an
    error once all others are connected. If the SuperLink fails, or every node, whatever this call started is stopped.

    Args:
        folder: the deployment's.
        patience: seconds for the SuperLink to answer, and again for the nodes to connect.
        say: called with what is being done.

    Returns:
        The names of what was started (`superlink`, nodes; none if all were running), and the deployment.
    """
    require_flower()
    require_processes()
    deployment = load_deployment(folder)
    begun: list[str] = []
    with _locked(deployment):
        try:
            if _running(deployment, "superlink") is None and not answers(deployment):  # systemd may be running it
                _check_port(deployment.host, deployment.port, deployment.superlink / "superlink.env")
                say(f"starting the SuperLink at {deployment.local_address}")
                _begin(deployment, "superlink", deployment.superlink)
                begun.append("superlink")
            _wait(deployment, lambda: [] if answers(deployment) else ["superlink"], "answer", patience)
            if "superlink" in begun:
                stop_active_runs(deployment)  # their server apps ended with the SuperLink that ran them
            register_nodes(deployment)
            failed = _start_nodes(deployment, begun, patience, say)
            if failed and len(failed) == sum(node.here for node in deployment.nodes):
                raise FultrError(next(iter(failed.values())))
        except BaseException:
            _end_services(deployment, begun)
            raise
    if failed:
        others = "; the others are running" + (f", and {len(failed) - 1} more failed" if len(failed) > 1 else "")
        words, _, log = next(iter(failed.values())).partition("; ")
        raise FultrError(f"{words}{others}; {log}")
    return begun, deployment


def _start_nodes(
    deployment: Deployment, begun: list[str], patience: float, say: Callable[[str], None]
) -> dict[str, str]:
    """Start the nodes here that are not running, and wait until they are connected; why some failed, by name."""
    here, failed = [node for node in deployment.nodes if node.here], dict[str, str]()
    if any(_running(deployment, node.name) is None for node in here) and not prepared():
        say("compiling what trains, once for all nodes here")
        prepare()  # where it fails, each node tries by itself
    since = time.time()
    for node in here:
        if _running(deployment, node.name) is None:
            say(f"starting {node.name}")
            try:
                _begin(deployment, node.name, node.folder)
            except FultrError as error:
                failed[node.name] = str(error)
            else:
                begun.append(node.name)
    deadline = time.monotonic() + patience
    while pending := [n for n in _unconnected(deployment, here, begun, since) if n not in failed]:
        for name in pending:
            ended = _running(deployment, name) is None
            if ended or time.monotonic() > deadline:
                failed[name] = _failure(deployment, name, ended, "connect", patience)
        time.sleep(0.2)
    bad = [name for name in failed if name in begun]
    _end_services(deployment, bad)
    begun[:] = [name for name in begun if name not in bad]
    return failed


def stop(folder: Path, say: Callable[[str], None] = lambda text: None) -> list[str]:
    """Stop what `start` started, and nothing else; returns the names of what was running."""
    deployment = load_deployment(folder)
    with _locked(deployment):
        noted = [path.stem for path in (deployment.folder / "run").glob("*.json")]
        running = [name for name in noted if _running(deployment, name) is not None]
        if "superlink" in running:
            with suppress(FultrError):  # so that no run still counts as running
                for number in stop_active_runs(deployment):
                    say(f"stopped run {number}")
        _end_services(deployment, noted)
        end(marked(_marks(deployment)), _STOP_SECONDS)  # helpers of crashed services
    return sorted(running)


def status(folder: Path) -> Status:
    """The state of a federation, as seen from this machine."""
    deployment = load_deployment(folder)
    connected: dict[str, float] = {}
    run, up = None, False
    with suppress(FultrError):
        connected = connected_nodes(deployment)
        up = True
        with control(deployment) as client:
            run = next(iter(list_runs(client)), None)
    nodes = [(_service(deployment, node.name, node.name in connected), node.device) for node in deployment.nodes]
    return Status(
        _service(deployment, "superlink", up),
        tuple(replace(service, device=device) for service, device in nodes),
        read_history(state_folder(deployment)).devices(node.device for node in deployment.nodes),
        run,
        days_left(deployment.superlink / "server.crt"),
    )


@contextmanager
def running(folder: Path, patience: float = START_SECONDS) -> Iterator[Deployment]:
    """A federation that runs during the block, and is stopped at its end whatever happens."""
    try:
        yield start(folder, patience)[1]
    finally:
        stop(folder)


def service_process(deployment: Deployment, name: str) -> Process:
    """The running process of `superlink` or of a node that `start` started."""
    process = _running(deployment, name)
    if process is None:
        raise FultrError(f"{deployment.folder}: {name} is not running: fultr deploy start {deployment.folder}")
    return process


def service_processes(deployment: Deployment, name: str) -> list[Process]:
    """The process of the SuperLink or of a node with all its helpers (on Linux)."""
    return marked(_marks(deployment, name))


def log_tail(path: Path, lines: int = 12) -> str:
    """The end of a log file, without colour codes and empty lines."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 20_000))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return "(no log)"
    kept = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line.strip()]
    return "\n".join(f"  {line[:300]}" for line in kept[-lines:])


def _service(deployment: Deployment, name: str, connected: bool) -> ServiceStatus:
    process = _running(deployment, name)
    if process is not None:
        used = sum(memory(each) for each in service_processes(deployment, name)) or memory(process)
        return ServiceStatus(name, "running", process.number, used, connected)
    died = _record(deployment, name).exists()
    return ServiceStatus(name, "died" if died else "elsewhere" if connected else "stopped", None, 0, connected)


def _begin(deployment: Deployment, name: str, folder: Path) -> None:
    """Start a script, detached from this process, its output going to a log file."""
    end(service_processes(deployment, name), 3.0)  # helpers of a killed service survive for up to a minute
    for made in (deployment.folder / "run", deployment.folder / "logs"):
        make_folder(made)
    log, script = deployment.log(name), folder / "start.sh"
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    marks = dict(mark.split("=", 1) for mark in _marks(deployment, name))
    try:
        with log.open("ab") as output:
            os.chmod(log, 0o600)  # noqa: PTH101
            child = subprocess.Popen(
                ["/bin/sh", str(script)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "FULTR_PYTHON": sys.executable, **marks},
                start_new_session=True,
            )
    except OSError as error:
        raise FultrError(f"{script}: cannot be run: {error.strerror}") from None
    child.returncode = 0  # it outlives this process, which does not wait for it
    process = process_now(child.pid)
    if process is None:
        raise FultrError(f"{name} ended at once; {log} ends with\n{log_tail(log)}")
    write_record(_record(deployment, name), process)


def _wait(deployment: Deployment, pending: Callable[[], list[str]], what: str, patience: float) -> None:
    """Wait until all services that should answer or connect do so, or one of them ends."""
    deadline = time.monotonic() + patience
    while names := pending():
        ended = [name for name in names if _running(deployment, name) is None]
        if ended or time.monotonic() > deadline:
            raise FultrError(_failure(deployment, (ended or names)[0], bool(ended), what, patience))
        time.sleep(0.2)


def _failure(deployment: Deployment, name: str, ended: bool, what: str, patience: float) -> str:
    failed = "ended before it could" if ended else f"did not, within {patience:.0f} s,"
    log = deployment.log(name)
    return f"{name} {failed} {what}; {log} ends with\n{log_tail(log)}"


def _unconnected(deployment: Deployment, nodes: list[Node], begun: list[str], since: float) -> list[str]:
    """The nodes that are not connected; a restarted one must have called since: killed ones still count for a while."""
    try:
        connected = connected_nodes(deployment)
    except FultrError:
        return ["superlink"]
    return [node.name for node in nodes if connected.get(node.name, 0.0) < (since if node.name in begun else 1.0)]


def _end_services(deployment: Deployment, names: list[str]) -> None:
    """End services, nodes before the SuperLink so that they can sign off."""
    for group in ([name for name in names if name != "superlink"], [name for name in names if name == "superlink"]):
        noted = [read_record(_record(deployment, name)) for name in group]
        helpers = [process for name in group for process in service_processes(deployment, name)]
        end([process for process in noted if process is not None], _STOP_SECONDS)
        end(helpers, 3.0)
        for name in group:
            _record(deployment, name).unlink(missing_ok=True)


def _running(deployment: Deployment, name: str) -> Process | None:
    process = read_record(_record(deployment, name))
    return process if process is not None and is_running(process) else None


def _record(deployment: Deployment, name: str) -> Path:
    return deployment.folder / "run" / f"{name}.json"


def _marks(deployment: Deployment, name: str | None = None) -> list[str]:
    """Environment variables of everything that `start` started, and of all processes started by those."""
    marks = [f"FULTR_DEPLOYMENT={deployment.folder}"]
    return marks if name is None else [*marks, f"FULTR_SERVICE={name}"]


def _check_port(host: str, port: int, path: Path) -> None:
    if not port_is_free(host, port):
        raise FultrError(
            f"{path}: PORT={port}: another program listens on {joined_address(host, port)}; change it there"
        )


def _locked(deployment: Deployment) -> AbstractContextManager[None]:
    """One `start` or `stop` at a time."""
    make_folder(deployment.folder / "run")
    busy = f"{deployment.folder}: another fultr deploy start or stop is running"
    return locked(deployment.folder / "run" / "lock", busy)
