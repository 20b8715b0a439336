"""What secure sums cost a round on Flower: real nodes, with them and without, in one run."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from fultr.cli.bench.pilot import prepare
from fultr.cli.console import say
from fultr.deploy.services import running
from fultr.deploy.training import follow, submit


def flower_rounds(nodes: tuple[int, ...] = (5, 10), rounds: int = 8) -> list[tuple[str, float, str, str]]:
    """Rounds of real nodes on this machine, with secure sums and without; the first, a cold one, is not counted.

    Returns:
        What was measured, its value, its unit, and what is wanted.
    """
    rows = []
    for count in nodes:
        say(f"privacy: {count} nodes")
        with tempfile.TemporaryDirectory(prefix="fultr-bench-") as made:
            folder = Path(made) / "federation"
            prepare(folder, count, rounds)
            file, seconds = folder / "federation.toml", {}
            plain = file.read_text()
            with running(folder, 600.0):
                for name, text in (("plain", plain), ("sums", plain.replace("# secure_sums =", "secure_sums ="))):
                    file.write_text(text.replace('state-dir = "state"', f'state-dir = "{name}"'))
                    follow(folder, *submit(folder))
                    lines = (folder / name / "progress.jsonl").read_text().splitlines()
                    seconds[name] = float(np.median([json.loads(line)["seconds"] for line in lines[1:]]))
        rows += [
            (f"{count} nodes: a round, median", seconds["plain"], "s", ""),
            ("  with secure sums", seconds["sums"], "s", ""),
            ("  times as long", seconds["sums"] / seconds["plain"], "", "below 2"),
        ]
    return rows
