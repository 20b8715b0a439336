"""What `fultr deploy` asks a running SuperLink: who is connected, who may take part, which runs there are.

These are the calls of the `flwr` command, without starting a process for each. They use Flower's Control API of the
version that `fultr[flower]` pins.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fultr.core.errors import FultrError
from fultr.core.files import written_whole
from fultr.deploy.enrolment import enrol
from fultr.deploy.folder import Deployment
from fultr.deploy.keys import load_public_key, require_flower

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

_APP = """\
[project]
name = "fultr"
version = "1.0.0"
description = "Federated unbiased learning to rank"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fultr"
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "fultr.deploy.flower.server_app:app"
clientapp = "{node_app}"
"""
"""The app that a run consists of, without any code: the server has fultr installed, and nodes run no apps."""

_NO_APP = "fultr.deploy.flower.server_app:no_app"

_OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


@dataclass(frozen=True)
class Registered:
    """A node that the SuperLink knows: its number there, its key (PEM), whether it is connected, and since when."""

    number: int
    public_key: bytes
    connected: bool
    activated: float


@dataclass(frozen=True)
class Run:
    """A run: its number, its state (pending, starting, running, completed, failed, stopped), and why it failed."""

    number: int
    state: str
    details: str

    @property
    def active(self) -> bool:
        """Has it not ended yet?"""
        return self.state in ("pending", "starting", "running")


@contextmanager
def control(deployment: Deployment) -> Iterator[ControlHttpClient]:
    """The SuperLink's Control API; a one-line error if nobody answers there."""
    with _clear_errors(deployment) as authority:
        from flwr.supercore.control import ControlHttpClient

        with ControlHttpClient.from_server_address(deployment.local_address, False, authority, []) as client:
            yield client


@contextmanager
def _clear_errors(deployment: Deployment) -> Iterator[bytes]:
    """Turn connection errors into one line; yields the certificate to trust."""
    require_flower()
    os.environ.update(_OFFLINE, FLWR_HOME=str(deployment.superlink / "flwr"))
    import httpx

    address, authority = deployment.local_address, deployment.superlink / "ca.crt"
    try:
        yield authority.read_bytes()
    except httpx.HTTPStatusError as error:
        text = error.response.text.strip().split("\n")[0][:300]
        raise FultrError(f"the SuperLink at {address} refused the request: {text}") from None
    except httpx.ConnectError as error:
        if "CERTIFICATE" in str(error).upper():
            raise FultrError(f"{address}: {authority} did not sign its certificate: {error}") from None
        raise FultrError(f"no SuperLink answers at {address}: fultr deploy start {deployment.folder}") from None
    except httpx.HTTPError as error:
        raise FultrError(f"the SuperLink at {address} does not answer: {error}") from None
    except OSError as error:
        raise FultrError(f"{authority}: cannot be read: {error.strerror or error}") from None


def answers(deployment: Deployment) -> bool:
    """Does the SuperLink answer?"""
    try:
        with control(deployment) as client:
            registered_nodes(client)
    except FultrError:
        return False
    return True


def registered_nodes(client: ControlHttpClient) -> list[Registered]:
    """The nodes that the SuperLink knows."""
    from flwr.proto.control_pb2 import ListNodesRequest

    return [
        Registered(
            node.node_id,
            node.public_key,
            node.status == "online",
            datetime.fromisoformat(node.last_activated_at).timestamp() if node.last_activated_at else 0.0,
        )
        for node in client.ListNodes(ListNodesRequest()).nodes_info
        if node.status != "unregistered"
    ]


def register_nodes(deployment: Deployment) -> tuple[list[str], int]:
    """Register the keys in `superlink/node-keys` with the SuperLink, and no others.

    Returns:
        The names of the new nodes, and how many were removed permanently because their keys are gone.
    """
    from flwr.proto.control_pb2 import RegisterNodeRequest, UnregisterNodeRequest

    wanted = {load_public_key(node.public_key): node.name for node in deployment.nodes}
    if len(wanted) < len(deployment.nodes):
        raise FultrError(f"{deployment.superlink / 'node-keys'}: two nodes have the same key")
    with control(deployment) as client:
        known = registered_nodes(client)
        gone = [node for node in known if node.public_key not in wanted]
        for node in gone:
            client.UnregisterNode(UnregisterNodeRequest(node_id=node.number))
        new = wanted.keys() - {node.public_key for node in known}
    name = ""
    try:
        with control(deployment) as client:
            for key in new:
                name = wanted[key]
                client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
    except FultrError as error:
        raise FultrError(
            f"{name}: {error}; a key that was removed is never accepted again: delete "
            f"superlink/node-keys/{name}.pub and nodes/{name}, and run fultr deploy init"
        ) from None
    _write_directory(deployment, wanted)
    enrol(deployment.superlink, deployment.name)
    return sorted(wanted[key] for key in new), len(gone)


def _write_directory(deployment: Deployment, names: dict[bytes, str]) -> None:
    """Write down which device's number each node has: what a node says of itself does not count."""
    with control(deployment) as client:
        known = {node.public_key: node.number for node in registered_nodes(client)}
    numbers = {node.name: node.device for node in deployment.nodes}
    entries = {str(known[key]): {"name": name, "device": numbers[name]} for key, name in names.items() if key in known}
    with written_whole(deployment.directory) as temporary:
        temporary.write_text(json.dumps(entries, indent=1) + "\n")


def connected_nodes(deployment: Deployment) -> dict[str, float]:
    """The names of the nodes that are connected, and when each connected (seconds since 1970)."""
    with control(deployment) as client:
        known = {node.public_key: node for node in registered_nodes(client)}
    found = {node.name: known.get(load_public_key(node.public_key)) for node in deployment.nodes}
    return {name: node.activated for name, node in found.items() if node is not None and node.connected}


def list_runs(client: ControlHttpClient, number: int | None = None) -> list[Run]:
    """The runs that the SuperLink knows, the newest first; or one of them."""
    from flwr.proto.control_pb2 import ListRunsRequest

    found = client.ListRuns(ListRunsRequest(run_id=number) if number is not None else ListRunsRequest(limit=20))
    runs = sorted(found.run_dict.values(), key=lambda run: run.pending_at, reverse=True)
    return [Run(run.run_id, run.status.sub_status or run.status.status, run.status.details) for run in runs]


def submit_run(client: ControlHttpClient, settings: dict[str, Any], node_app: str = _NO_APP) -> int:
    """Hand fultr's server app with its settings to the SuperLink, which starts it; returns the run's number.

    Args:
        client: the SuperLink's Control API.
        settings: of the server app.
        node_app: what Flower's own nodes would run.
    """
    from flwr.cli.build import build_fab_from_files
    from flwr.common.serde import fab_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.supercore.fab import Fab

    project = f"{_APP.format(node_app=node_app)}\n[tool.flwr.app.config]\n{_toml(settings)}"
    content = build_fab_from_files({"pyproject.toml": project.encode()})[0]
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    answer = client.StartRun(StartRunRequest(fab=fab_to_proto(fab)))
    if not answer.HasField("run_id"):
        raise FultrError("the SuperLink did not start the run; see its log")
    return answer.run_id


def stop_run(client: ControlHttpClient, number: int) -> None:
    """Stop a run: its server app ends, and it counts as stopped."""
    from flwr.proto.control_pb2 import StopRunRequest

    client.StopRun(StopRunRequest(run_id=number))


def stop_active_runs(deployment: Deployment) -> list[int]:
    """Stop the runs that have not ended; returns their numbers."""
    with control(deployment) as client:
        active = [run.number for run in list_runs(client) if run.active]
        for number in active:
            stop_run(client, number)
    return active


def run_log(client: ControlHttpClient, number: int, patience: float = 5.0) -> str:
    """What a run that has ended wrote to its log, as far as the SuperLink has it."""
    from flwr.proto.control_pb2 import StreamLogsRequest

    parts, deadline = [], time.monotonic() + patience
    for part in client.StreamLogs(StreamLogsRequest(run_id=number, after_timestamp=0.0)):
        parts.append(part.log_output)
        if time.monotonic() > deadline:
            break
    return "".join(parts)


def _toml(settings: dict[str, Any]) -> str:
    """Flat settings as TOML lines.

    >>> print(_toml({"rounds": 3, "privacy.on": True, "state-dir": "a b"}), end="")
    rounds = 3
    "privacy.on" = true
    "state-dir" = "a b"
    """
    lines = []
    for key, value in settings.items():
        name = key if key.isidentifier() else json.dumps(key, ensure_ascii=False)
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)
        lines.append(f"{name} = {text}\n")
    return "".join(lines)
