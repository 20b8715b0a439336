"""Secure sums with real processes: five nodes, one of which is killed between the two messages of a round."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from help.deployments import allow, small_deployment, time_limit

from fultr.device.answer import answer
from fultr.device.local import LocalDevices
from fultr.device.policy import DevicePolicy
from fultr.federated.budget import model_of
from fultr.federated.federate import federate, task_of
from fultr.federated.fedips import Server
from fultr.federated.summing import layout_of

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from help.wiretap import tapped

from fultr.deploy.folder import free_port, load_deployment
from fultr.deploy.services import running
from fultr.deploy.training import follow, read_settings, submit
from fultr.rankers.versions import Versions

POLICY = DevicePolicy(answers_a_day=10**6, answers_in_all=10**6, seconds_apart=0)
LOST = 4  # number of the device that is killed
# Runs at the start of that device's node, which is killed when the second message of a round comes.
KILLED = """
import pathlib
if b"fultr\\0node" in pathlib.Path("/proc/self/cmdline").read_bytes():
    import os, signal
    import fultr.device.mailbox as mailbox
    well = mailbox.answer_message

    def answer_message(log, content, *others):
        if content.startswith(b"sum2"):
            os.kill(os.getpid(), signal.SIGKILL)
        return well(log, content, *others)

    mailbox.answer_message = answer_message
"""


class Dropping(LocalDevices):
    """The same in one process: its answer is lost to the second question, and to all that follow."""

    def post(self, contents, t, timeout):
        replies = super().post(contents, t, timeout)
        self.__dict__.setdefault("asked", []).append(t)
        if len(self.__dict__["asked"]) > 1:
            replies.pop(LOST, None)
        return replies


# Flower's HTTP client leaves a socket behind when the other side dies in the middle of a handshake.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
@pytest.mark.deployment
@pytest.mark.slow
def test_one_of_five_nodes_is_killed_between_the_two_messages(tmp_path):
    """Round 1 has its vector all the same; round 2 has the others'. No single update is in what nodes sent."""
    deployment = small_deployment(
        tmp_path / "fed",
        nodes=5,
        secure_sums=True,
        aggregation="mean",
        propensity="shrunk",
        judge=False,
        least_devices=4,
        timeout=25.0,
    )
    folder = deployment.folder
    env, port = folder / "superlink" / "superlink.env", deployment.port
    env.write_text(env.read_text().replace(f"\nPORT={port}", f"\nPORT={free_port()}"))
    copies = {}
    for node in deployment.nodes:
        allow(node.folder, only_sums=True)
        copies[node.device] = tmp_path / f"{node.name}.db"
        shutil.copy(node.folder / "device.db", copies[node.device])
    told = folder / "told"
    told.mkdir()
    (told / "sitecustomize.py").write_text(KILLED)
    with (folder / "nodes" / f"node-{LOST + 1}" / "node.env").open("a") as file:
        file.write(f'export PYTHONPATH="{told}${{PYTHONPATH:+:$PYTHONPATH}}"\n')

    with (
        time_limit(300),
        tapped(port, load_deployment(folder).port, folder / "superlink") as tap,
        running(folder, 180),
    ):
        follow(folder, *submit(folder))
    weights = Versions(folder / "state" / "versions").read("latest").ranker.weights
    reports = [json.loads(line) for line in (folder / "state" / "progress.jsonl").read_text().splitlines()]
    assert [report["accepted"] for report in reports] == [[0, 1, 2, 3, 4], [0, 1, 2, 3]]
    assert not (folder / "state" / "attempts.jsonl").exists()

    settings = read_settings(load_deployment(folder))[0]
    again = {u: Path(shutil.copy(copy, tmp_path / f"again-{u}.db")) for u, copy in copies.items()}
    local = federate(Dropping(again, policy=POLICY), settings, tmp_path / "local")
    assert np.linalg.norm(weights) > 0.001  # it has moved; how far depends on which clicks are held out
    assert weights.tobytes() == local.weights.tobytes()

    model = model_of(settings)
    task = task_of(settings, 0, Server.initial(settings.algorithm(), model, model.initial(), settings.displayed))
    everything = b"".join(
        file.read_bytes() for file in folder.rglob("*") if file.is_file() and "nodes" not in file.parts
    )
    for copy in copies.values():
        sums = answer(copy, task, POLICY).sums
        encoded = layout_of(task).encoded(sums)
        for planted in (sums["update"].tobytes(), sums["update"].astype(float).tobytes(), encoded[:4].tobytes()):
            assert not tap.holds(planted)
            assert planted not in everything
    assert tap.holds(b'"session"')  # the tap hears
