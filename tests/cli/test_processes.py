"""The command as a user runs it, where that matters: pipes, signals and terminals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from help.commands import FULTR, fultr, members, process, terminal, wait_until

pytestmark = pytest.mark.process

LONG = """\
data = ["toy"]
repeats = 500

[settings]
clients = 200
rounds = 200

[[line]]
name = "FedIPS"
"""


def test_standard_input_can_be_scored(folder, trained):
    with (folder / "test.txt").open() as text:
        command = [FULTR, "rank", trained / "ranker.json", "/dev/stdin"]
        scored = subprocess.run(command, stdin=text, capture_output=True, text=True, check=True)
    assert scored.stdout == fultr("rank", trained / "ranker.json", folder / "test.txt").out


def test_a_pipe_cannot_be_read_twice(folder, trained):
    trec = f"cat {folder / 'test.txt'} | {FULTR} rank {trained / 'ranker.json'} /dev/stdin --format trec"
    done = subprocess.run(trec, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "which a pipe does not allow" in done.stderr


def test_a_reader_that_goes_away_ends_the_command_quietly(folder, trained):
    gone = f"{FULTR} rank {trained / 'ranker.json'} {folder / 'test.txt'} | true"
    assert subprocess.run(gone, shell=True, capture_output=True, text=True, check=True).stderr == ""


def test_closed_streams_are_no_error():
    """As some services start their processes."""
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        command = f"{sys.executable} -m fultr completion bash {closed}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
        assert (done.stdout != "", done.stderr) == (closed == "2>&-", "")


def test_progress_is_for_terminals_only(folder):
    """By the name of the module too."""
    command = [sys.executable, "-m", "fultr", "simulate", "--data", folder, "--clients", "60", "--rounds", "6"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "NDCG@5 test" in done.stdout


@pytest.mark.slow
def test_a_long_run_on_a_terminal_and_an_interruption(folder, tmp_path):
    """At 80 columns bar, count and time left are there while rates are tuned; Ctrl-C says how to resume."""
    out = tmp_path / "out"
    bar = re.compile(r"[━╸╺]{20,} +[1-9]\d*/\d+ runs \d:\d\d:\d\d left \d+ (s|min|h)\b.*")
    with terminal("run", "--data", folder, "--repeats", 2, "--clients", 500, "--out", out) as shown:
        assert wait_until(lambda: any(bar.fullmatch(line) for line in shown.lines())), shown.lines()[-5:]
        assert wait_until(lambda: any("run, tuning: data0, " in line for line in shown.lines()))
        drawn = shown.lines()  # before Ctrl-C, at which a terminal drops what it has not shown yet
        assert max(len(line) for line in drawn[:-1] if str(out) not in line) <= 80
        shown.press("\x03")
        assert shown.ended() == 130
        told = "".join(shown.lines()[-3:]).partition("fultr: ")[2]
    resume = f"fultr run --data {folder} --repeats 2 --clients 500 --out {out}"
    assert told == f"interrupted; finished runs are kept in {out}, and the same command resumes: {resume}"
    assert list((out / "runs").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("everyone", [False, True], ids=["command", "group"])
def test_termination_leaves_one_line_and_no_process(folder, tmp_path, everyone):
    """SIGTERM to the command alone, as by kill, or to its workers too, as when a machine shuts down."""
    (tmp_path / "long.toml").write_text(LONG)
    arguments = ("reproduce", "long.toml", "--data", folder, "--out", "out", "--workers", 2)
    with process(*arguments, cwd=tmp_path) as child:
        group, runs = child.pid, tmp_path / "out" / "runs"
        under_way = wait_until(lambda: list(runs.glob("*.json")))
        workers = len([args for args in members(group) if "popen_loky" in args])
        (os.killpg if everyone else os.kill)(group, signal.SIGTERM)
        out, err = child.communicate(timeout=60)
    assert under_way
    assert workers == 2
    assert (child.returncode, out) == (143, "")
    resume = f"fultr {' '.join(map(str, arguments))}"
    first, last = err.splitlines()
    assert first.startswith("500 runs: about ")
    assert last == f"fultr: terminated; finished runs are kept in out, and the same command resumes: {resume}"
    assert wait_until(lambda: not members(group), 10), members(group)


@pytest.mark.slow
def test_an_interrupted_simulation_resumes_from_its_checkpoint(folder, tmp_path):
    """It ends like one that was not interrupted. One without a folder keeps nothing, and promises nothing."""
    small = ("simulate", "--data", folder, "--clients", 300, "--rounds", 4000, "--json")
    with process(*small, "--out", tmp_path / "a") as child:
        assert wait_until((tmp_path / "a" / "checkpoint.npz").exists)
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert err.startswith(f"fultr: interrupted; the same command resumes from {tmp_path}/a/checkpoint.npz: fultr sim")
    assert err.count("\n") == 1
    resumed, whole = (json.loads(fultr(*small, "--out", tmp_path / name).out) for name in "ab")
    assert {**resumed, "out": None} == {**whole, "out": None}
    with process(*small) as child:
        assert not wait_until(lambda: child.poll() is not None, 1.5)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60) == ("", "fultr: interrupted\n")
