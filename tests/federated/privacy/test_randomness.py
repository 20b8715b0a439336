"""Seeded noise is for simulations: what runs on a device or a server cannot get at it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from fultr.device.answer import answer
from fultr.device.local import LocalDevices
from fultr.federated.federate import federate
from fultr.federated.fedips import server_round
from fultr.federated.messages import reply_to
from fultr.federated.privacy import randomness
from fultr.federated.privacy.randomness import SYSTEM, SystemRandomness, system_words
from fultr.study.seeded import SeededRandomness


def test_whoever_says_nothing_has_the_operating_system():
    assert inspect.signature(federate).parameters["random"].default is SYSTEM
    assert inspect.signature(server_round).parameters["random"].default is SYSTEM
    assert inspect.signature(reply_to).parameters["words"].default is system_words
    assert LocalDevices({}).random is SYSTEM
    assert "random" not in inspect.signature(answer).parameters  # a device's answer has no choice


def test_the_operating_system_takes_no_seed():
    with pytest.raises(TypeError):
        SystemRandomness(1)  # type: ignore[call-arg]
    first, second = (SYSTEM.client(0, 0)(4).tolist() for _ in range(2))
    assert first != second


def test_what_devices_and_servers_import_has_no_seeded_noise():
    """Its only maker is in a package that `device` and `deploy` may not import; tests/test_imports.py holds that."""
    assert SeededRandomness.__module__ == "fultr.study.seeded"
    made = [
        name
        for name, value in vars(randomness).items()
        if inspect.isclass(value) and value.__module__ == randomness.__name__
    ]
    assert made == ["Randomness", "SystemRandomness"]


@pytest.mark.process
def test_a_server_and_a_device_load_no_seeded_noise():
    modules = "fultr.deploy.flower.server_app, fultr.deploy.flower.node, fultr.device.mailbox, sys"
    code = f"import {modules}; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "fultr.federated.federate" in told
    assert not [name for name in told if name.startswith("fultr.study")]
    assert not {"dp_accounting"} & {*told}  # it is for servers that have a budget to keep
