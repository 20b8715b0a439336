"""The alternative: a deployment whose nodes are `flower-supernode`, with an app that answers as `fultr node` does."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fultr.deploy.control import control, submit_run
from fultr.deploy.flower.internals import record_of
from fultr.deploy.folder import Deployment, free_port
from fultr.deploy.training import read_settings
from fultr.device.mailbox import answer_message
from fultr.device.policy import DevicePolicy

_START = """\
#!/bin/sh
set -eu
export PATH={path}:"$PATH" FLWR_HOME={folder}/flwr FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.25
exec flower-supernode --superlink {address} --root-certificates {folder}/ca.crt \\
    --auth-supernode-private-key {folder}/node.key --host 127.0.0.1 --port {port} --node-config {config}
"""

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer a task as `fultr node` does."""
    folder = Path(str(context.node_config["folder"]))
    content = message.content["fultr"]["content"]
    assert isinstance(content, bytes)
    policy = DevicePolicy.read(folder / "node.toml")
    reply, _ = answer_message(folder / "device.db", content, policy, context.run_id)
    return Message(record_of(reply), reply_to=message)


def use_supernodes(deployment: Deployment) -> None:
    """Have the nodes of a deployment be Flower's when they are started."""
    for node in deployment.nodes:
        words = {
            "path": str(Path(sys.executable).parent),
            "folder": str(node.folder),
            "address": deployment.address,
            "port": str(free_port()),
            "config": f"folder={json.dumps(str(node.folder))}",
        }
        quoted = {name: shlex.quote(word) for name, word in words.items()}
        (node.folder / "start.sh").write_text(_START.format(**quoted))


def submit(deployment: Deployment) -> int:
    """Submit the training, with an app for Flower's nodes; returns the run's number."""
    settings, state = read_settings(deployment)
    places = {"state-dir": str(state), "deployment": str(deployment.folder), "job": "train"}
    with control(deployment) as client:
        return submit_run(client, {**settings.as_mapping(), **places}, f"{__name__}:app")
