"""The ClientApp: a device's log in, a reply out. The node's configuration holds the log's path and the node's number.

flower-supernode ... --node-config 'log-path="/var/lib/search/device.db" client-id=7'
"""

from __future__ import annotations

import faulthandler
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fultr.core.errors import FultrError
from fultr.deploy.flower.messages import failure_record, read_task, reply_record
from fultr.device.answer import reply_from

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the device's own log, and reply; end the process if this takes longer than the server waits."""
    faulthandler.dump_traceback_later(max(message.metadata.ttl, 1.0), exit=True, file=2)  # standard error
    task = None
    try:
        task = read_task(message.content)
        content = reply_record(reply_from(_log_path(context), task))
    except FultrError as error:
        print(f"fultr: {error}", flush=True)  # on the device only
        content = failure_record(because_of_the_log=task is not None)
    except Exception as error:
        print(f"fultr: training failed ({type(error).__name__})", flush=True)
        content = failure_record(because_of_the_log=False)
    faulthandler.cancel_dump_traceback_later()
    return Message(content, reply_to=message)


@app.query()
def introduce(message: Message, context: Context) -> Message:
    """Send the device's number, by which replies are ordered."""
    number = context.node_config.get("client-id", -1)
    return Message(RecordDict({"device": ConfigRecord({"client": number})}), reply_to=message)


def _log_path(context: Context) -> Path:
    path = context.node_config.get("log-path")
    if not isinstance(path, str) or not Path(path).exists():
        raise FultrError(f"log-path: expected the path of a device log in the node's configuration, found {path!r}")
    return Path(path)
