"""The on-device log under threads, processes, forks and kills: nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from help.device_logs import PAGE, opened

from fultr.device import sqlite as device_file

# Threads and processes

WRITER = """
import sys
from fultr.device.log import DeviceLog
with DeviceLog.open(sys.argv[1], features=519, retention=None) as log:
    page = [[float(i)] * 519 for i in range(10)]
    for i in range(150):
        shown = log.log_impression(i, page, version=sys.argv[2])
        print(shown, flush=True)
        if i % 2:
            log.log_click(shown, 1 + i % 10)
            print(-shown, flush=True)
"""


def writer(path: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, text=True)


def killed_writer(path: Path, seconds: float, version: str = "", forgets: bool = False) -> list[int]:
    """Fork a process that logs until it is killed.

    Returns the ids that it acknowledged, those of clicks negative, with a 0 before and after it forgets something.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with opened(path, features=519) as log:
                page = np.ones((10 if forgets else 1, 519))
                for i in range(10**6):
                    shown = log.log_impression(i, page, version=version)
                    os.write(write, struct.pack("<q", shown))
                    if i % 2:
                        log.log_click(shown, 1 + i % len(page))
                        os.write(write, struct.pack("<q", -shown))
                    if forgets and i % 10 == 9:
                        os.write(write, struct.pack("<q", 0))
                        log.log_impression("to be forgotten", page)
                        log.forget(query="to be forgotten")  # which writes the file anew
                        os.write(write, struct.pack("<q", 0))
        finally:
            os._exit(1)
    os.close(write)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    return [event for (event,) in struct.iter_unpack("<q", said[: len(said) // 8 * 8])]


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("forgets", [False, True])
def test_a_killed_process_loses_nothing_that_was_acknowledged(path, forgets):
    """Killed at 12 moments while it logs, and at 12 while it writes the file anew; and while it opens the file."""
    rng, kills, hits = random.Random(0), 0, 0
    shown, clicked = set(), set()  # with who says so, as the id of an impression that was lost is given again
    while hits < 12 and kills < 400:
        said = killed_writer(path, rng.random() ** 2 * 0.2, str(kills), forgets)
        shown |= {(event, str(kills)) for event in said if event > 0}
        clicked |= {(-event, str(kills)) for event in said if event < 0}
        hits += said.count(0) % 2 if forgets else bool(said)
        kills += 1
        if kills % 2 and path.exists():  # at every other kill the next process finds the file as it was left
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with opened(path, features=519) as log:
        log.check()
        found = log.records()
        last = log.log_impression("q", np.ones((1, 519)))
    kept = list(zip(found.impressions.tolist(), found.versions, strict=True))
    assert len(shown) > 100
    assert hits == 12
    assert shown <= set(kept)
    assert clicked <= {event for event, row in zip(kept, found.log.clicks, strict=True) if row.any()}
    assert len(set(kept) - shown) <= kills  # at most one each that was stored, and not acknowledged or forgotten yet
    assert last > max(shown)[0]


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_killed_while_it_begins_the_file_leaves_one_that_opens(tmp_path):
    for i in range(40):
        path = tmp_path / f"{i}.db"
        events = killed_writer(path, i * 0.001)
        with opened(path, features=519) as log:
            assert {event for event in events if event > 0} <= set(log.records().impressions.tolist())
            log.check()


def test_an_empty_file_and_one_without_write_ahead_logging_open(tmp_path):
    """What a process leaves that is killed while it begins the file."""
    (tmp_path / "empty.db").touch(mode=0o644)
    with opened(tmp_path / "empty.db") as log:
        log.log_impression("q", PAGE)
    assert stat.S_IMODE((tmp_path / "empty.db").stat().st_mode) == 0o600
    (tmp_path / "tables.db").touch()
    with closing(device_file.connect(tmp_path / "tables.db", write=True)) as connection:
        device_file.upgrade(tmp_path / "tables.db", connection)
    with opened(tmp_path / "tables.db") as log:
        log.log_impression("q", PAGE)
        assert log._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert log._connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


@pytest.mark.process
def test_two_processes_at_once_lose_nothing(path):
    processes = [writer(path, name) for name in "ab"]  # both begin the file
    said = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    with opened(path, features=519) as log:
        found = log.records()
        log.check()
    assert sorted(found.versions) == ["a"] * 150 + ["b"] * 150
    assert sorted(int(line) for lines in said for line in lines if int(line) > 0) == sorted(found.impressions)
    assert found.log.clicks.sum() == 150


def test_many_threads_lose_nothing(path):
    with opened(path) as log:

        def work(number: int) -> None:
            for i in range(40):
                shown = log.log_impression(number, PAGE, version=str(number))
                assert log.log_click(shown, 1 + i % 2)
                if i % 20 == 0:
                    log.records()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = log.records()
    assert sorted(found.versions) == sorted(str(i) for i in range(8) for _ in range(40))
    assert (found.log.clicks.sum(axis=1) == 1).all()


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_goes_on_with_the_log(path):
    """The parent closes the file while the child is writing: nothing that the child wrote is lost."""
    log = opened(path)
    log.log_impression("q", PAGE, version="parent")
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            log.log_impression("q", PAGE, version="child")
            os.write(ready[1], b"1")
            os.read(go[0], 1)
            for _ in range(20):
                log.log_impression("q", PAGE, version="child")
            log.close()
            code = 0
        finally:
            os._exit(code)
    os.read(ready[0], 1)
    log.log_impression("q", PAGE, version="parent")
    log.close()
    os.write(go[1], b"1")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for end in (*ready, *go):
        os.close(end)
    with opened(path) as log:
        log.check()
        assert sorted(log.records().versions) == ["child"] * 21 + ["parent"] * 2
