"""A relay between nodes and SuperLink that ends TLS on both sides and keeps what nodes say."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Tap:
    """What went from the nodes to the SuperLink, one entry a connection."""

    def __init__(self) -> None:
        self.said: list[bytearray] = []

    def holds(self, planted: bytes) -> bool:
        return any(planted in bytes(said) for said in self.said)


@contextmanager
def tapped(port: int, superlink: int, folder: Path) -> Iterator[Tap]:
    """Relay `port` to the SuperLink's port, with the certificates in its folder."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(folder / "server.crt", folder / "server.key")
    theirs = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    for context in (ours, theirs):
        context.set_alpn_protocols(["http/1.1"])
    tap, loop, ends = Tap(), asyncio.new_event_loop(), set[asyncio.StreamWriter]()

    async def relay(node: asyncio.StreamReader, to_node: asyncio.StreamWriter) -> None:
        ends.add(to_node)
        with contextlib.suppress(OSError):
            server, to_server = await asyncio.open_connection(
                "127.0.0.1", superlink, ssl=theirs, server_hostname="127.0.0.1"
            )
            ends.add(to_server)
            said = bytearray()
            tap.said.append(said)
            await asyncio.gather(pump(node, to_server, said), pump(server, to_node, None))
        to_node.transport.abort()

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, keep: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if keep is not None:
                    keep += data
                target.write(data)
                await target.drain()
        target.close()

    async def end() -> None:
        listener.close()
        for writer in ends:
            writer.transport.abort()
        await asyncio.sleep(0.5)  # in which they end
        loop.stop()

    listener = loop.run_until_complete(asyncio.start_server(relay, "127.0.0.1", port, ssl=ours))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield tap
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop)
        thread.join(10)
        loop.close()
