"""Federations for tests: real Flower processes with a small app, always stopped in the end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fultr.deploy.folder import Deployment, init_deployment, load_deployment

STANDIN = """
import json, os, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message, context):
    node = {"client": context.node_config["client-id"], "folder": os.getcwd(), "log": context.node_config["log-path"]}
    return Message(RecordDict({"node": ConfigRecord(node)}), reply_to=message)


@server_app.main()
def main(grid, context):
    config = context.run_config
    if config.get("fail"):
        raise RuntimeError("told to fail")
    folder = Path(config["state-dir"])
    checkpoint = folder / "checkpoint"
    first = int(checkpoint.read_text()) if checkpoint.exists() else 0
    while len(nodes := list(grid.get_node_ids())) < config["nodes"]:
        time.sleep(0.2)
    for t in range(first, config["rounds"]):
        sent = [Message(RecordDict({"round": ConfigRecord({"round": t})}), node, MessageType.TRAIN) for node in nodes]
        replies = list(grid.send_and_receive(sent, timeout=config["timeout"]))
        heard = [dict(reply.content.config_records["node"]) for reply in replies if not reply.has_error()]
        checkpoint.write_text(str(t + 1))
        line = {"round": t + 1, "first": first, "heard": sorted(heard, key=lambda node: node["client"])}
        with (folder / "progress.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\\n")
"""
PROJECT = """
[project]
name = "standin"
version = "1.0.0"
description = "A small app"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fultr"
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "standin:server_app"
clientapp = "standin:client_app"
"""


def standin_deployment(folder: Path, nodes: int = 2, rounds: int = 2, app: str = STANDIN) -> Deployment:
    """A deployment whose app is a small one of its own: each node says who it is, and the server counts rounds."""
    init_deployment(folder, nodes)
    (folder / "app" / "standin.py").write_text(app)
    (folder / "app" / "pyproject.toml").write_text(PROJECT)
    (folder / "federation.toml").write_text(
        f'state-dir = "state"\nrounds = {rounds}\ntimeout = 90.0\nnodes = {nodes}\nfail = false\n'
    )
    return load_deployment(folder)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Nothing in the block takes longer: a hanging test fails instead."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
