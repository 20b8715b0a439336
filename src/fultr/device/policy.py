"""What a device's owner lets it answer: the device keeps to this, whatever a server asks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fultr.core.settings import check, leaves, setting
from fultr.core.settings_file import read_settings
from fultr.federated.estimators import ESTIMATORS

KINDS = ("update", "examination", "weights", "judgement")
"""What an answer may hold: the update; the estimator's sums; sums that a clip of clicks' weights is chosen by; and how
good a ranker is by clicks that were held out."""


@dataclass(frozen=True)
class DevicePolicy:
    """The limits of a device: the `[policy]` table of its node.toml.

    An answer is made from closed batches of the log. Two answers come from the same clicks and impressions, or from
    sets that differ by at least `least_clicks` clicks and `least_impressions` impressions.

    >>> DevicePolicy(least_clicks=5, sends=["update"]).sends
    ('update',)
    """

    least_clicks: int = setting(20, "Two answers differ by at least this many clicks, or not at all.", least=1)
    least_impressions: int = setting(
        50, "Two answers differ by at least this many impressions, or not at all.", least=1
    )
    window: Literal["all", "latest"] = setting("all", "What an answer is made from: all closed batches, or the latest.")
    answers_a_day: int = setting(50, "Answers in 24 hours, at most.", least=0)
    answers_in_all: int = setting(2000, "Answers in all, at most.", least=0)
    seconds_apart: float = setting(0.5, "Seconds between two answers, at least.", least=0)
    estimators: tuple[str, ...] = setting(
        tuple(ESTIMATORS), "Estimators of examination that it sends sums for.", choices=ESTIMATORS
    )
    sends: tuple[str, ...] = setting(KINDS, "What it is willing to send.", choices=KINDS)
    least_propensity: float = setting(
        0.01,
        "Smallest propensity that a click is divided by: a task with smaller ones is refused, "
        "a smaller mean over versions counts as this.",
        above=0,
        most=1,
    )
    most_epochs: int = setting(10, "Passes over its log that it trains for, at most.", least=1)
    held_out: float = setting(0.2, "Share of its impressions that only judge rankers.", least=0, below=1)
    largest_norm: float = setting(
        10.0, "Largest norm of an update; of other sums, per impression. Larger ones are scaled down.", above=0
    )
    only_sums: bool = setting(False, "Answer only in secure sums, never in the clear.")
    least_summed: int = setting(3, "Devices in a secure sum, at least, also if the server cheats.", least=3)
    participations: int = setting(2000, "Answers to one run, at most; with privacy, to one training.", least=0)
    rounds_apart: int = setting(0, "Rounds from one answer to a run to the next, at least.", least=0)
    least_noise: float = setting(
        0.0, "Noise multiplier that devices themselves add, at least; 0: also tasks without noise of theirs.", least=0
    )
    displayed: int = setting(0, "Ranks that count, K; 0: those of the longest list in the log.", least=0, most=1000)

    def __post_init__(self) -> None:
        check(self)

    @classmethod
    def read(cls, path: str | Path) -> DevicePolicy:
        """From the `[policy]` table of a TOML file; what it does not say has its default."""
        return read_settings(cls, path, table="policy")


def policy_lines() -> str:
    """The default policy as lines of TOML, each with what it means.

    >>> print(policy_lines().splitlines()[0])
    least_clicks = 20  # Two answers differ by at least this many clicks, or not at all.
    """
    lines = []
    for leaf in leaves(DevicePolicy).values():
        default = list(leaf.default) if isinstance(leaf.default, tuple) else leaf.default
        lines.append(f"{leaf.name} = {json.dumps(default)}  # {leaf.help}")
    return "\n".join(lines)
