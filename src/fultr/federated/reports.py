"""What happened in a round or a failed attempt at one, and the files that it is written to: a line of JSON each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fultr.core.files import written_whole
from fultr.federated.events import Event, device_events
from fultr.federated.judging import Judgement


@dataclass(frozen=True)
class RoundReport:
    """What happened in a round, in numbers and words.

    Attributes:
        round: from 1.
        of: rounds in all.
        asked: devices.
        accepted: their numbers.
        refused: why, by device.
        silent: devices that did not answer in time.
        answered: seconds that the others took, by device.
        moved: norm of the change of the weights.
        judged: the weights before the round, by held-out clicks.
        examination: of each rank, as the server now estimates it; empty if it does not.
        seconds: that it took.
        attempt: from 1.
        privacy: what all rounds so far cost, see `Guarantee`; None without privacy. With it, everything else here that
            depends on what devices sent follows from noised sums.
    """

    round: int
    of: int
    asked: int
    accepted: list[int]
    refused: dict[int, str]
    silent: list[int]
    answered: dict[int, float]
    moved: float
    judged: Judgement | None
    examination: list[float]
    seconds: float
    attempt: int
    privacy: dict[str, Any] | None = None

    def events(self) -> list[Event]:
        """The round, and each device that was of no use in it."""
        words = f"round {self.round} of {self.of}: {len(self.accepted)} of {self.asked} devices"
        if self.judged is not None:
            words += f"; held-out clicks {self.judged.ranked:.4f} (displayed {self.judged.displayed:.4f})"
        if self.privacy is not None:
            words += f"; epsilon so far {self.privacy['epsilon']:.3f} per device"
        return [Event("round", words, self.round), *device_events(self.round, self.refused, self.silent)]


@dataclass(frozen=True)
class FailedAttempt:
    """An attempt at a round that came to nothing, since too few devices sent a usable reply.

    Attributes:
        round: from 1.
        attempt: from 1.
        of: attempts in all, before the run is given up.
        time: when it ended, in seconds since 1970.
        needed: usable replies.
        asked: devices.
        accepted: as in `RoundReport`, like the rest.
        why: there was no secure sum; empty without one.
    """

    round: int
    attempt: int
    of: int
    time: float
    needed: int
    asked: int
    accepted: list[int]
    refused: dict[int, str]
    silent: list[int]
    answered: dict[int, float]
    seconds: float
    why: str = ""

    def events(self) -> list[Event]:
        """The attempt, and each device that was of no use in it."""
        words = (
            f"round {self.round}: {len(self.accepted)} of {self.asked} devices sent a usable reply, and "
            f"{self.needed} are needed; attempt {self.attempt} of {self.of}"
        )
        if self.why:
            words = f"round {self.round}: no secure sum: {self.why}; attempt {self.attempt} of {self.of}"
        return [Event("attempt", words, self.round), *device_events(self.round, self.refused, self.silent)]


def append(path: Path, report: RoundReport | FailedAttempt) -> None:
    """Add a line to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(report), allow_nan=False) + "\n")


def drop_reports(path: Path, done: int) -> None:
    """Keep the lines of completed rounds: the last may be half written, or ahead of the checkpoint."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["round"] <= done:
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            continue
    with written_whole(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
