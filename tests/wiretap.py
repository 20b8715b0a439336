"""A relay between nodes and SuperLink that ends TLS on both sides and keeps what nodes say."""

from __future__ import annotations

import contextlib
import socket
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

    @property
    def bytes(self) -> int:
        return sum(map(len, self.said))


@contextmanager
def tapped(port: int, superlink: int, folder: Path) -> Iterator[Tap]:
    """Relay `port` to the SuperLink's port, with the certificates in its folder."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(folder / "server.crt", folder / "server.key")
    theirs = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    for context in (ours, theirs):
        context.set_alpn_protocols(["http/1.1"])
    tap, ended = Tap(), threading.Event()
    listener = socket.create_server(("127.0.0.1", port))
    listener.settimeout(0.2)

    def relay(plain: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            ours.wrap_socket(plain, server_side=True) as node,
            socket.create_connection(("127.0.0.1", superlink), 30) as onward,
            theirs.wrap_socket(onward, server_hostname="127.0.0.1") as server,
        ):
            server.settimeout(None)
            said = bytearray()
            tap.said.append(said)
            back = threading.Thread(target=pump, args=(server, node, None), daemon=True)
            back.start()
            pump(node, server, said)
            back.join(1)

    def pump(source: ssl.SSLSocket, target: ssl.SSLSocket, keep: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if keep is not None:
                    keep += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def listen() -> None:
        while not ended.is_set():
            try:
                plain, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            plain.settimeout(None)
            threading.Thread(target=relay, args=(plain,), daemon=True).start()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield tap
    finally:
        ended.set()
        listener.close()
        thread.join(2)
