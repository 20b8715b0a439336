"""`fultr deploy`: the folder of a federation, its certificates and keys, and real Flower processes."""

from __future__ import annotations

import datetime
import hashlib
import importlib.util
import ipaddress
import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from help.deployments import standin_deployment, time_limit

from fultr.cli.main import main
from fultr.core.errors import FultrError
from fultr.deploy import folder as layout
from fultr.deploy.control import app_files, connected_nodes, control, register_nodes, registered_nodes
from fultr.deploy.folder import Deployment, free_port, init_deployment, load_deployment
from fultr.deploy.keys import days_left, load_certificate, load_public_key, write_node_key
from fultr.deploy.processes import Process, end, is_running, process_now, write_record
from fultr.deploy.services import log_tail, running, service_process, service_processes, start, status, stop
from fultr.deploy.superlink import FleetOnly
from fultr.deploy.training import TrainingProgress, follow, read_settings, submit

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

# Flower's HTTP client leaves a socket behind when the other side dies in the middle of a handshake.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
SERVICES = ("superlink", "node-1", "node-2")


def command(*arguments: object) -> int:
    """The exit code of a command that is run in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


# The folder


def test_init_writes_what_an_operator_needs(tmp_path, capsys):
    folder = tmp_path / "fed"
    assert command("deploy", "init", folder, "--nodes", 2, "--name", "clinic") == 0
    assert "README.md" in capsys.readouterr().out.split()
    deployment = load_deployment(folder)
    assert [node.name for node in deployment.nodes] == ["node-1", "node-2"]
    assert deployment.name == "clinic"
    assert deployment.host == "127.0.0.1"
    ports = [deployment.port, *(node.port for node in deployment.nodes)]
    assert len(set(ports)) == 3
    for path in ["superlink/start.sh", "superlink/fultr-superlink.service", "app/pyproject.toml", "federation.toml"]:
        assert (folder / path).is_file()
    for i, node in enumerate(deployment.nodes):
        assert f"client-id = {i}\n" in (node.folder / "node.toml").read_text()
        assert 'log-path = "device.db"\n' in (node.folder / "node.toml").read_text()
        assert str(node.folder / "start.sh") in (node.folder / f"fultr-{node.name}.service").read_text()
        assert (node.folder / "node.pub").read_text() == node.public_key.read_text()
    app = (folder / "app" / "pyproject.toml").read_text()
    assert 'serverapp = "fultr.deploy.flower.server_app:app"' in app
    assert 'clientapp = "fultr.deploy.flower.client_app:app"' in app
    assert [path.name for path in tmp_path.iterdir()] == ["fed"]  # nothing temporary is left


def test_private_things_are_private(tmp_path):
    previous = os.umask(0)
    try:
        init_deployment(tmp_path / "fed")
    finally:
        os.umask(previous)
    folder = tmp_path / "fed"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    keys = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.key"))
    assert keys == ["ca/ca.key", "nodes/node-1/node.key", "nodes/node-2/node.key", "superlink/server.key"]
    assert {stat.S_IMODE((folder / key).stat().st_mode) for key in keys} == {0o600}


@pytest.mark.process
def test_scripts_are_sound_shell(tmp_path):
    init_deployment(tmp_path / "a folder's name")
    for script in (tmp_path / "a folder's name").rglob("*.sh"):
        assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
        env = {**os.environ, "FULTR_PYTHON": "/nowhere/python"}
        ran = subprocess.run([str(script)], env=env, capture_output=True, text=True, check=False)
        assert ran.returncode == 2
        assert "no Python at /nowhere/python: set PYTHON in" in ran.stderr


@pytest.mark.parametrize(("address", "host"), [(None, "127.0.0.1"), ("fed.example.org:9092", "fed.example.org"),
                                               ("192.0.2.7:9092", "192.0.2.7")])  # fmt: skip
def test_certificates_are_valid(tmp_path, address, host):
    folder = tmp_path / "fed"
    init_deployment(folder, 1, address)
    authority, server = load_certificate(folder / "ca/ca.crt"), load_certificate(folder / "superlink/server.crt")
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    expected = {"localhost", "127.0.0.1", host}
    found = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    assert found == expected
    verifier = x509.verification.PolicyBuilder().store(x509.verification.Store([authority]))
    for name in expected:
        try:
            subject: x509.DNSName | x509.IPAddress = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            subject = x509.DNSName(name)
        assert verifier.build_server_verifier(subject).verify(server, [])[-1] == authority
    with pytest.raises(x509.verification.VerificationError):
        verifier.build_server_verifier(x509.DNSName("other.example.org")).verify(server, [])
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=826)
    with pytest.raises(x509.verification.VerificationError):
        verifier.time(later).build_server_verifier(x509.DNSName("localhost")).verify(server, [])
    assert 824 < days_left(folder / "superlink/server.crt") <= 825
    assert (folder / "nodes/node-1/ca.crt").read_bytes() == (folder / "ca/ca.crt").read_bytes()
    expected_host = "127.0.0.1" if address is None else "0.0.0.0"
    assert load_deployment(folder).host == expected_host


def test_node_keys_are_p384(tmp_path):
    init_deployment(tmp_path / "fed", 2)
    publics = set()
    for node in load_deployment(tmp_path / "fed").nodes:
        key = serialization.load_ssh_private_key((node.folder / "node.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(key.curve, ec.SECP384R1)
        pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        assert load_public_key(node.public_key) == pem
        publics.add(pem)
    assert len(publics) == 2


def test_init_again_adds_and_overwrites_nothing(tmp_path, capsys):
    folder = tmp_path / "fed"
    init_deployment(folder, 2)
    before = contents(folder)
    assert init_deployment(folder) == []
    shutil.move(folder / "nodes/node-1", tmp_path / "moved")  # to another machine
    (folder / "federation.toml").write_text("rounds = 7\n")
    written = init_deployment(folder, 3)
    assert {path.split("/")[0] for path in written} == {"nodes", "superlink"}
    assert all("node-3" in path for path in written)
    after = contents(folder)
    for path in before.keys() - {"federation.toml"}:
        if not path.startswith("nodes/node-1/"):
            assert after[path] == before[path]
    assert (folder / "federation.toml").read_text() == "rounds = 7\n"
    assert [(node.name, node.here) for node in load_deployment(folder).nodes] == [
        ("node-1", False), ("node-2", True), ("node-3", True)]  # fmt: skip


def test_deleted_certificate_is_renewed(tmp_path):
    folder = tmp_path / "fed"
    init_deployment(folder, 1)
    old = load_certificate(folder / "superlink/server.crt")
    for name in ("server.crt", "server.key"):
        (folder / "superlink" / name).unlink()
    assert init_deployment(folder) == ["superlink/server.crt", "superlink/server.key"]
    new = load_certificate(folder / "superlink/server.crt")
    new.verify_directly_issued_by(load_certificate(folder / "nodes/node-1/ca.crt"))
    assert new.serial_number != old.serial_number
    (folder / "superlink/server.crt").unlink()
    (folder / "ca/ca.key").unlink()
    with pytest.raises(FultrError, match=r"ca\.key: cannot be read: .*; restore the authority's key"):
        init_deployment(folder)


def test_failing_init_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(layout, "write_server_certificate", fail)
    with pytest.raises(FultrError, match="fed: cannot be written: No space left"):
        init_deployment(tmp_path / "fed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("arguments", "message"), [
    (["init", "{full}"], "full: exists and is not a deployment; name a new or empty folder"),
    (["init", "{full}/file"], "file: exists and is not a deployment"),
    (["init", "{new}", "--name", "Über"], "--name: expected up to 24 characters of a-z, 0-9 and -"),
    (["init", "{new}", "--address", "host:99999"], "--address: expected a port from 1 to 65535, found 'host:99999'"),
    (["init", "{new}", "--address", "0.0.0.0:9092"], "--address: expected HOST:PORT that the nodes can call"),
    (["init", "{new}", "--address", "https://host"], "--address: expected HOST:PORT"),
    (["init", "{old}", "--address", "host:9092"], "its address is 127.0.0.1:"),
    (["init", "{old}", "--name", "other"], "is the deployment 'pilot', not 'other'"),
    (["start", "{new}"], "new: is not a deployment; create one with: fultr deploy init"),
    (["stop", "{full}"], "full: is not a deployment"),
    (["status", "{full}"], "full: is not a deployment"),
    (["train", "{old}"], "federation.toml: features: expected a whole number, at least 1, found nothing"),
    (["register", "{old}"], "no SuperLink answers at 127.0.0.1:"),
])  # fmt: skip
def test_refusals_are_one_line(tmp_path, capsys, arguments, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    init_deployment(tmp_path / "old")
    places = {name: tmp_path / name for name in ("full", "new", "old")}
    assert command("deploy", *(argument.format(**places) for argument in arguments)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "full" / "file").read_text() == "mine"


def test_empty_folder_is_taken(tmp_path):
    (tmp_path / "fed").mkdir()
    init_deployment(tmp_path / "fed", 1)
    assert stat.S_IMODE((tmp_path / "fed").stat().st_mode) == 0o700


def test_without_flower_one_line_says_what_to_install(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "flwr" else find(name))
    with pytest.raises(FultrError, match=r"pip install 'fultr\[flower\]'"):
        init_deployment(tmp_path / "fed")


@pytest.mark.parametrize(("text", "message"), [
    ("rounds = [1]", r"federation.toml: rounds: expected a text, a number, true or false, found the list \[1\]"),
    ("rounds = ", "federation.toml:1: not valid TOML"),
    ("state-dir = 3", "federation.toml: state-dir: expected a folder, found 3"),
])  # fmt: skip
def test_bad_settings_are_refused(tmp_path, text, message):
    init_deployment(tmp_path / "fed")
    (tmp_path / "fed" / "federation.toml").write_text(text)
    with pytest.raises(FultrError, match=message):
        read_settings(load_deployment(tmp_path / "fed"))


def test_app_can_be_bundled_with_its_settings(tmp_path):
    from flwr.cli.build import build_fab_from_files
    from flwr.common.config import get_fab_config

    init_deployment(tmp_path / "fed")
    deployment = load_deployment(tmp_path / "fed")
    settings = {**read_settings(deployment), "note": 'a "quoted" ü', "on": True}
    files = app_files(deployment.folder / "app", settings)
    assert set(files) == {"pyproject.toml"}
    found = get_fab_config(build_fab_from_files(files)[0])["tool"]["flwr"]["app"]
    assert found["config"] == settings
    assert found["components"]["serverapp"] == "fultr.deploy.flower.server_app:app"
    with (deployment.folder / "app" / "pyproject.toml").open("a") as file:
        file.write("[tool.flwr.app.config]\n")
    with pytest.raises(FultrError, match=r"has \[tool.flwr.app.config\]; settings belong in .*federation.toml"):
        app_files(deployment.folder / "app", settings)


def test_settings_are_passed_on_flat(tmp_path):
    init_deployment(tmp_path / "fed")
    (tmp_path / "fed" / "federation.toml").write_text('state-dir = "here"\nrounds = 3\n[privacy]\nepsilon = 0.5\n')
    assert read_settings(load_deployment(tmp_path / "fed")) == {
        "state-dir": str(tmp_path / "fed" / "here"), "rounds": 3, "privacy.epsilon": 0.5}  # fmt: skip


# Processes


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


@pytest.mark.parametrize(("path", "client", "server", "passes"), [
    ("/v1/control/start-run", "127.0.0.1", "127.0.0.1", True),
    ("/v1/control/start-run", "::1", "::1", True),
    ("/v1/control/start-run", "192.0.2.7", "192.0.2.7", True),  # this machine, by its own address
    ("/v1/control/start-run", "192.0.2.9", "192.0.2.7", False),
    ("/v1/runtime/acquire-task", "192.0.2.9", "192.0.2.7", False),
    ("/docs", "192.0.2.9", "192.0.2.7", False),
    ("/v1/fleet", "192.0.2.9", "192.0.2.7", False),
    ("/v1/fleet/pull-messages", "192.0.2.9", "192.0.2.7", True),
    ("/v1/control/start-run", "not an address", "192.0.2.7", False),
])  # fmt: skip
def test_other_machines_reach_the_fleet_api_alone(path, client, server, passes):
    import asyncio

    reached, answered = [], []

    async def app(scope: object, receive: object, send: object) -> None:
        reached.append(scope)

    async def send(message: dict[str, object]) -> None:
        answered.append(message)

    scope = {"type": "http", "path": path, "client": (client, 5), "server": (server, 9092)}
    asyncio.run(FleetOnly(app)(scope, None, send))  # type: ignore[arg-type]
    assert bool(reached) == passes
    assert [message.get("status") for message in answered] == ([] if passes else [403, None])


# A federation of real processes: started once, used by all tests below


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A deployment with a small app, whatever of it runs stopped in the end."""
    place = tmp_path_factory.mktemp("real") / "fed"
    standin_deployment(place)
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
    inodes = set()
    for number in own:
        for link in Path(f"/proc/{number}/fd").iterdir():
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
    assert sorted(listening) == sorted([federation.port, *(node.port or 0 for node in federation.nodes)])


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
    shutil.copytree(federation.nodes[0].folder, stranger, ignore=shutil.ignore_patterns("flwr"))
    (stranger / "node.key").unlink()
    write_node_key(stranger / "node.key", stranger / "node.pub", "stranger")
    env = (stranger / "node.env").read_text().replace(f"PORT={federation.nodes[0].port}", f"PORT={free_port()}")
    (stranger / "node.env").write_text(env)
    with time_limit(200):
        with (stranger / "log").open("wb") as log:  # not a pipe, which its helper would keep open
            ran = subprocess.run(
                [str(stranger / "start.sh")],
                env={**os.environ, "FULTR_PYTHON": sys.executable},
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=190,
                check=False,
            )
        assert ran.returncode != 0
        assert "Failed to activate SuperNode" in (stranger / "log").read_text()
        with control(federation) as client:
            known = {node.public_key for node in registered_nodes(client)}
        assert load_public_key(stranger / "node.pub") not in known


@pytest.mark.deployment
def test_training_runs_and_goes_on_after_the_superlink_was_killed(federation, capsys):
    state = federation.folder / "state"
    settings = (federation.folder / "federation.toml").read_text()
    with time_limit(500):
        (federation.folder / "federation.toml").write_text(settings.replace("rounds = 2", "rounds = 50"))
        number, new = submit(federation.folder)
        assert new
        assert submit(federation.folder) == (number, False)  # not twice
        while not (state / "progress.jsonl").exists():
            time.sleep(0.2)
        heard = json.loads((state / "progress.jsonl").read_text().splitlines()[0])["heard"]
        assert heard == [
            {"client": i, "folder": str(node.folder), "log": "device.db"} for i, node in enumerate(federation.nodes)
        ]
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
        done = int((state / "checkpoint").read_text())
        (federation.folder / "federation.toml").write_text(settings.replace("rounds = 2", f"rounds = {done + 2}"))
        again, new = submit(federation.folder)
        assert new
        assert again != number
        steps: list[TrainingProgress] = []
        follow(federation.folder, again, new, steps.append)
        assert [step.round for step in steps] == [done + 1, done + 2]
        assert {step.latest["first"] for step in steps} == {done}
        assert steps[0].seconds_left is None
        assert steps[1].seconds_left == 0


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
def test_failing_server_app_is_reported(federation, capsys):
    path = federation.folder / "federation.toml"
    settings = path.read_text()
    path.write_text(settings.replace("fail = false", "fail = true"))
    try:
        with time_limit(200):
            assert command("deploy", "train", federation.folder) == 2
            assert "failed: ServerApp failed with exception: told to fail" in capsys.readouterr().err
    finally:
        path.write_text(settings)


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
        assert start(federation.folder)[0] == ["node-2"]
        assert set(connected_nodes(federation)) == {"node-1", "node-2"}


@pytest.mark.deployment
def test_start_status_stop(federation, capsys):
    with time_limit(300):
        found = status(federation.folder)
        assert (found.superlink.state, found.superlink.connected) == ("running", True)
        assert [(node.name, node.state, node.connected) for node in found.nodes] == [
            ("node-1", "running", True), ("node-2", "running", True)]  # fmt: skip
        assert command("deploy", "start", federation.folder) == 0
        assert "the SuperLink and 2 nodes are running already" in capsys.readouterr().err
        assert command("deploy", "status", federation.folder, "--json") == 0
        record = json.loads(capsys.readouterr().out)
        assert record["superlink"]["process"] == service_process(federation, "superlink").number
        began = [
            process for name in ("superlink", "node-1", "node-2") for process in service_processes(federation, name)
        ]
        assert len(began) >= 6 or sys.platform != "linux"  # each has a helper
        assert stop(federation.folder) == ["node-1", "node-2", "superlink"]
        assert not any(is_running(process) for process in began)
        assert command("deploy", "stop", federation.folder) == 0
        assert "nothing was running" in capsys.readouterr().err
        assert status(federation.folder).superlink.state == "stopped"


@pytest.mark.deployment
def test_running_stops_what_has_crashed_too(folder):
    with time_limit(400):
        with running(folder) as deployment:
            began = [each for name in SERVICES for each in service_processes(deployment, name)]
            os.kill(service_process(deployment, "superlink").number, signal.SIGKILL)
        assert len(began) >= 6
        assert not any(is_running(process) for process in began)
    assert "SuperNode ID" in log_tail(deployment.log("node-1"), 100)
