"""Federations that have a history without having run: the files that a server app leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fultr.deploy.folder import Deployment, init_deployment, load_deployment
from fultr.deploy.release import publish_first, rollout
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Versions

DEVICES, ROUNDS = 7, 12
LARGE = "update: its norm is 243, and 100 is the limit"


def rounds() -> list[dict[str, Any]]:
    """Device 3 refuses in every round, 5 sends too much from round 8 on, 6 is silent in rounds 4 and 5."""
    lines = []
    for t in range(1, ROUNDS + 1):
        refused = {"3": "it refused"} | ({"5": LARGE} if t >= 8 else {})
        silent = [6] if t in (4, 5) else []
        accepted = [u for u in range(DEVICES) if str(u) not in refused and u not in silent]
        judged = {"ranked": 0.5 + t / 100, "displayed": 0.5, "ranked_error": 0.01, "displayed_error": 0.02}
        lines.append(
            {
                "round": t,
                "of": ROUNDS,
                "asked": DEVICES,
                "accepted": accepted,
                "refused": refused,
                "silent": silent,
                "answered": {str(u): 1.0 + u for u in range(DEVICES) if u not in silent},
                "moved": 0.1,
                "judged": {**judged, "devices": len(accepted)},
                "examination": [1.0, 0.5, 0.25],
                "seconds": 8.0,
                "attempt": 1,
            }
        )
    return lines


ATTEMPT = {
    "round": 6,
    "attempt": 1,
    "of": 3,
    "time": 1.8e9,
    "needed": 2,
    "asked": DEVICES,
    "accepted": [0],
    "refused": {"3": "it refused"},
    "silent": [1, 2, 4, 5, 6],
    "answered": {"0": 1.0, "3": 4.0},
    "seconds": 60.0,
}
"""An attempt at round 6 that failed."""


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def past_federation(folder: Path) -> Deployment:
    """A federation whose server app has done all rounds, and has written two versions; the second is under trial."""
    init_deployment(folder, DEVICES)
    settings = folder / "federation.toml"
    settings.write_text(f"features = 2\nrounds = {ROUNDS}\n")
    state = folder / "state"
    write_lines(state / "progress.jsonl", rounds())
    write_lines(state / "attempts.jsonl", [ATTEMPT])
    versions, parent = Versions(state / "versions"), None
    for done in (ROUNDS // 2, ROUNDS):
        judged = {"standard_error": 0.01, "devices": 4}
        found = {"held-out clicks": {"mean": 0.6, **judged}, "held-out clicks, as displayed": {"mean": 0.5, **judged}}
        ranker = Ranker(np.float32([done, 1]), np.array([1, 2]), training={"rounds": done})
        parent = versions.write(ranker, parent=parent, configuration={}, metrics=found).name
        publish_first(folder)
    rollout(folder, "latest", 0.25)
    return load_deployment(folder)
