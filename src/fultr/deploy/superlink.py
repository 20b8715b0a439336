"""Flower's SuperLink, open to other machines only for nodes. Run as a file, by `start.sh`.

Flower serves three APIs on one port: the Fleet API for nodes, which requires a registered key; the Control API, for
submitting runs, registering nodes and reading logs; and the Runtime API for its own helper processes. The last two
require nothing, and a run is code that the server and all nodes execute. So requests from other machines may reach only
the Fleet API. Arguments are those of `flower-superlink`.
"""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_OPEN = "/v1/fleet/"


class FleetOnly:
    """Middleware that rejects requests from other machines, except those to the Fleet API."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reply that it is forbidden."""
        if scope["type"] == "lifespan" or is_local(scope) or scope.get("path", "").startswith(_OPEN):
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # the server closes the connection
        content = b"only for programs on the server\n"
        headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def is_local(scope: Scope) -> bool:
    """Does a request come from this machine: from a loopback address, or from the address that it is sent to?"""
    client, server = scope.get("client"), scope.get("server")
    if not client:
        return False
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback or (server is not None and client[0] == server[0])


def main() -> None:
    """Run the SuperLink."""
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    os.environ["FORWARDED_ALLOW_IPS"] = "127.0.0.1"  # nobody else may state on whose behalf a request comes
    own = extensions.get_middleware()
    extensions.get_middleware = lambda: (Middleware(FleetOnly), *own)
    flower_superlink()


if __name__ == "__main__":
    main()
