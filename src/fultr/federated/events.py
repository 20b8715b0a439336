"""What happens in a federation, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """Something that happened on the server.

    Attributes:
        what: one word: resumed, waiting, round, attempt (one that failed), refused, silent, lost, judged, compared,
            trees (fewer than were grown), released, unreleased (a version that should
            have been), error, done.
        words: for people.
        round: from 1, if it is about one.
        device: its number, if it is about one.

    >>> print(Event("round", "round 3 of 10: 5 of 5 devices", round=3))
    round 3 of 10: 5 of 5 devices
    """

    what: str
    words: str
    round: int | None = None
    device: int | None = None

    def __str__(self) -> str:
        return self.words


def device_events(t: int, refused: Mapping[int, str], silent: Sequence[int]) -> list[Event]:
    """An event for each device that was asked in round t and is of no use.

    >>> for event in device_events(3, {4: "it refused"}, [2]):
    ...     print(event)
    round 3: device 4 refused: it refused
    round 3: no answer from device 2
    """
    found = [Event("refused", f"round {t}: device {u} refused: {why}", t, u) for u, why in sorted(refused.items())]
    return found + [Event("silent", f"round {t}: no answer from device {u}", t, u) for u in silent]
