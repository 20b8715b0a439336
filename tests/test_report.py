"""What a comparison says and writes, from made-up curves with known answers."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from fultr.experiments import Choice, Comparison, Outcome
from fultr.findings import estimate, sentences, table
from fultr.report import write_report


def outcome(repeats: int = 4, gain: float = 0.05, noise: float = 0.001) -> Outcome:
    rng = np.random.default_rng(0)
    rounds = np.arange(0, 21, 5)
    settings = Comparison(gammas=(0.5, 2.0), repeats=repeats, rounds=20)

    def curve(end):
        return end - 0.2 * np.exp(-rounds / 5) + noise * rng.standard_normal((repeats, 1))

    curves = {("FedIPS", 0.5): curve(0.60), ("FedIPS", 2.0): curve(0.58), ("FedAvg", 0.5): curve(0.60 - gain),
              ("FedAvg", 2.0): curve(0.58 - 2 * gain)}  # fmt: skip
    choices = tuple(
        Choice(name, gamma, 0.01, 2.0, ("server",) if name == "FedIPS" else (), ((0.01, 2.0, 0.5),))
        for name, gamma in curves
    )
    level = np.ones(repeats) + noise * rng.standard_normal(repeats)
    return Outcome(
        settings, "made-up", ("a", "b", "c"), rounds, curves, 0.3 * level, 0.45 * level, 0.65 * level, choices, 0.1
    )


def test_clear_differences_are_called_clear():
    said = " ".join(sentences(outcome()))
    assert re.search(
        r"At γ = 0.5, FedIPS minus FedAvg is \+0.0[45]\d+ ± 0.000\d \([^)]* errors, p = \S+: clear\)", said
    )
    assert re.search(r"FedIPS goes (49|50|51)% of the way", said)
    assert "FedAvg's loss minus FedIPS's is +0.0" in said
    assert "edge of its grid was chosen for FedIPS at γ = 0.5 (server), FedIPS at γ = 2 (server)" in said


def test_no_difference_is_called_none_and_one_repeat_too_little():
    assert "not distinguishable from 0" in sentences(outcome(repeats=30, gain=0.0, noise=0.01))[0]
    assert "from a single repeat: too little to tell" in sentences(outcome(repeats=1))[0]


def test_paired_differences_by_hand():
    values = np.array([0.1, 0.2, 0.4])
    assert estimate(values).mean == pytest.approx(0.7 / 3)
    assert estimate(values).standard_error == pytest.approx(values.std(ddof=1) / 3**0.5)
    assert estimate(values).p_value == pytest.approx(ttest_1samp(values, 0).pvalue)


def test_table_has_every_method():
    assert [name for name, _ in table(outcome())] == [
        "random ranking",
        "logging policy",
        "FedAvg",
        "FedIPS",
        "λLinear (all grades known)",
    ]


def test_files_hold_every_digit(tmp_path):
    made = outcome()
    written = write_report(made, tmp_path / "a" / "b", seconds=1.0)
    assert written[0].name == "report.html"
    rows = list(csv.DictReader((tmp_path / "a" / "b" / "curves.csv").read_text().splitlines()))
    assert len(rows) == 4 * 4 * 5
    for row in rows[:20]:
        curve = made.curves[row["algorithm"], float(row["gamma"])][int(row["repeat"])]
        assert float(row["ndcg@5"]) == curve[made.rounds.tolist().index(int(row["round"]))]
    stored = json.loads((tmp_path / "a" / "b" / "results.json").read_text())
    assert stored["final"]["FedIPS gamma=0.5"] == made.final("FedIPS", 0.5).tolist()
    assert stored["settings"]["rounds"] == 20


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_report import outcome
from fultr.report import write_report
while True:
    write_report(outcome(), Path(sys.argv[2]), seconds=1.0)
    print("written", flush=True)
"""


@pytest.mark.slow
def test_killing_it_while_it_writes_leaves_whole_files_only(tmp_path):
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(tmp_path)]
    for delay in (0.0, 0.17, 0.31):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()  # one report is there; it is at work on the next
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert (tmp_path / "report.html").read_text().rstrip().endswith("</html>")
        json.loads((tmp_path / "results.json").read_text())
        assert (tmp_path / "figure.png").read_bytes().endswith(b"IEND\xaeB`\x82")
    write_report(outcome(), tmp_path, seconds=1.0)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["curves.csv", "figure.png", "report.html", "results.json"]
