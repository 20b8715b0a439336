"""The history of a federation, from the files that its server app writes: per round, per device, per reason.

Read from progress.jsonl and attempts.jsonl, see `fultr.federated.federate`. Files that are missing or damaged make a
history short, never an error: who watches a federation needs to see the rest.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias, TypeVar

from fultr.federated.judging import Judgement

Outcome: TypeAlias = Literal["answered", "refused", "bad", "silent"]
"""Of asking a device: its reply was accepted; it refused to answer; it sent what is of no use; it sent nothing."""

REASONS = {
    "refused": "refused to answer; its own log of tasks says why",
    "undelivered": "the reply did not arrive in time, or not whole",
    "unreadable": "the reply cannot be read",
    "wrong round": "the reply is about another round",
    "not finite": "numbers that are not finite",
    "too large": "numbers beyond a limit",
    "wrong content": "other arrays than were asked for",
    "impossible": "counts that no device can have counted",
    "other": "anything else",
}
"""Classes of reasons why a device's answer was not used, and what they mean."""

_PATTERNS = (
    ("refused", r"it refused$"),
    ("undelivered", r"no answer in time|it cannot be reached|its reply did not arrive whole|Flower's error"),
    ("unreadable", r"its reply (cannot be read|is no byte string|names no round|has [\d,]+ objects)"),
    ("unreadable", r"it is another program's message|it holds no named arrays"),
    ("wrong round", r"it is (not )?about round"),
    ("not finite", r".*: not finite$"),
    ("too large", r".* is the limit$"),
    ("wrong content", r".*: (not asked for|missing)$|[^:]*: expected (float|an array)"),
    ("impossible", r"a judgement above the best|[^:]*: expected "),
)
_DEVICES = 10**9  # numbers of devices are below
_SHOWN = 200  # characters of a reason


@lru_cache(maxsize=4096)
def reason_class(why: str) -> str:
    """The class of a reason in words, one of `REASONS`.

    >>> reason_class("update: its norm is 240, and 100 is the limit"), reason_class("it refused")
    ('too large', 'refused')
    """
    return next((name for name, pattern in _PATTERNS if re.match(pattern, why)), "other")


@dataclass(frozen=True)
class Round:
    """An attempt at a round: who was asked, and what became of it.

    Attributes:
        number: from 1.
        attempt: from 1.
        completed: False: too few replies were accepted, and the attempt came to nothing.
        accepted: devices.
        refused: why a device's answer was not used, by device.
        silent: devices that did not answer in time.
        answered: seconds that the others took, by device.
        seconds: that the round took; None if that is not known.
        judged: the weights before the round, by held-out clicks.
        examination: of each rank after the round, as the server estimates it.
        why: there was no secure sum; empty without one.
    """

    number: int
    attempt: int = 1
    completed: bool = True
    accepted: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    answered: Mapping[int, float] = field(default_factory=dict)
    seconds: float | None = None
    judged: Judgement | None = None
    examination: tuple[float, ...] = ()
    why: str = ""

    def outcomes(self) -> dict[int, Outcome]:
        """What became of asking each device."""
        found: dict[int, Outcome] = dict.fromkeys(self.accepted, "answered")
        for device, why in self.refused.items():
            found[device] = "refused" if reason_class(why) == "refused" else "bad"
        return found | dict.fromkeys(self.silent, "silent")

    def trouble(self) -> list[str]:
        """What went wrong, in lines of words; devices with the same reason are named together.

        >>> Round(3, accepted=(0,), refused={1: "it refused", 4: "it refused"}, silent=(2,)).trouble()
        ['devices 1 and 4 refused to answer', 'no answer from device 2']
        >>> Round(3, completed=False, accepted=(0, 1, 2), why="a device was lost").trouble()
        ['attempt 1 failed: no secure sum: a device was lost']
        """
        lines, by_reason = [], dict[str, list[int]]()
        for device, why in sorted(self.refused.items()):
            by_reason.setdefault(why, []).append(device)
        for why, devices in by_reason.items():
            said = "to answer" if reason_class(why) == "refused" else f"by the server: {why}"
            verb = "" if said == "to answer" else "was " if len(devices) == 1 else "were "
            lines.append(f"{spoken_devices(devices)} {verb}refused {said}")
        if self.silent:
            lines.append(f"no answer from {spoken_devices(self.silent)}")
        if not self.completed:
            asked = len(self.accepted) + len(self.refused) + len(self.silent)
            usable = f"{len(self.accepted)} of {asked} devices sent a usable reply, too few"
            lines.insert(0, f"attempt {self.attempt} failed: {f'no secure sum: {self.why}' if self.why else usable}")
        return lines


def spoken_devices(devices: Sequence[int], most: int = 8) -> str:
    """Devices in words.

    >>> spoken_devices([3]), spoken_devices([1, 2, 5])
    ('device 3', 'devices 1, 2 and 5')
    >>> spoken_devices(range(20), most=3)
    'devices 0, 1, 2 and 17 more'
    """
    if len(devices) == 1:
        return f"device {devices[0]}"
    if len(devices) > most:
        return f"devices {', '.join(map(str, devices[:most]))} and {len(devices) - most} more"
    return f"devices {', '.join(map(str, devices[:-1]))} and {devices[-1]}"


@dataclass(frozen=True)
class DeviceHistory:
    """What became of asking a device.

    Attributes:
        device: its number.
        asked: times, attempts that failed included.
        answered: times its reply was accepted.
        refused: times it refused, or its reply was.
        silent: times it did not answer.
        seconds: median time of its answers of any kind; None if it gave none.
        last_answered: the latest round in which its reply was accepted; None: never.
        failing: times it was asked since then.
        reasons: why it was refused, with how often, the most frequent first.
        latest_reason: why it was refused last; empty: never.
    """

    device: int
    asked: int = 0
    answered: int = 0
    refused: int = 0
    silent: int = 0
    seconds: float | None = None
    last_answered: int | None = None
    failing: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    latest_reason: str = ""

    @property
    def trouble(self) -> bool:
        """Was it ever of no use?"""
        return self.refused + self.silent > 0


@dataclass(frozen=True)
class History:
    """All that was asked of devices, in order.

    Attributes:
        rounds: those that were completed, and attempts that failed before the round that they were attempts at.
        damaged: lines that could not be read.
    """

    rounds: tuple[Round, ...] = ()
    damaged: int = 0

    @property
    def completed(self) -> tuple[Round, ...]:
        """The rounds that were completed."""
        return tuple(one for one in self.rounds if one.completed)

    @property
    def done(self) -> int:
        """Rounds that are done."""
        return max((one.number for one in self.completed), default=0)

    @property
    def trouble(self) -> bool:
        """Did anything go wrong?"""
        return any(one.refused or one.silent or not one.completed for one in self.rounds)

    def devices(self, known: Iterable[int] = ()) -> tuple[DeviceHistory, ...]:
        """The history of each device that was asked, and of further ones that are known, by number.

        >>> history = History((Round(1, accepted=(0,), silent=(1,)), Round(2, accepted=(0, 1))))
        >>> [(one.device, one.asked, one.silent, one.last_answered) for one in history.devices([2])]
        [(0, 2, 0, 2), (1, 2, 1, 2), (2, 0, 0, None)]
        """
        outcomes: dict[int, list[tuple[Round, Outcome]]] = {device: [] for device in known}
        for one in self.rounds:
            for device, outcome in one.outcomes().items():
                outcomes.setdefault(device, []).append((one, outcome))
        return tuple(_device(device, outcomes[device]) for device in sorted(outcomes))

    def quality(self) -> tuple[int, Judgement] | None:
        """How many rounds had been done when devices last judged the ranker, and what they found."""
        found = [(one.number - 1, one.judged) for one in self.completed if one.judged is not None]
        return found[-1] if found else None


def _device(device: int, asked: Sequence[tuple[Round, Outcome]]) -> DeviceHistory:
    counts = Counter(outcome for _, outcome in asked)
    accepted = [i for i, (_, outcome) in enumerate(asked) if outcome == "answered"]
    reasons = [one.refused[device] for one, _ in asked if device in one.refused]
    seconds = [one.answered[device] for one, _ in asked if device in one.answered]
    return DeviceHistory(
        device,
        asked=len(asked),
        answered=counts["answered"],
        refused=counts["refused"] + counts["bad"],
        silent=counts["silent"],
        seconds=median(seconds) if seconds else None,
        last_answered=asked[accepted[-1]][0].number if accepted else None,
        failing=len(asked) - 1 - accepted[-1] if accepted else len(asked),
        reasons=dict(Counter(reasons).most_common()),
        latest_reason=reasons[-1] if reasons else "",
    )


def read_history(state: Path) -> History:
    """The history in the folder where a server app keeps its state."""
    rounds, damaged = [], 0
    for name in ("attempts.jsonl", "progress.jsonl"):
        try:
            lines = (state / name).read_bytes().splitlines()
        except OSError:
            continue
        for line in lines:
            one = read_line(line, completed=name == "progress.jsonl")
            rounds += [] if one is None else [one]
            damaged += one is None
    return History(tuple(sorted(rounds, key=lambda one: (one.number, one.completed))), damaged)


def read_line(line: bytes | Mapping[str, Any], completed: bool) -> Round | None:
    """A round from a line of progress.jsonl or of attempts.jsonl; None if it is none. What is odd is left out."""
    try:
        said = json.loads(line) if isinstance(line, bytes) else line
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, Mapping) or (number := _whole(said.get("round"), least=1)) is None:
        return None
    return Round(
        number,
        _whole(said.get("attempt"), least=1) or 1,
        completed,
        _listed(said.get("accepted"), _device_number),
        _by_device(said.get("refused"), lambda why: why[:_SHOWN] if isinstance(why, str) else None),
        _listed(said.get("silent"), _device_number),
        _by_device(said.get("answered"), _real),
        _real(said.get("seconds")),
        _judgement(said.get("judged")),
        _listed(said.get("examination"), _real),
        why[:_SHOWN] if isinstance(why := said.get("why"), str) else "",
    )


_Value = TypeVar("_Value")


def _whole(value: object, least: int = 0) -> int | None:
    return value if type(value) is int and least <= value < 10**12 else None


def _device_number(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 12:  # a key of JSON
        value = int(value)
    number = _whole(value)
    return number if number is not None and number < _DEVICES else None


def _real(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:  # nor NaN
        return float(value)
    return None


def _listed(values: object, read: Callable[[object], _Value | None]) -> tuple[_Value, ...]:
    found = [read(value) for value in values] if isinstance(values, list) else []
    return tuple(value for value in found if value is not None)


def _by_device(values: object, read: Callable[[object], _Value | None]) -> dict[int, _Value]:
    found = {}
    for key, value in values.items() if isinstance(values, Mapping) else ():
        device, meant = _device_number(key), read(value)
        if device is not None and meant is not None:
            found[device] = meant
    return found


def _judgement(said: object) -> Judgement | None:
    if not isinstance(said, Mapping):
        return None
    ranked, displayed, devices = _real(said.get("ranked")), _real(said.get("displayed")), _whole(said.get("devices"))
    if ranked is None or displayed is None or devices is None:
        return None
    return Judgement(ranked, displayed, _real(said.get("ranked_error")), _real(said.get("displayed_error")), devices)
