"""Attacks on devices and on the server, with real processes: by a cheating server, other devices, and strangers."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pickle
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from help.deployments import DISPLAYED, FEATURES, allow, small_deployment, time_limit

from fultr.device.log import DeviceLog
from fultr.federated.budget import model_of
from fultr.federated.federate import task_of
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server
from fultr.federated.messages import Task
from fultr.federated.wire import REFUSAL, task_bytes
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Versions

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

import httpx
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.fab import Fab

from fultr.deploy.control import control, list_runs
from fultr.deploy.flower.fleet import connected
from fultr.deploy.flower.internals import called
from fultr.deploy.folder import Deployment
from fultr.deploy.keys import load_node_key
from fultr.deploy.parcels import REPLY
from fultr.deploy.processes import memory
from fultr.deploy.release import promote
from fultr.deploy.services import running, service_process, service_processes

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

# A server that cheats: its client app gives away whatever the node can read, and its server app sends what it likes.
HOSTILE = """
import json, os, pickle, time
from pathlib import Path
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client_app, server_app = ClientApp(), ServerApp()
PLACE = Path({place!r})
(PLACE / f"imported-{{os.getpid()}}").write_text(open("/proc/self/cmdline").read())


@client_app.train()
def train(message, context):
    (PLACE / "executed").write_text("yes")
    files = {{str(path): path.read_bytes() for path in Path(".").iterdir() if path.is_file()}}
    return Message(RecordDict({{"all": ConfigRecord(files)}}), reply_to=message)


@server_app.main()
def main(grid, context):
    from fultr.deploy.flower.internals import fetch_replies, record_of
    contents = pickle.loads((PLACE / "contents").read_bytes())
    node = int((PLACE / "node").read_text())
    replies = []
    for content in contents:
        record = RecordDict({{"config": ConfigRecord({{"a": 1}})}}) if content is None else record_of(content)
        (sent,) = grid.push_messages([Message(record, node, MessageType.TRAIN, ttl=60)])
        (PLACE / "sent").write_text(sent)
        found, deadline = [], time.monotonic() + 60
        while not found and time.monotonic() < deadline:
            time.sleep(0.1)
            found = fetch_replies(grid, [sent])
        replies.append(found[0][1] if found else None)
    (PLACE / "replies").write_bytes(pickle.dumps(replies))
"""
PROJECT = """
[project]
name = "hostile"
version = "1.0.0"
description = "Takes everything"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "somebody"
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "hostile:server_app"
clientapp = "hostile:client_app"
"""


@pytest.fixture(scope="module")
def federation(tmp_path_factory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("attacked") / "fed"
    made = small_deployment(folder)
    for node in made.nodes:
        toml = node.folder / "node.toml"
        toml.write_text(toml.read_text().replace("ranker_poll = 600.0", "ranker_poll = 0.5"))
        toml.write_text(toml.read_text().replace("slowest_poll = 15.0", "slowest_poll = 1.0"))
    with time_limit(500), running(folder, 120) as deployment:
        wait_for(lambda: all((node.folder / "number").exists() for node in made.nodes))
        yield deployment


def attack(deployment: Deployment, place: Path, contents: list[bytes | None]) -> list[bytes | str | None]:
    """What the first node replies to messages of a foreign app."""
    place.mkdir(exist_ok=True)
    (place / "contents").write_bytes(pickle.dumps(contents))
    (place / "node").write_text((deployment.nodes[0].folder / "number").read_text())
    files = {"pyproject.toml": PROJECT.encode(), "hostile.py": HOSTILE.format(place=str(place)).encode()}
    content = build_fab_from_files(files)[0]
    with control(deployment) as client:
        fab = fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {}))
        number = client.StartRun(StartRunRequest(fab=fab)).run_id
        while list_runs(client, number)[0].active:
            time.sleep(0.2)
    return pickle.loads((place / "replies").read_bytes())


def history(deployment: Deployment) -> list[tuple[str, str]]:
    """Outcome and reason of all that came to the first device."""
    with DeviceLog.open(deployment.nodes[0].folder / "device.db", retention=None) as log:
        return [(entry.outcome, entry.reason) for entry in log.history().entries]


def task(**others: object) -> Task:
    settings = FederationSettings.of(
        {"features": FEATURES, "displayed": DISPLAYED, "propensity": "none", "judge": False, **others}
    )
    first = Server.initial(settings.algorithm(), model_of(settings), model_of(settings).initial(), DISPLAYED)
    return task_of(settings, 0, first)


def test_a_foreign_bundle_gets_nothing_and_is_reported(federation, tmp_path):
    """Nodes neither load nor run what a server ships; the owner sees that something came."""
    replies = attack(federation, tmp_path / "place", [None, None])
    assert replies == [REFUSAL, REFUSAL]
    assert not (tmp_path / "place" / "executed").exists()
    loaders = [path.read_text() for path in (tmp_path / "place").glob("imported-*")]
    assert loaders  # the server runs its own app
    assert not any("node" in loader.split("\0") for loader in loaders)
    assert not list(federation.nodes[0].folder.rglob("hostile*"))
    assert history(federation)[-2:] == [("not a task", "it is another program's message")] * 2


def with_field(content: bytes, **fields: object) -> bytes:
    """A task with more to say than a task has."""
    size = int.from_bytes(content[:4], "big")
    head = json.loads(content[4 : 4 + size])
    head["task"].update(fields)
    text = json.dumps(head).encode()
    return len(text).to_bytes(4, "big") + text + content[4 + size :]


def test_narrow_tasks_learn_nothing_beyond_one_answer(federation, tmp_path):
    """Windows of time, other K, other shares: refused. What is answered comes from one set, also after a new click."""
    plain = task_bytes(task())
    ids = [i / 10 for i in range(10)]
    narrow = [with_field(plain, since=1e9 + i, until=1e9 + i + 1) for i in range(10)]
    narrow += [with_field(plain, held_out=share, seed=7) for share in ids]
    narrow += [with_field(plain, least_clicks=0), with_field(plain, version="v0001")]
    narrow += [task_bytes(replace(task(displayed=k), features=FEATURES)) for k in (1, 2)]
    narrow += [task_bytes(task(normalised=False)), task_bytes(task(feature_names="a,b,c,d"))]
    replies = attack(federation, tmp_path / "place", [plain, *narrow, plain])
    first, *refused, last = replies
    assert refused == [REFUSAL] * len(narrow)
    assert isinstance(first, bytes)
    assert first == last != REFUSAL
    with DeviceLog.open(federation.nodes[0].folder / "device.db") as log:
        shown = log.log_impression("secret", np.full((DISPLAYED, FEATURES), 0.987, np.float32))
        log.log_click(shown, 2)
    again = attack(federation, tmp_path / "place", [plain, plain])
    assert again == [first, first]  # one new click changes nothing that leaves the device
    with DeviceLog.open(federation.nodes[0].folder / "device.db") as log:
        assert sum(log.forget(query=query) for query in range(5)) == 5  # of which some were trained on
    gone = attack(federation, tmp_path / "place", [plain])
    assert gone == [REFUSAL]  # nor does one less: the difference would be that impression
    assert "closed" in history(federation)[-1][1] or "batch" in history(federation)[-1][1]


def test_a_budget_is_the_devices_own(federation, tmp_path):
    with DeviceLog.open(federation.nodes[0].folder / "device.db") as log:
        rng = np.random.default_rng(9)
        for i in range(100):  # a new batch
            shown = log.log_impression(1000 + i, rng.random((DISPLAYED, FEATURES)).astype(np.float32))
            log.log_click(shown, 1)
    answered = sum(outcome == "answered" for outcome, _ in history(federation))
    allow(federation.nodes[0].folder, answers_a_day=answered + 2)
    try:
        replies = attack(federation, tmp_path / "place", [task_bytes(task())] * 5)
    finally:
        allow(federation.nodes[0].folder, answers_a_day=10**6)
    assert [reply == REFUSAL for reply in replies] == [False, False, True, True, True]


def test_a_judgement_obeys_the_minimum(federation, tmp_path):
    """With more held-out clicks asked for than there are, a judgement tells nothing; alone, it is refused."""
    judging = replace(task(), judge=True)
    allow(federation.nodes[0].folder, least_clicks=100)  # 300 clicks, a fifth of them held out
    try:
        both, alone = attack(
            federation, tmp_path / "place", [task_bytes(judging), task_bytes(replace(judging, train=False))]
        )
    finally:
        allow(federation.nodes[0].folder, least_clicks=20)
    assert isinstance(both, bytes)
    assert both == REFUSAL or both.endswith(bytes(24))  # three zeros
    assert alone == REFUSAL


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="becomes another user")
def test_another_user_of_the_device_can_do_nothing_to_a_node():
    place = Path("/tmp") / f"fultr-attack-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        with time_limit(120):
            deployment = small_deployment(place / "fed", nodes=1, least_replies=1, least_devices=1)
            with running(deployment.folder, 60):
                node = deployment.nodes[0].folder
                number = service_process(deployment, "node-1").number
                tries = [f"cat {node / name}" for name in ("node.key", "device.db", "node.toml", "start.sh")]
                tries += [f"kill -0 {number}", f"cat /proc/{number}/environ", f"ls /proc/{number}/fd/", f"ls {node}"]
                for command in tries:
                    tried = subprocess.run(
                        ["/bin/sh", "-c", command], user=65534, capture_output=True, cwd="/", check=False
                    )
                    assert tried.returncode != 0, command
                    assert tried.stdout == b"", command
                inodes = {str(link.readlink()) for link in Path(f"/proc/{number}/fd").iterdir() if link.is_symlink()}
                for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
                    fields = line.split()
                    assert fields[3] != "0A" or f"socket:[{fields[9]}]" not in inodes  # it listens nowhere
    finally:
        shutil.rmtree(place)


def sent_until_refused(deployment: Deployment, headers: bytes, chunked: bool) -> tuple[int, bytes]:
    """How many bytes of a huge body the SuperLink takes, and the beginning of what it answers."""
    context = ssl.create_default_context(cafile=str(deployment.superlink / "ca.crt"))
    taken, part = 0, bytes(1_000_000)
    with (
        socket.create_connection(("127.0.0.1", deployment.port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as link,
    ):
        link.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n")
        with suppress(OSError):
            while taken < 1_500_000_000:
                link.sendall(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                taken += len(part)
        answer = b""
        with suppress(OSError):
            answer = link.recv(200)
    return taken, answer


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_body_without_a_key_takes_no_memory(federation, chunked):
    process = service_process(federation, "superlink")
    before = memory(process)
    length = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: 1500000000\r\n"
    taken, _ = sent_until_refused(federation, b"Content-Type: application/x-protobuf\r\n" + length, chunked)
    peak = next(
        int(line.split()[1]) * 1024
        for line in Path(f"/proc/{process.number}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert taken < 1_500_000_000 or memory(process) - before < 50_000_000
    assert memory(process) - before < 50_000_000
    assert peak < 700_000_000
    with control(federation) as client:
        list_runs(client)  # it is alive and well


def test_a_device_cannot_reply_for_another(federation, tmp_path):
    """With its own key in another's name, or with another's name and number: refused."""
    first, second = federation.nodes
    other = int((second.folder / "number").read_text())
    key, authority = load_node_key(first.folder / "node.key"), (first.folder / "ca.crt").read_bytes()
    own = int((first.folder / "number").read_text())
    os.kill(service_process(federation, "node-1").number, signal.SIGSTOP)  # it waits meanwhile
    try:
        with connected(federation.local_address, authority, key, own) as fleet:
            for claimed in (own, other):
                request = PushMessagesRequest(node=Node(node_id=claimed))
                message = request.messages_list.add()
                message.metadata.src_node_id, message.metadata.reply_to_message_id = other, "0" * 64
                request.message_object_trees.add().object_id = "0" * 64
                with pytest.raises(httpx.HTTPStatusError) as refused:
                    fleet._client.PushMessages(request)
                assert refused.value.response.status_code == 403
                with pytest.raises(httpx.HTTPStatusError) as refused:
                    called(fleet._client, REPLY, [request.SerializeToString()])
                assert refused.value.response.status_code == 403
    finally:
        os.kill(service_process(federation, "node-1").number, signal.SIGCONT)


def test_a_reply_counts_once(federation, tmp_path):
    """The first one: the same again, or another to the same message, changes nothing."""
    first = federation.nodes[0]
    key, authority = load_node_key(first.folder / "node.key"), (first.folder / "ca.crt").read_bytes()
    own = int((first.folder / "number").read_text())
    os.kill(service_process(federation, "node-1").number, signal.SIGSTOP)
    try:
        with (
            connected(federation.local_address, authority, key, own) as fleet,
            ThreadPoolExecutor(1) as pool,
        ):
            attacking = pool.submit(attack, federation, tmp_path / "place", [task_bytes(task())])
            while (letter := fleet.receive()) is None:
                time.sleep(0.1)
            for content in (b"first", b"first", b"second"):
                with suppress(httpx.HTTPStatusError):
                    fleet.send(letter, content, 0.0)
            assert attacking.result() == [b"first"]
    finally:
        os.kill(service_process(federation, "node-1").number, signal.SIGCONT)


def test_forged_and_older_releases_are_refused(federation):
    state = federation.folder / "state"
    versions = Versions(state / "versions")
    made = [
        versions.write(Ranker(np.full(FEATURES, w, np.float32), np.arange(1, FEATURES + 1)), parent=None,
                       configuration={}, metrics={}).name
        for w in (1.0, 2.0)
    ]  # fmt: skip
    current = federation.nodes[1].folder / "rankers" / "current"
    promote(federation.folder, made[0])
    older = (state / "release.json").read_bytes()
    wait_for(lambda: current.exists() and current.read_text().strip() == made[0])
    promote(federation.folder, made[1])
    wait_for(lambda: current.read_text().strip() == made[1])
    newest = (state / "release.json").read_bytes()
    log = federation.log("node-2")
    for bad, words in ((older, "older than"), (newest.replace(made[1].encode(), made[0].encode()), "was not signed")):
        begun = len(log.read_text())
        (state / "release.json").write_bytes(bad)
        wait_for(lambda begun=begun, words=words: words in log.read_text()[begun:])
        assert current.read_text().strip() == made[1]
    (state / "release.json").write_bytes(newest)


def wait_for(true) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_all_of_it_is_still_running(federation):
    for name in ("superlink", "node-1", "node-2"):
        assert service_processes(federation, name)
