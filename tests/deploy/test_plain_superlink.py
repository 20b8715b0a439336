"""A node with a SuperLink that has no shell of fultr's: Flower's own, and an app that uses Flower's own grid."""

from __future__ import annotations

import hashlib
import importlib.util
import pickle
import time

import pytest
from help.deployments import DISPLAYED, FEATURES, small_deployment, time_limit
from help.tasks import a_task

from fultr.federated.messages import Reply
from fultr.federated.wire import REFUSAL, read_reply, task_bytes

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.supercore.fab import Fab

from fultr.deploy.control import control, list_runs
from fultr.deploy.services import running

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

APP = """
import pickle
from pathlib import Path
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client_app, server_app = ClientApp(), ServerApp()
PLACE = Path({place!r})


@server_app.main()
def main(grid, context):
    replies = []
    for content in pickle.loads((PLACE / "contents").read_bytes()):
        record = RecordDict({{"fultr": ConfigRecord({{"content": content}})}})
        (node,) = grid.get_node_ids()
        (reply,) = grid.send_and_receive([Message(record, node, MessageType.TRAIN, ttl=60)], timeout=60)
        replies.append(reply.content["fultr"]["content"])
    (PLACE / "replies").write_bytes(pickle.dumps(replies))
"""
PROJECT = """
[project]
name = "plain"
version = "1.0.0"
description = "Asks by Flower's own grid"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "somebody"
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "plain:server_app"
clientapp = "plain:client_app"
"""


def test_a_node_answers_a_superlink_without_our_shell(tmp_path):
    """By Flower's Fleet API alone, which it finds out by itself: `flower-superlink`, as installed."""
    made = small_deployment(tmp_path / "fed", nodes=1, least_devices=1, least_replies=1)
    script = made.superlink / "start.sh"
    ours = '"$PYTHON" -P "$fultr/deploy/superlink.py"'
    assert ours in script.read_text()
    script.write_text(script.read_text().replace(ours, "flower-superlink"))

    task = a_task(features=FEATURES, displayed=DISPLAYED)
    (tmp_path / "contents").write_bytes(pickle.dumps([task_bytes(task), b"no task"]))
    files = {"pyproject.toml": PROJECT.encode(), "plain.py": APP.format(place=str(tmp_path)).encode()}
    content = build_fab_from_files(files)[0]
    with time_limit(120), running(made.folder, 60) as deployment, control(deployment) as client:
        fab = fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {}))
        number = client.StartRun(StartRunRequest(fab=fab)).run_id
        while list_runs(client, number)[0].active:
            time.sleep(0.2)
        said = deployment.log("node-1").read_text()
    first, second = pickle.loads((tmp_path / "replies").read_bytes())
    assert isinstance(read_reply(task, first), Reply)
    assert second == REFUSAL
    assert said.count("connected to") == 1
