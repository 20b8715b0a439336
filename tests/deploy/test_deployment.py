"""`fultr deploy`: real processes, started, watched, killed and stopped."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from help.commands import FULTR, fultr
from help.deployments import fill_log, small_deployment, time_limit, write_settings

from fultr.core.errors import FultrError
from fultr.deploy import keys
from fultr.deploy.control import connected_nodes, control, register_nodes, registered_nodes
from fultr.deploy.folder import Deployment, free_port, init_deployment, load_deployment
from fultr.deploy.keys import load_public_key, write_node_key
from fultr.deploy.processes import Process, end, is_running, process_now, write_record
from fultr.deploy.services import log_tail, running, service_process, service_processes, start, status, stop
from fultr.deploy.training import TrainingProgress, follow, submit

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

import httpx

# Flower's HTTP client leaves a socket behind when the other side dies in the middle of a handshake.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
SERVICES = ("superlink", "node-1", "node-2")


@pytest.mark.process
def test_recycled_number_is_never_signalled(tmp_path):
    init_deployment(tmp_path / "fed", 1)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        now = process_now(other.pid)
        assert now is not None
        (tmp_path / "fed" / "run").mkdir()
        write_record(tmp_path / "fed" / "run" / "superlink.json", Process(other.pid, "an earlier one"))
        assert status(tmp_path / "fed").superlink.state == "died"
        assert stop(tmp_path / "fed") == []
        assert is_running(now)
        assert status(tmp_path / "fed").superlink.state == "stopped"
        assert end([now], 10.0) is False
        assert not is_running(now)
    finally:
        other.kill()
        other.wait()


@pytest.mark.process
def test_stubborn_process_is_ended():
    ignoring = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", ignoring], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        now = process_now(other.pid)
        assert now is not None
        assert end([now], 0.3) is True


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_taken_port_is_named(tmp_path, monkeypatch, answer):
    """By a program that accepts and says nothing, one that hangs up, and one that does not speak TLS."""
    client = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **given: client(**{**given, "timeout": 0.5}))  # instead of 30 s
    init_deployment(tmp_path / "fed", 1)
    deployment = load_deployment(tmp_path / "fed")
    expected = rf"superlink.env: PORT={deployment.port}: another program listens on"
    with socket.create_server(("127.0.0.1", deployment.port)) as other:

        def reply() -> None:
            with other.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(answer)

        if answer is not None:
            threading.Thread(target=reply, daemon=True).start()
        with pytest.raises(FultrError, match=expected):
            start(tmp_path / "fed")
    assert free_port() in range(20_000, 32_000)


@pytest.mark.process
def test_spoilt_certificate_shows_the_end_of_the_right_log(tmp_path):
    init_deployment(tmp_path / "fed", 1)
    (tmp_path / "fed/superlink/server.crt").write_text("not a certificate")
    with time_limit(120), pytest.raises(FultrError, match=r"(?s)superlink ended .*superlink.log ends with\n.*SSL"):
        start(tmp_path / "fed")
    assert stop(tmp_path / "fed") == []


def node_ends(folder: Path) -> str:
    """What a node says that ends by itself."""
    done = subprocess.run([FULTR, "node", str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    return done.stderr


@pytest.mark.process
def test_an_expired_certificate_is_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(keys, "_SKEW", datetime.timedelta(days=9))
    monkeypatch.setattr(keys, "SERVER_DAYS", -1)
    init_deployment(tmp_path / "fed", 1)
    deployment = load_deployment(tmp_path / "fed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(deployment.superlink / "server.crt", deployment.superlink / "server.key")

    def serve(listener: socket.socket) -> None:
        with suppress(OSError), listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True):
            pass

    with socket.create_server(("127.0.0.1", deployment.port)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        assert "the SuperLink's certificate has expired: renew it there" in node_ends(deployment.nodes[0].folder)
    told = fultr("deploy", "status", deployment.folder)
    assert told.code == 2
    assert "server.crt: has expired; README.md says how to renew it" in told.err


# A federation of real processes: started once, used by all tests below


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A deployment with small logs, whatever of it runs stopped in the end."""
    place = tmp_path_factory.mktemp("real") / "fed"
    small_deployment(place)
    try:
        yield place
    finally:
        stop(place)


@pytest.fixture
def federation(folder) -> Deployment:
    """The federation, all of it running."""
    with time_limit(300):
        return start(folder)[1]


def ask(deployment: Deployment, path: str, headers: dict[str, str]) -> int:
    """The status of the SuperLink's answer to a request."""
    context = ssl.create_default_context(cafile=str(deployment.superlink / "ca.crt"))
    request = urllib.request.Request(
        f"https://{deployment.local_address}{path}", data=b"", headers=headers, method="POST"
    )
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.deployment
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_listens_or_calls_beyond_this_machine(federation):
    own = {process.number for name in SERVICES for process in service_processes(federation, name)}
    inodes, links = set(), list[Path]()
    for number in own:
        with suppress(OSError):  # of a helper that has ended
            links = list(Path(f"/proc/{number}/fd").iterdir())
        for link in links:
            try:
                target = os.readlink(link)  # noqa: PTH115
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    listening = []
    for table, loopback in (("tcp", "0100007F"), ("tcp6", "00000000000000000000000001000000")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes:
                local, remote = fields[1].split(":"), fields[2].split(":")
                assert local[0].endswith(loopback), line
                assert fields[3] == "0A" or remote[0].endswith(loopback), line
                if fields[3] == "0A":
                    listening.append(int(local[1], 16))
    assert listening == [federation.port]  # nodes call, and are never called


@pytest.mark.deployment
def test_superlink_is_closed_to_other_machines(federation):
    # It believes this machine's own word on whose behalf a request comes.
    other = {"X-Forwarded-For": "192.0.2.9"}
    assert ask(federation, "/v1/control/list-runs", other) == 403
    assert ask(federation, "/v1/runtime/acquire-task", other) == 403
    assert ask(federation, "/v1/fleet/pull-messages", other) not in (200, 403)  # turned away by Flower: no key
    assert ask(federation, "/v1/control/list-runs", {}) != 403


@pytest.mark.deployment
def test_unregistered_key_is_turned_away(federation, tmp_path):
    stranger = tmp_path / "stranger"
    shutil.copytree(federation.nodes[0].folder, stranger)
    (stranger / "node.key").unlink()
    write_node_key(stranger / "node.key", stranger / "node.pub", "stranger")
    assert "the SuperLink does not admit this node (status 4" in node_ends(stranger)
    with control(federation) as client:
        known = {node.public_key for node in registered_nodes(client)}
    assert load_public_key(stranger / "node.pub") not in known


@pytest.mark.deployment
def test_a_node_that_runs_is_not_started_twice(federation):
    assert node_ends(federation.nodes[0].folder).endswith("node-1: this node is running already\n")


@pytest.mark.deployment
def test_a_node_trusts_its_own_authority_alone(federation, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(federation.nodes[0].folder, other)
    init_deployment(tmp_path / "fed", 1)
    shutil.copy(tmp_path / "fed" / "ca" / "ca.crt", other / "ca.crt")
    assert "the SuperLink's certificate is not trusted" in node_ends(other)


@pytest.mark.deployment
def test_training_runs_and_goes_on_after_the_superlink_was_killed(federation):
    def rounds() -> int:
        path = federation.folder / "long" / "progress.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    with time_limit(300):
        write_settings(federation.folder, "long", rounds=1000, least_devices=2)
        number, new = submit(federation.folder)
        assert new
        assert submit(federation.folder) == (number, False)  # not twice
        while not rounds():
            time.sleep(0.1)
        killed = service_process(federation, "superlink")
        os.kill(killed.number, signal.SIGKILL)
        while is_running(killed):
            time.sleep(0.05)
        assert status(federation.folder).superlink.state == "died"
        assert start(federation.folder)[0] == ["superlink"]
        assert set(connected_nodes(federation)) == {"node-1", "node-2"}
        found = status(federation.folder).run
        assert found is not None
        assert (found.number, found.state) == (number, "stopped")
        with pytest.raises(FultrError, match="resume it with fultr deploy train"):
            follow(federation.folder, number, False)
        done = rounds()
        write_settings(federation.folder, "long", rounds=done + 2, least_devices=2)
        again, new = submit(federation.folder)
        assert new
        assert again != number
        steps: list[TrainingProgress] = []
        follow(federation.folder, again, new, steps.append)
        assert [step.round for step in steps] == [done + 1, done + 2]
        assert steps[-1].latest["accepted"] == [0, 1]
        assert steps[0].seconds_left is None
        assert steps[1].seconds_left == 0


@pytest.mark.deployment
def test_two_trainings_at_once_are_one(federation):
    """The second follows the first, however close they come."""
    with time_limit(200):
        write_settings(federation.folder, "twice", least_devices=2)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: submit(federation.folder), range(4)))
        assert sum(new for _, new in found) == 1
        assert len({number for number, _ in found}) == 1
        follow(federation.folder, found[0][0], False)


@pytest.mark.deployment
def test_killed_node_comes_back(federation):
    with time_limit(300):
        killed, node = service_processes(federation, "node-2"), service_process(federation, "node-2")
        os.kill(node.number, signal.SIGKILL)
        while is_running(node):
            time.sleep(0.05)
        before = connected_nodes(federation)
        assert start(federation.folder)[0] == ["node-2"]
        after = connected_nodes(federation)
        assert after["node-1"] == before["node-1"]
        assert after["node-2"] > before["node-2"]
        assert not any(is_running(process) for process in killed)


@pytest.mark.deployment
def test_failing_training_is_reported(federation):
    with time_limit(200):
        write_settings(federation.folder, "fails", rounds=1, least_devices=2)
        assert fultr("deploy", "train", federation.folder).code == 0
        write_settings(federation.folder, "fails", rounds=2, least_devices=2, client_rate=0.5)
        failed = fultr("deploy", "train", federation.folder)
        assert failed.code == 2
        assert "they differ in client_rate" in failed.err


@pytest.mark.deployment
def test_one_bad_node_keeps_no_other_from_starting(federation):
    with time_limit(200):
        stop(federation.folder)
        path = federation.nodes[0].folder / "node.toml"
        kept = path.read_text()
        path.write_text(kept.replace("least_clicks = ", "least_click = "))
        with pytest.raises(FultrError, match=r"(?s)node-1 ended before it could connect; the others are running; .*"
                           r"node.toml:\d+: unknown setting 'least_click'; did you mean least_clicks"):  # fmt: skip
            start(federation.folder)
        assert set(connected_nodes(federation)) == {"node-2"}
        path.write_text(kept)
        assert start(federation.folder)[0] == ["node-1"]


@pytest.mark.deployment
def test_removed_key_is_never_taken_again(federation):
    with time_limit(400):
        node = federation.nodes[1]
        process, kept = service_process(federation, "node-2"), node.public_key.read_text()
        node.public_key.unlink()
        assert register_nodes(load_deployment(federation.folder)) == ([], 1)
        while is_running(process):  # the node notices by itself
            time.sleep(0.5)
        node.public_key.write_text(kept)
        with pytest.raises(FultrError, match=r"^node-2: .* refused .*; a key that was removed is never accepted again"):
            register_nodes(federation)
        node.public_key.unlink()
        shutil.rmtree(node.folder)
        init_deployment(federation.folder, 2)
        fill_log(node.folder / "device.db", 1)
        assert start(federation.folder)[0] == ["node-2"]
        assert set(connected_nodes(federation)) == {"node-1", "node-2"}


@pytest.mark.deployment
def test_start_status_stop(federation):
    with time_limit(300):
        found = status(federation.folder)
        assert (found.superlink.state, found.superlink.connected) == ("running", True)
        assert [(node.name, node.state, node.connected) for node in found.nodes] == [
            ("node-1", "running", True), ("node-2", "running", True)]  # fmt: skip
        assert "the SuperLink and 2 nodes are running already" in fultr("deploy", "start", federation.folder).err
        record = json.loads(fultr("deploy", "status", federation.folder, "--json").out)
        assert record["superlink"]["process"] == service_process(federation, "superlink").number
        began = [
            process for name in ("superlink", "node-1", "node-2") for process in service_processes(federation, name)
        ]
        assert len(began) >= 4 or sys.platform != "linux"  # the SuperLink has a helper
        assert stop(federation.folder) == ["node-1", "node-2", "superlink"]
        assert not any(is_running(process) for process in began)
        assert "nothing was running" in fultr("deploy", "stop", federation.folder).err
        assert status(federation.folder).superlink.state == "stopped"


@pytest.mark.deployment
def test_running_stops_what_has_crashed_too(folder):
    with time_limit(400):
        with running(folder) as deployment:
            began = [each for name in SERVICES for each in service_processes(deployment, name)]
            os.kill(service_process(deployment, "superlink").number, signal.SIGKILL)
        assert len(began) >= 4
        assert not any(is_running(process) for process in began)
    assert "connected to" in log_tail(deployment.log("node-1"), 100)
