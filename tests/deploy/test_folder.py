"""The folder that `fultr deploy init` writes: certificates, keys, settings, scripts."""

from __future__ import annotations

import datetime
import hashlib
import importlib.util
import ipaddress
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from fultr.core.errors import FultrError
from fultr.deploy import folder as layout
from fultr.deploy.enrolment import enrol
from fultr.deploy.folder import init_deployment, load_deployment
from fultr.deploy.keys import days_left, load_certificate, load_public_key, load_sum_key
from fultr.deploy.training import read_settings
from fultr.device.node_settings import NodeSettings
from fultr.device.policy import DevicePolicy
from fultr.federated.privacy.enrolment import open_enrolment, read_enrolment
from fultr.rankers.release import ReleaseKey

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from help.commands import fultr


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_init_writes_what_an_operator_needs(tmp_path):
    folder = tmp_path / "fed"
    done = fultr("deploy", "init", folder, "--nodes", 2, "--name", "clinic")
    assert done.code == 0
    assert "README.md" in done.out.split()
    deployment = load_deployment(folder)
    assert [node.name for node in deployment.nodes] == ["node-1", "node-2"]
    assert deployment.name == "clinic"
    assert deployment.host == "127.0.0.1"
    for path in ["superlink/start.sh", "superlink/fultr-superlink.service", "federation.toml"]:
        assert (folder / path).is_file()
    for i, node in enumerate(deployment.nodes):
        assert node.device == i
        settings = NodeSettings.read(node.folder / "node.toml")
        assert (settings.server, settings.log) == (deployment.address, "device.db")
        assert DevicePolicy.read(node.folder / "node.toml") == DevicePolicy()
        assert str(node.folder / "start.sh") in (node.folder / f"fultr-{node.name}.service").read_text()
        assert (node.folder / "node.pub").read_text() == node.public_key.read_text()
    assert "least_devices = 2\n" in (folder / "federation.toml").read_text()
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
    nodes = [f"nodes/node-{i}/{name}.key" for i in (1, 2) for name in ("node", "sums")]
    assert keys == ["ca/ca.key", *nodes, "superlink/server.key", "superlink/signing.key"]
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


def test_init_again_adds_and_overwrites_nothing(tmp_path):
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
    for path in before.keys() - {"federation.toml", "superlink/enrolment.txt"}:
        if not path.startswith("nodes/node-1/"):
            assert after[path] == before[path]
    assert (folder / "federation.toml").read_text() == "rounds = 7\n"
    assert [(node.name, node.here) for node in load_deployment(folder).nodes] == [
        ("node-1", False), ("node-2", True), ("node-3", True)]  # fmt: skip


def test_the_list_of_keys_for_secure_sums_follows_the_nodes(tmp_path):
    """Signed by the key that nodes are enrolled with; its serial number rises with every change."""
    folder = tmp_path / "fed"
    init_deployment(folder, 2)
    pinned = ReleaseKey.read(folder / "nodes/node-1/signing.pub")

    def signed():
        return open_enrolment((folder / "superlink/enrolment.txt").read_bytes(), pinned)

    first = signed()
    assert (first.serial, first.federation, first.devices) == (1, "pilot", (0, 1))
    assert first.keys[1] == load_sum_key(folder / "nodes/node-2/sums.key").public
    init_deployment(folder, 3)
    assert (signed().serial, signed().devices, signed().keys[:2]) == (2, (0, 1, 2), first.keys)
    (folder / "superlink/node-keys/node-2.pub").unlink()  # it may not take part any more
    superlink = folder / "superlink"
    assert [enrol(superlink, "pilot").serial for _ in range(2)] == [3, 3]
    assert signed().devices == (0, 2)
    for old in (superlink / "signing.key", superlink / "signing.pub", folder / "nodes/node-1/signing.pub"):
        old.unlink()
    init_deployment(folder)  # with another key that it is signed with
    pinned = ReleaseKey.read(folder / "nodes/node-1/signing.pub")
    assert (signed().serial, signed().devices) == (4, (0, 2))
    (superlink / "signing.key").unlink()  # kept elsewhere
    assert enrol(superlink, "pilot").serial == 4
    (superlink / "sum-keys/node-3.pub").unlink()
    with pytest.raises(FultrError, match=r"signing\.key: cannot be read"):
        enrol(superlink, "pilot")
    kept = {name: contents(superlink)[name] for name in ("signing.pub", "enrolment.txt")}
    with pytest.raises(FultrError, match=r"signing\.key: cannot be read: .*; it is kept elsewhere"):
        init_deployment(folder, 5)  # no other key is made: nodes would not know it
    assert not (superlink / "signing.key").exists()
    assert {name: contents(superlink)[name] for name in kept} == kept
    assert contents(folder)["nodes/node-5/signing.pub"] == kept["signing.pub"]
    (superlink / "sum-keys/node-1.pub").write_text("x25519 zz node-1\n")
    with pytest.raises(FultrError, match=r"node-1.pub: expected a line: x25519, 64 hexadecimal digits"):
        enrol(superlink, "pilot")


def test_a_node_that_has_no_key_for_secure_sums_gets_one(tmp_path):
    folder = tmp_path / "fed"
    init_deployment(folder, 2)
    for place in (folder / "nodes/node-2/sums.key", folder / "nodes/node-2/sums.pub"):
        place.unlink()
    (folder / "superlink/sum-keys/node-2.pub").unlink()
    assert init_deployment(folder) == [
        "nodes/node-2/sums.key",
        "nodes/node-2/sums.pub",
        "superlink/sum-keys/node-2.pub",
    ]
    shutil.rmtree(folder / "nodes/node-2")  # removed as the README says, and made again
    (folder / "superlink/node-keys/node-2.pub").unlink()
    init_deployment(folder, 2)
    made = load_sum_key(folder / "nodes/node-2/sums.key").public
    assert read_enrolment((folder / "superlink/enrolment.txt").read_bytes()).keys[1] == made


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
def test_refusals_are_one_line(tmp_path, arguments, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    init_deployment(tmp_path / "old")
    places = {name: tmp_path / name for name in ("full", "new", "old")}
    done = fultr("deploy", *(argument.format(**places) for argument in arguments))
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
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


def test_init_asks_for_as_many_devices_as_it_makes(tmp_path):
    for nodes, asked in ((1, 2), (5, 5)):  # two at least: one device's update is that device's
        init_deployment(tmp_path / str(nodes), nodes)
        settings = (tmp_path / str(nodes) / "federation.toml").read_text()
        (tmp_path / str(nodes) / "federation.toml").write_text(settings.replace("# features = 519", "features = 519"))
        assert read_settings(load_deployment(tmp_path / str(nodes)))[0].waiting.least_devices == asked


@pytest.mark.parametrize(("text", "message"), [
    ("rounds = [1]", r"federation.toml:1: rounds: expected a whole number, at least 1, found the list \[1\]"),
    ("rounds = ", "federation.toml:1: not valid TOML"),
    ("features = 3\nstate-dir = 3", "federation.toml: state-dir: expected a folder, found 3"),
    ("features = 3\nrouns = 3", "federation.toml:2: unknown setting 'rouns'; did you mean rounds"),
])  # fmt: skip
def test_bad_settings_are_refused(tmp_path, text, message):
    init_deployment(tmp_path / "fed")
    (tmp_path / "fed" / "federation.toml").write_text(text)
    with pytest.raises(FultrError, match=message):
        read_settings(load_deployment(tmp_path / "fed"))


def test_a_key_without_a_number_is_refused(tmp_path):
    init_deployment(tmp_path / "fed", 1)
    keys = tmp_path / "fed" / "superlink" / "node-keys"
    (keys / "laptop.pub").write_bytes((keys / "node-1.pub").read_bytes())
    with pytest.raises(FultrError, match=r"laptop.pub: expected the key of a node, node-NUMBER.pub"):
        load_deployment(tmp_path / "fed")
