"""The folder of a federation: its layout, and writing it.

A deployment holds all an operator needs to run a federation with Flower: certificates and keys, settings, scripts and
systemd units for the SuperLink (Flower's server) and for each node, and a page of instructions.
"""

from __future__ import annotations

import getpass
import ipaddress
import re
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from fultr.core.errors import FultrError
from fultr.core.files import writer_tag, written_whole
from fultr.deploy.enrolment import enrol
from fultr.deploy.keys import (
    AUTHORITY_DAYS,
    SERVER_DAYS,
    complete_signing_key,
    require_flower,
    write_authority,
    write_node_key,
    write_server_certificate,
    write_sum_key,
)
from fultr.device.policy import policy_lines

_PORTS = range(20_000, 32_000)  # below the range that systems use for outgoing connections


@dataclass(frozen=True)
class Node:
    """A node that may take part: its name, and where its folder is or was."""

    name: str
    folder: Path
    public_key: Path

    @property
    def device(self) -> int:
        """The number of its device, from 0; node-1 is device 0."""
        return _number(self.name) - 1

    @property
    def here(self) -> bool:
        """Is it run on this machine? If not, its folder was moved to another one."""
        return (self.folder / "node.toml").is_file()


@dataclass(frozen=True)
class Deployment:
    """A federation's folder, as read from it.

    Attributes:
        folder: where it is.
        name: of the federation.
        address: HOST:PORT that nodes call.
        host: what the SuperLink listens on.
        port: likewise.
        nodes: the nodes whose public keys it has, in the order of their numbers.
    """

    folder: Path
    name: str
    address: str
    host: str
    port: int
    nodes: tuple[Node, ...]

    @property
    def superlink(self) -> Path:
        """The SuperLink's folder."""
        return self.folder / "superlink"

    @property
    def directory(self) -> Path:
        """The file that says which device's number each node has."""
        return self.superlink / "nodes.json"

    @property
    def enrolment(self) -> Path:
        """The signed list of the nodes' keys for secure sums."""
        return self.superlink / "enrolment.txt"

    @property
    def local_address(self) -> str:
        """Where programs on this machine reach the SuperLink."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return joined_address(host, self.port)

    def log(self, service: str) -> Path:
        """The log file of the SuperLink or of a node that `start` began."""
        return self.folder / "logs" / f"{service}.log"


def load_deployment(folder: Path) -> Deployment:
    """Read a deployment's folder."""
    folder = folder.expanduser().absolute()
    if not _is_deployment(folder):
        raise FultrError(f"{folder}: is not a deployment; create one with: fultr deploy init {folder}")
    path = folder / "superlink" / "superlink.env"
    settings = _read_env(path, ("NAME", "ADDRESS", "HOST", "PORT"))
    split_address(settings["ADDRESS"], f"{path}: ADDRESS")
    nodes = []
    for public in (folder / "superlink" / "node-keys").glob("*.pub"):
        if re.fullmatch(r"node-[1-9]\d{0,8}", public.stem) is None:
            raise FultrError(f"{public}: expected the key of a node, node-NUMBER.pub: its number is its device's")
        nodes.append(Node(public.stem, folder / "nodes" / public.stem, public))
    nodes.sort(key=lambda node: node.device)
    return Deployment(
        folder,
        settings["NAME"],
        settings["ADDRESS"],
        settings["HOST"],
        _port(settings["PORT"], path),
        tuple(nodes),
    )


def init_deployment(
    folder: Path, nodes: int | None = None, address: str | None = None, name: str | None = None
) -> list[str]:
    """Write a deployment, completely or not at all; or add what an existing one lacks, without overwriting anything.

    Args:
        folder: where; must be missing, empty or a deployment.
        nodes: how many in total; 2 for a new deployment.
        address: HOST:PORT that nodes call; a free port on 127.0.0.1 by default.
        name: of the federation; `pilot` by default.

    Returns:
        What was written, relative to the folder; nothing if nothing was missing.
    """
    require_flower()
    folder = folder.expanduser().absolute()
    if nodes is not None and not 1 <= nodes <= 10_000:
        raise FultrError(f"--nodes: expected 1 to 10000, found {nodes}")
    if _is_deployment(folder):
        return _complete(folder, nodes, address, name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FultrError(f"{folder}: exists and is not a deployment; name a new or empty folder")
    name = "pilot" if name is None else name
    if re.fullmatch(r"[a-z][a-z0-9-]{0,23}", name) is None:
        raise FultrError(
            f"--name: expected up to 24 characters of a-z, 0-9 and -, starting with a letter, found {name!r}"
        )
    host, port = ("127.0.0.1", None) if address is None else split_address(address, "--address", port_optional=True)
    port = free_port() if port is None else port
    with _made_whole(folder) as place:
        settings = {
            "NAME": name,
            "ADDRESS": joined_address(host, port),
            "HOST": "127.0.0.1" if _is_loopback(host) else "::" if ":" in host else "0.0.0.0",
            "PORT": str(port),
            "PYTHON": sys.executable,
        }
        (place / "superlink").mkdir()
        _write_env(place / "superlink" / "superlink.env", "The SuperLink's settings, read by start.sh", settings)
        _write_missing(place, folder, range(1, (nodes or 2) + 1))
        written = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    return written


def split_address(text: str, what: str, port_optional: bool = False) -> tuple[str, int | None]:
    """HOST and PORT of HOST:PORT; an IPv6 address is in brackets.

    >>> split_address("fed.example.org:9092", "--address")
    ('fed.example.org', 9092)
    >>> split_address("[::1]:9092", "--address")
    ('::1', 9092)
    """
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9._-]+))(?::(\d+))?", text)
    host = (match[1] or match[2]) if match else ""
    if match is None or (match[3] is None and not port_optional) or host in ("0.0.0.0", "::"):
        raise FultrError(f"{what}: expected HOST:PORT that the nodes can call, found {text!r}")
    if match[3] is not None and not 1 <= int(match[3]) <= 65535:
        raise FultrError(f"{what}: expected a port from 1 to 65535, found {text!r}")
    return host, None if match[3] is None else int(match[3])


def joined_address(host: str, port: int) -> str:
    """HOST:PORT.

    >>> joined_address("::1", 9092)
    '[::1]:9092'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def free_port() -> int:
    """A port on 127.0.0.1 that is free and that no outgoing connection will get."""
    for _ in range(1000):
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        if port_is_free("127.0.0.1", port):
            return port
    raise FultrError(f"no free port on 127.0.0.1 from {_PORTS.start} to {_PORTS.stop - 1}")


def port_is_free(host: str, port: int) -> bool:
    """Can a program listen there?"""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _complete(folder: Path, nodes: int | None, address: str | None, name: str | None) -> list[str]:
    """Add what a deployment lacks."""
    there = load_deployment(folder)
    if name not in (None, there.name):
        raise FultrError(f"{folder}: is the deployment {there.name!r}, not {name!r}")
    if address not in (None, there.address):
        raise FultrError(f"{folder}: its address is {there.address}, not {address}; README.md says how to change it")
    before = {path for path in folder.rglob("*") if path.is_file()}
    numbers = range(1, (nodes or 0) + 1)
    _write_missing(folder, folder, numbers)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path not in before)


def _write_missing(place: Path, folder: Path, numbers: range) -> None:
    """Write missing files to `place`, which is later renamed to `folder` if the two differ."""
    settings = _read_env(place / "superlink" / "superlink.env", ("NAME", "ADDRESS"))
    name, address = settings["NAME"], settings["ADDRESS"]
    host, _ = split_address(address, "ADDRESS")
    superlink, authority = place / "superlink", place / "ca"
    for made in (superlink / "node-keys", superlink / "sum-keys", superlink / "flwr", place / "nodes", place / "state"):
        made.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (superlink / "ca.crt").exists():
        authority.mkdir(exist_ok=True, mode=0o700)
        if not (authority / "ca.crt").exists():
            write_authority(authority / "ca.crt", authority / "ca.key", name)
        _copy(authority / "ca.crt", superlink / "ca.crt")
    if not (superlink / "server.crt").exists() or not (superlink / "server.key").exists():
        write_server_certificate(
            superlink / "server.crt", superlink / "server.key", superlink / "ca.crt", authority / "ca.key", host
        )
    complete_signing_key(superlink / "signing.key", superlink / "signing.pub", name)
    _write_text(superlink / "start.sh", _rendered("superlink.sh", name=name), 0o700)
    _write_text(
        superlink / "fultr-superlink.service",
        _unit(
            f"SuperLink of {name}",
            "fultr-superlink.service",
            folder / "superlink",
            [folder / "superlink", folder / "state"],
        ),
    )
    _write_text(
        superlink / "flwr" / "config.toml",
        f"# For Flower's own command, such as: FLWR_HOME={folder}/superlink/flwr flwr list {name}\n"
        f'[superlink]\ndefault = "{name}"\n\n[superlink.{name}]\n'
        f'address = "{joined_address("127.0.0.1", split_address(address, "ADDRESS")[1] or 0)}"\n'
        f'root-certificates = "{folder}/superlink/ca.crt"\n',
    )
    _write_text(place / "federation.toml", _rendered("federation.toml", devices=max(2, len(numbers))))
    for number in numbers:
        _write_node(place, folder, f"node-{number}", address)
    for settings_file in (place / "nodes").glob("*/node.toml"):
        if not settings_file.with_name("signing.pub").exists():
            _copy(superlink / "signing.pub", settings_file.with_name("signing.pub"))
        _write_sum_key(place, settings_file.parent)
    _write_text(
        place / "README.md",
        _rendered(
            "readme.md",
            name=name,
            address=address,
            folder=shlex.quote(str(folder)),
            server_days=SERVER_DAYS,
            authority_days=AUTHORITY_DAYS,
        ),
    )
    enrol(superlink, name)  # last: all else is there if its key is not


def _write_node(place: Path, folder: Path, node: str, address: str) -> None:
    """Write a node's folder, unless it exists or was moved away."""
    public, home = place / "superlink" / "node-keys" / f"{node}.pub", place / "nodes" / node
    if public.exists():
        return
    if not home.exists():
        with _made_whole(home) as made:
            write_node_key(made / "node.key", made / "node.pub", node)
            _copy(place / "superlink" / "ca.crt", made / "ca.crt")
            _write_env(made / "node.env", f"Where the Python of {node} is, for start.sh", {"PYTHON": sys.executable})
            _write_text(made / "node.toml", _rendered("node.toml", address=address, policy=policy_lines()))
            _write_text(made / "start.sh", _rendered("node.sh", node=node), 0o700)
            there = folder / "nodes" / node
            _write_text(made / f"fultr-{node}.service", _unit(node, f"fultr-{node}.service", there, [there]))
    _copy(home / "node.pub", public)


def _write_sum_key(place: Path, home: Path) -> None:
    """Give a node on this machine a key for secure sums, unless it has one; the server knows the key that it has."""
    if not (home / "sums.key").exists():
        write_sum_key(home / "sums.key", home / "sums.pub", home.name)
    public = place / "superlink" / "sum-keys" / f"{home.name}.pub"
    if not public.exists() or public.read_bytes() != (home / "sums.pub").read_bytes():
        _copy(home / "sums.pub", public)


def _unit(what: str, file: str, folder: Path, writes: list[Path]) -> str:
    return _rendered("unit.service", what=what, file=file, folder=folder, writes=writes, user=getpass.getuser())


@contextmanager
def _made_whole(folder: Path) -> Iterator[Path]:
    """A folder next to `folder` that takes its name if the block succeeds, and is removed if it does not."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        place = folder.with_name(f".{folder.name[:40]}.{writer_tag()}")
        place.mkdir(mode=0o700)
        try:
            yield place
            place.rename(folder)  # onto an empty folder too
        finally:
            shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise FultrError(f"{folder}: cannot be written: {error.strerror or error}") from None


def _is_deployment(folder: Path) -> bool:
    return (folder / "superlink" / "superlink.env").is_file()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _number(name: str) -> int:
    found = re.search(r"(\d+)$", name)
    return int(found[1]) if found else 0


def _port(text: str, path: Path) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise FultrError(f"{path}: PORT: expected a port from 1 to 65535, found {text!r}")
    return int(text)


def _rendered(template: str, **values: object) -> str:
    from jinja2 import Environment, StrictUndefined

    text = (files("fultr.deploy") / "templates" / template).read_text(encoding="utf-8")
    return Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(text).render(**values)


def _write_text(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file unless it exists."""
    if not path.exists():
        with written_whole(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
            temporary.chmod(mode)


def _copy(source: Path, target: Path) -> None:
    with written_whole(target) as temporary:
        temporary.write_bytes(source.read_bytes())


def _write_env(path: Path, title: str, settings: dict[str, str]) -> None:
    lines = [f"{key}={shlex.quote(value)}" for key, value in settings.items()]
    _write_text(path, "\n".join([f"# {title}.", *lines, ""]))


def _read_env(path: Path, needed: tuple[str, ...]) -> dict[str, str]:
    """KEY=VALUE lines, as a shell would read them."""
    try:
        words = shlex.split(path.read_text(encoding="utf-8"), comments=True)
    except (OSError, ValueError) as error:
        raise FultrError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    for key in needed:
        if not settings.get(key):
            raise FultrError(f"{path}: {key}= is missing")
    return settings
