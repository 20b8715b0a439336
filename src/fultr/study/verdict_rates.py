"""How often `fultr estimate` says trust, trust with care and do not trust, on simulated logs whose truth is known.

`python -m fultr.study.verdict_rates` prints the tables of docs/estimating.md, of logs that follow the position-based
model and of logs that do not; words after it (`clean`, `violated`, or from the names of cases) print a part.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from fultr.clicks.diagnosis import diagnose
from fultr.clicks.findings import ANSWERS
from fultr.study.click_scenarios import Scenario

CHECKS = ("feedback", "trust bias", "cascade", "order", "methods")  # what is found, beside what is uncertain
LOGS = {2_000: 40, 20_000: 20, 100_000: 4}  # how many of each number of pages, for every case


@dataclass(frozen=True)
class Rates:
    """What is said of the logs of a scenario.

    Attributes:
        logs: how many there were.
        answers: how many got each answer.
        found: how many were found by each check to violate the model.
        alarms: how many were found to by any check.
        ratio: the estimate at the last rank over the truth, mean over logs.
    """

    logs: int
    answers: Counter[str]
    found: Counter[str]
    alarms: int
    ratio: float


def rates(scenario: Scenario, logs: int = 60, *, draws: int = 20, first: int = 0) -> Rates:
    """Diagnose logs with seeds from `first` on.

    >>> rates(Scenario(pages=500), 2, draws=20).logs
    2
    """
    answers: Counter[str] = Counter()
    found: Counter[str] = Counter()
    ratios, alarms = [], 0
    for seed in range(first, first + logs):
        log, truth = scenario.drawn(seed)
        said = diagnose(log, draws=draws, seed=seed)
        about = {one.about for one in said.conclusion.findings if one.about in CHECKS}
        answers[said.conclusion.answer] += 1
        found.update(about)
        alarms += bool(about)
        ratios.append(said.examination[-1] / truth[-1])
    return Rates(logs, answers, found, alarms, float(np.mean(ratios)))


_BASE = Scenario()
CLEAN: tuple[tuple[str, Scenario], ...] = (
    ("gamma 0", replace(_BASE, gamma=0.0)),
    ("gamma 0.5", replace(_BASE, gamma=0.5)),
    ("gamma 1", _BASE),
    ("gamma 2", replace(_BASE, gamma=2.0)),
    ("2 versions", replace(_BASE, versions=2)),
    ("10 versions", replace(_BASE, versions=10)),
    ("10 versions in turn", replace(_BASE, versions=10, in_turn=True)),
    ("2 versions in turn", replace(_BASE, versions=2, in_turn=True)),
    ("one query has 62% of the pages", replace(_BASE, skew=2.0)),
    ("a few queries have most of them", replace(_BASE, skew=1.2, queries=300)),
    ("1,000 queries", replace(_BASE, queries=1000)),
    ("pages of 10", replace(_BASE, ranks=10, pool=14)),
    ("queries differ, contrast 0.5", replace(_BASE, contrast=0.5)),
    ("users differ, and scan down", replace(_BASE, patience=0.5, scans=True)),
)
VIOLATED: tuple[tuple[str, Scenario], ...] = (
    ("learns from clicks at 200 times", replace(_BASE, learning=1.0, updates=200)),
    ("learns at 20 times", replace(_BASE, learning=1.0, updates=20)),
    ("learns at 20 times, 1,000 queries", replace(_BASE, learning=1.0, updates=20, queries=1000)),
    ("learns at 5 times", replace(_BASE, learning=1.0, updates=5)),
    ("learns at 20 times, from clicks 3 updates ago", replace(_BASE, learning=1.0, updates=20, delay=3)),
    ("learns for each of 20 users", replace(_BASE, learning=1.0, updates=200, users=20, taste=0.5)),
    ("learns once", replace(_BASE, learning=1.0, updates=1)),
    ("learns once, 1,000 queries", replace(_BASE, learning=1.0, updates=1, queries=1000)),
    ("trust 0.1", replace(_BASE, trust=0.1)),
    ("trust 0.3", replace(_BASE, trust=0.3)),
    ("trust 0.5", replace(_BASE, trust=0.5)),
    ("trust 0.3, 10 versions", replace(_BASE, trust=0.3, versions=10)),
    ("trust 0.3, queries differ", replace(_BASE, trust=0.3, contrast=0.5)),
    ("slips 0.02", replace(_BASE, slips=0.02)),
    ("slips 0.05", replace(_BASE, slips=0.05)),
    ("cascade, continues 0.9", replace(_BASE, scans=True, continues=0.9)),
    ("cascade, continues 0.5", replace(_BASE, scans=True, continues=0.5)),
    ("cascade, stops at the first click", replace(_BASE, scans=True, continues=0.0)),
)


def table(cases: Sequence[tuple[str, Scenario]]) -> None:
    """Print a table: shares of logs, in per cent."""
    heads = ("", "pages", "logs", "last rank over truth", *ANSWERS, *CHECKS, "any")
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for pages, number in LOGS.items():
        total: Counter[str] = Counter()
        for name, case in cases:
            first = crc32(f"{name}, {pages}".encode())  # logs with the same seed would be lucky and unlucky together
            said = rates(replace(case, pages=pages), number, first=first)
            counts = Counter({**said.answers, **said.found, "any": said.alarms})
            _row(name, pages, said.logs, f"{said.ratio:.2f}", counts)
            total += counts + Counter(logs=said.logs)
        _row("all", pages, total["logs"], "", total)


def _row(name: str, pages: int, logs: int, ratio: str, counts: Counter[str]) -> None:
    shares = " | ".join(f"{100 * counts[one] / logs:.0f}" for one in (*ANSWERS, *CHECKS, "any"))
    print(f"| {name} | {pages:,} | {logs} | {ratio} | {shares} |", flush=True)


def main(words: list[str]) -> None:
    """Print the tables."""
    for part, cases in (("clean", CLEAN), ("violated", VIOLATED)):
        chosen = [one for one in cases if not words or part in words or any(word in one[0] for word in words)]
        if chosen:
            table(chosen)


if __name__ == "__main__":
    main(sys.argv[1:])
