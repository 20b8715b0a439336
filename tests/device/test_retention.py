"""How much a log keeps, and forgetting: by age, number and size, with clocks and disks that fail."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from help.device_logs import PAGE, opened, raw_bytes

from fultr import DeviceLog, FultrError
from fultr.device import retention
from fultr.device import sqlite as device_file
from fultr.device.retention import Retention, apply_retention


def test_retention_by_number_age_and_size(path):
    now = time.time()
    with opened(path, features=500) as log:
        for i in range(120):
            log.log_impression(i, np.full((10, 500), i), time=now - (120 - i) * 3600)
    kept = opened(path, features=500, retention=Retention(None, 100, None))
    assert kept.records().display.features[::10, 0].tolist() == list(range(20, 120))
    for i in range(120, 220):  # looked after every 100 impressions, without being opened again
        kept.log_impression(i, np.full((10, 500), i), time=now)
    assert kept.stats().impressions == 100
    kept.log_impression(0, np.zeros((10, 500)), time=now - 10 * 86400)
    kept.close()
    with opened(path, features=500, retention=Retention(9.0, None, None)) as log:
        assert log.stats().impressions == 100
    with opened(path, features=500, retention=Retention(None, None, 1.0)) as log:
        assert 0.9e6 < log.stats().impressions * 10 * 500 * 4 < 1e6
    assert path.stat().st_size <= 1e6


@pytest.mark.parametrize("given", [30, "30 days", float("nan"), Retention])
def test_retention_of_another_type_creates_no_log(tmp_path, given):
    with pytest.raises(FultrError, match="retention: expected a value of type Retention, or None; found"):
        DeviceLog.open(tmp_path / "device.db", features=4, retention=given)
    assert not list(tmp_path.iterdir())


# Clocks that are wrong


DAY = 86_400.0


def kept_at(path: Path, now: float, days: float = 90.0) -> int:
    """How many impressions are left after the log is looked after at a time."""
    with closing(device_file.connect(path, write=True)) as connection:
        apply_retention(connection, Retention(days, None, None), now)
        return connection.execute("SELECT count(*) FROM impressions").fetchone()[0]


def test_a_clock_that_jumps_ahead_once_deletes_nothing(path):
    begun = 20_000 * DAY
    with opened(path) as log:
        for i in range(30):
            log.log_impression(i, PAGE, time=begun + i * DAY)
    now = begun + 30 * DAY
    assert kept_at(path, now) == 30
    assert kept_at(path, now + 4000 * DAY) == 30  # ahead, once
    assert kept_at(path, now + 4000.9 * DAY) == 30  # and almost a day long
    assert kept_at(path, now + 1 * DAY) == 30  # corrected
    assert kept_at(path, now + 4000 * DAY) == 30  # again
    assert kept_at(path, now + 70 * DAY) == 30  # and after a long pause: the clock is believed a day later
    assert kept_at(path, now + 71 * DAY) == 30 - 11  # those of days 0 to 10 are more than 90 days old on day 101


def test_a_clock_that_stays_ahead_is_believed_after_a_day(path):
    with opened(path) as log:
        log.log_impression(0, PAGE, time=0.0)
    assert kept_at(path, 365 * DAY) == 1
    assert kept_at(path, 366 * DAY) == 0


def test_a_clock_that_is_set_back_deletes_nothing_and_the_future_expires(path):
    """Impressions of a clock that was ahead have a date in the future: they go when they were seen 90 days ago."""
    now = 20_000 * DAY
    with opened(path) as log:
        log.log_impression("true", PAGE, time=now)
        log.log_impression("future", PAGE, time=now + 4000 * DAY)
        log.log_impression("tomorrow", PAGE, time=now + 0.5 * DAY)
    for day in range(91):
        assert kept_at(path, now + day * DAY) == 3
    with opened(path) as log:
        late = log.log_impression("another future", PAGE, time=now + 4000 * DAY)
    assert kept_at(path, now + 90.25 * DAY) == 2  # "tomorrow" and the other future one are left
    assert kept_at(path, now + 91 * DAY) == 1
    with opened(path) as log:
        assert log.records().impressions.tolist() == [late]
    for day in range(92, 181):  # it was first seen at 90.25
        assert kept_at(path, now + day * DAY) == 1
    assert kept_at(path, now + 181 * DAY) == 0
    assert kept_at(path, -now) == 0


# Full disks

ON_A_FULL_DISK = """
import sys
from pathlib import Path
import numpy as np
from fultr.device.log import DeviceLog

folder, rng = Path(sys.argv[1]), np.random.default_rng(0)
path = folder / "log.db"
log = DeviceLog.open(path, features=100, retention=None, hold_text=True)
for i in range(300):
    query = "secret" if i % 2 else "kept"
    shown = log.log_impression(query, rng.random((10, 100)), text=f"planted {query} {i}")
    log.log_click(shown, 1 + i % 10)
with (folder / "others").open("wb", buffering=0) as file:
    for size in (2**16, 2**9, 1):
        try:
            while True:
                file.write(bytes(size))
        except OSError:
            pass
print(log.forget(query="secret"), b"planted secret" in b"".join(p.read_bytes() for p in folder.glob("log.db*")))
log.check()
print(log.stats().impressions)
"""


@pytest.mark.process
def test_forgetting_on_a_full_disk(tmp_path):
    """A file system of 24 MB, mounted where only this process sees it; others have filled it to the last byte."""
    mounted = f"mount -t tmpfs -o size=24m none {tmp_path} && exec {sys.executable} -c '{ON_A_FULL_DISK}' {tmp_path}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", mounted], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("file systems cannot be mounted here")
    assert done.stderr == ""
    assert done.stdout.split() == ["150", "False", "150"]


def test_rows_are_overwritten_where_they_are_if_the_file_cannot_be_rewritten(path, monkeypatch):
    """And when there is space again, whoever opens the log rewrites it."""
    with opened(path, hold_text=True) as log:
        for i in range(200):
            log.log_impression(i % 2, np.full((10, 3), i), text=f"planted {i % 2} {i}")
        monkeypatch.setattr(retention, "_rewrite", lambda connection: False)
        assert log.forget(query=0) == 100
        assert raw_bytes(path).count(b"planted 0") == 0  # logged in order, so that SQLite moved no row
        assert log._connection.execute("SELECT value FROM settings WHERE name = 'wipes'").fetchone() == (1,)
        monkeypatch.undo()
    with opened(path) as log:
        assert log._connection.execute("SELECT value FROM settings WHERE name = 'wipes'").fetchone() == (0,)
        assert log.stats().impressions == 100
