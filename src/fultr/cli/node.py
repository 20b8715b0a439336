"""The command `fultr node`: the process on a device that takes part in a federation."""

from __future__ import annotations

from pathlib import Path

import click

from fultr.cli.options import PATH


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Say what happens in lines of JSON.")
def node(folder: Path, as_json: bool) -> None:
    """Take part in a federation, as the device whose folder is DIR.

    DIR is what `fultr deploy init` wrote for this device: node.toml (where the server, the device's log and the current
    ranker are, and the device's policy), its key, and the certificates that it trusts. The node asks the server for
    tasks, answers them from the log within the policy, and fetches the current ranker. It runs the code installed on
    this device and no other, and listens on no port. It says what happens on stderr; `fultr device history` shows every
    task and what became of it.

    Stop it with Ctrl-C or SIGTERM. `start.sh` and the systemd unit in DIR run this command.

    \b
    Examples
      fultr node fed/nodes/node-1
      fultr device policy fed/nodes/node-1
      fultr device history fed/nodes/node-1/device.db
    """
    import threading

    from fultr.deploy.keys import require_flower

    require_flower()
    from fultr.deploy.flower.node import printed, run_node

    try:
        run_node(folder.absolute(), threading.Event(), printed(as_json))
    except KeyboardInterrupt:  # that is how a node ends
        return
