"""The node: the process on a device. It asks the SuperLink for tasks, and answers with the code installed there.

It calls and is never called; what it is sent is data, never code. What it answers is for the device's policy to say
(`fultr.device.answer`), whatever the task asks for.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from fultr.core.errors import FultrError, one_line
from fultr.core.files import locked, written_whole
from fultr.deploy.flower.fleet import HEARTBEAT_SECONDS, Fleet, Letter, connected, why
from fultr.deploy.keys import load_node_key, load_public_key, load_sum_key
from fultr.deploy.superlink import FILES
from fultr.device.log import DeviceLog
from fultr.device.node_settings import NodeSettings
from fultr.device.policy import DevicePolicy
from fultr.device.prepare import prepare, prepared
from fultr.device.store import take_release
from fultr.federated.privacy.enrolment import SumIdentity
from fultr.rankers.release import RELEASE_FILE, ReleaseKey

_AFTER_REFUSAL = 1.0  # seconds of rest: nobody keeps a device busy with what it refuses
_LONGEST_RETRY = 60.0  # seconds between two attempts to reach the SuperLink
_AFTER_TASK = 60.0  # seconds after which a node looks for another ranker: there may be one when there are tasks


@dataclass(frozen=True)
class Told:
    """Something that happened on a node.

    Attributes:
        what: one word: connected, prepared, lost, task, ranker, stopped.
        words: for people.
        seconds: that it took, if it was work.
    """

    what: str
    words: str
    seconds: float | None = None

    def line(self, as_json: bool) -> str:
        """For the node's log."""
        now, words = datetime.now(UTC).isoformat(timespec="seconds"), one_line(self.words, 500)
        if as_json:
            return json.dumps({"time": now, "what": self.what, "words": words, "seconds": self.seconds})
        return f"{now} {words}{'' if self.seconds is None else f' ({self.seconds:.2f} s)'}"


def printed(as_json: bool) -> Callable[[Told], None]:
    """Tells what happens on standard error, a line each."""

    def tell(told: Told) -> None:
        with suppress(OSError, ValueError):  # nobody reads it
            print(told.line(as_json), file=sys.stderr, flush=True)

    return tell


def run_node(folder: Path, stop: threading.Event, tell: Callable[[Told], None]) -> None:
    """Connect the node in a folder to its SuperLink, and answer until `stop` is set.

    A SuperLink that is down is tried again and again. What trying again cannot mend is an error: a key that is not
    registered, a certificate that has expired.
    """
    settings = NodeSettings.read(folder / "node.toml")
    DevicePolicy.read(folder / "node.toml")  # what is wrong with it is said now
    key = load_node_key(folder / "node.key")
    try:
        authority = (folder / "ca.crt").read_bytes()
    except OSError as error:
        raise FultrError(f"{folder / 'ca.crt'}: cannot be read: {error.strerror}") from None
    retry, known = 1.0, None
    with locked(folder / "lock", f"{folder}: this node is running already"):
        _prepare(tell)
        while not stop.is_set():
            admitted = False
            try:
                with connected(settings.server, authority, key, _number_before(folder), known) as fleet:
                    admitted, known = True, fleet.number
                    _note_number(folder, fleet.number)
                    tell(Told("connected", f"connected to {settings.server} as node {fleet.number}"))
                    retry = 1.0
                    _listen(folder, settings, fleet, stop, tell)
            except Exception as error:  # of the connection, or of whatever the server sent
                final = None if admitted else why(error, settings.server)
                if final is not None:
                    raise final from None
                tell(Told("lost", f"no connection to {settings.server}, again in {retry:.0f} s: {_words(error)}"))
                stop.wait(retry * random.uniform(0.8, 1.2))
                retry = min(retry * 2, _LONGEST_RETRY)
    tell(Told("stopped", "stopped"))


def _prepare(tell: Callable[[Told], None]) -> None:
    """Compile what trains before connecting: a server asks whoever is connected, and waits for the answer."""
    if prepared():
        return
    begun = time.monotonic()
    words = "what trains is compiled" if prepare() else "what trains will be compiled with the first task"
    tell(Told("prepared", words, time.monotonic() - begun))


def _listen(
    folder: Path, settings: NodeSettings, fleet: Fleet, stop: threading.Event, tell: Callable[[Told], None]
) -> None:
    """Ask for tasks and answer them until told to stop, or the connection is lost."""
    look, said = 0.0, ""
    identity = _identity(folder)
    with _heartbeats(fleet) as lost:
        while not stop.is_set():
            if lost.is_set():
                raise ValueError("the SuperLink does not know this node any more")
            if time.monotonic() >= look:
                words = _look_for_ranker(folder, settings, fleet)
                if words and words != said:
                    tell(Told("ranker", words))
                said = words or said
                look = time.monotonic() + settings.ranker_poll
            now = time.monotonic()
            until = min(now + settings.slowest_poll * random.uniform(0.8, 1.0), look)
            letter = fleet.receive(max(0.0, until - now))
            if letter is None:
                stop.wait(until - time.monotonic())
                continue
            look = min(look, time.monotonic() + _AFTER_TASK)
            stop.wait(_reply(folder, settings, fleet, letter, tell, identity))


def _identity(folder: Path) -> SumIdentity | None:
    """What the node takes part in secure sums with, if it is enrolled for them."""
    if not (folder / "sums.key").exists() or not (folder / "signing.pub").exists():
        return None
    return SumIdentity(load_sum_key(folder / "sums.key"), ReleaseKey.read(folder / "signing.pub"))


def _reply(
    folder: Path,
    settings: NodeSettings,
    fleet: Fleet,
    letter: Letter,
    tell: Callable[[Told], None],
    identity: SumIdentity | None,
) -> float:
    """Answer a message; how long to rest after it: what comes sooner than the policy allows would be refused."""
    from fultr.device.mailbox import answer_message  # what trains is loaded when there is something to train
    from fultr.federated.wire import REFUSAL

    begun, rest = time.monotonic(), _AFTER_REFUSAL
    try:
        policy = DevicePolicy.read(folder / "node.toml")  # its owner may have changed it
        content, words = answer_message(folder / settings.log, letter.content, policy, letter.run, identity)
        rest = _AFTER_REFUSAL if content == REFUSAL else min(policy.seconds_apart, _AFTER_REFUSAL)
    except FultrError as error:
        content, words = REFUSAL, f"refused all tasks until the policy is mended: {error}"
    seconds = time.monotonic() - begun
    tell(Told("task", words, seconds))
    try:
        fleet.send(letter, content, seconds)
    except httpx.HTTPStatusError as error:  # the run has ended meanwhile, or nobody waits any more
        tell(Told("task", f"the SuperLink did not take the answer (status {error.response.status_code})"))
    return rest


def _look_for_ranker(folder: Path, settings: NodeSettings, fleet: Fleet) -> str:
    """Fetch the ranker that the server has for this device, if there is one, and a log to use it with.

    Returns:
        What happened, in words; "" if nothing did.
    """
    log = folder / settings.log
    if not (folder / "signing.pub").exists() or not log.exists():
        return ""
    try:
        release = fleet.fetch(f"{FILES}{RELEASE_FILE}")
    except httpx.HTTPStatusError:
        return ""  # nothing has been released, or the SuperLink has no shell of ours

    def fetch(name: str, most: int) -> bytes:
        return release if name == RELEASE_FILE else fleet.fetch(f"{FILES}{name}")

    try:
        with DeviceLog.open(log, retention=None) as opened:
            current = next(schema for schema in opened.schemas() if schema.current)
        key = ReleaseKey.read(folder / "signing.pub")
        identity = load_public_key(folder / "node.pub")
    except FultrError as error:
        return f"no ranker: {error}"
    taken = take_release(folder / settings.rankers, fetch, key, current.names or current.count, identity)
    if taken.refused:
        return f"the server's release is refused: {taken.refused}"
    return f"{taken.version} is the ranker from now on" if taken.changed else ""


@contextmanager
def _heartbeats(fleet: Fleet) -> Iterator[threading.Event]:
    """Say now and then that the node is there, whatever else it does; yields what is set when nobody knows it."""
    ended, lost = threading.Event(), threading.Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_SECONDS * random.uniform(0.9, 1.0)):
            if time.monotonic() - fleet.heard < HEARTBEAT_SECONDS:
                continue  # it asks for tasks, which says as much
            try:
                if not fleet.alive():
                    lost.set()
            except (httpx.HTTPError, ValueError):
                continue  # the next question will tell

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        ended.set()


def _words(error: Exception) -> str:
    """What went wrong, in one line."""
    return one_line(f"{type(error).__name__} {error}")


def _number_before(folder: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int((folder / "number").read_text())
    return None


def _note_number(folder: Path, number: int) -> None:
    with written_whole(folder / "number") as temporary:
        temporary.write_text(f"{number}\n")
