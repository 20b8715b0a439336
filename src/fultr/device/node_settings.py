"""The settings of a node, in the node.toml of its folder: where things are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fultr.core.settings import REQUIRED, check, setting
from fultr.core.settings_file import read_settings


@dataclass(frozen=True)
class NodeSettings:
    """What a node knows about its place. Paths are relative to the folder of its node.toml.

    Attributes:
        server: HOST:PORT of the SuperLink.
        log: the device's log.
        rankers: the folder where the node keeps the current ranker for the application.
        slowest_poll: seconds from one question for a task to the next, if none comes. A question waits at the server
            for up to 15 s, so that a task that comes meanwhile is delivered at once.
        ranker_poll: seconds between two looks for another ranker, at most.
    """

    server: str = setting(REQUIRED, "HOST:PORT of the SuperLink.")
    log: str = setting("device.db", "The device's log.")
    rankers: str = setting("rankers", "Folder where the node keeps the current ranker for the application.")
    slowest_poll: float = setting(15.0, "Seconds between two questions for a task while none comes.", least=0.1)
    ranker_poll: float = setting(600.0, "Seconds between two looks for another ranker.", least=0.1)

    def __post_init__(self) -> None:
        check(self)

    @classmethod
    def read(cls, path: Path) -> NodeSettings:
        """From a node.toml; its table `[policy]` is read by `DevicePolicy`."""
        return read_settings(cls, path, besides=("policy",))
