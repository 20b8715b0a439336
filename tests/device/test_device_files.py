"""Files of the on-device log that are not as they should be, older, damaged, full or not writable."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import struct
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from help.device_logs import PAGE, files_of, opened

from fultr import DeviceLog, FultrError
from fultr.clicks.log import packed
from fultr.device import sqlite as device_file
from fultr.device.values import checksum

# Files that are not as they should be


def full(path: Path) -> bytes:
    """A closed log with some impressions, as bytes."""
    with opened(path, features=40) as log:
        for i in range(60):
            shown = log.log_impression(i % 9, np.full((4, 40), i), time=i)
            log.log_click(shown, 1 + i % 4)
    assert [file.name for file in files_of(path)] == [path.name]
    return path.read_bytes()


def other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE impressions (id)")


def newer(path: Path) -> None:
    full(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_text("my diary\n" * 100), "is not a device log, nor an SQLite database"),
        (other_database, "is an SQLite database of another application"),
        (newer, r"was written by a newer fultr \(its tables have version 7, this one knows 5\): update fultr"),
        (lambda path: path.write_bytes(full(path)[:50]), r"is damaged \(only 50 bytes are left\)"),
        (lambda path: path.write_bytes(full(path)[:9000]), "is damaged"),
        (lambda path: path.write_bytes(full(path)[:4096] + bytes(60_000)), "is damaged"),
    ],
)
def test_a_file_that_is_not_a_log_stays_as_it_is(path, make, said):
    make(path)
    path.chmod(0o640)
    before = path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns
    for features in (3, None):
        with pytest.raises(FultrError, match=said) as error:
            opened(path, features=features)
        assert "\n" not in str(error.value)
        assert str(error.value).startswith(f"{path}: ")
    assert (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns) == before


def test_flipped_bytes_are_one_clear_error_or_do_no_harm(path):
    """Wherever a byte is flipped: an error of one line, or the same log, or at worst another small value."""
    good, rng, said = full(path), random.Random(0), []
    with opened(path, features=40) as log:
        expected = log.records()
    for _ in range(60):
        at = rng.randrange(len(good))
        path.write_bytes(good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :])
        for file in files_of(path)[1:]:
            file.unlink()
        try:
            with opened(path, features=40) as log:
                log.check()
                found = log.records()
                log.log_impression("q", np.ones((1, 40)))
        except FultrError as error:
            said.append(str(error))
        else:
            assert found.display.features.tobytes() == expected.display.features.tobytes()
            assert found.impressions.tolist() == expected.impressions.tolist()
    assert len(said) > 20  # most of the file is features
    assert all(line.startswith(f"{path}: ") and "\n" not in line for line in said)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file" / "log.db", tmp_path / "nowhere" / "log.db", tmp_path):
        with pytest.raises(FultrError, match=f"^{wrong}: (cannot be opened|is not a file)"):
            opened(wrong)
    with pytest.raises(FultrError, match="there is no such file"):
        DeviceLog.open(tmp_path / "log.db")
    assert not (tmp_path / "log.db").exists()


@pytest.mark.skipif(os.name != "posix", reason="modes are those of Unix")
def test_a_read_only_folder():
    """As another user if the tests run as root, whom modes do not stop."""
    with tempfile.TemporaryDirectory() as name:
        folder, user = Path(name), os.geteuid()
        full(folder / "log.db")
        good = (folder / "log.db").read_bytes()
        (folder / "log.db").chmod(0o444)
        folder.chmod(0o555)
        try:
            if user == 0:
                os.seteuid(65534)
            for file in ("log.db", "new.db"):
                with pytest.raises(FultrError, match=f"{file}: cannot be (written|opened).*") as error:
                    opened(folder / file)
                assert "\n" not in str(error.value)
        finally:
            os.seteuid(user)
            folder.chmod(0o755)
        assert (folder / "log.db").read_bytes() == good
        assert [file.name for file in folder.iterdir()] == ["log.db"]


def test_a_full_disk_stores_nothing_of_the_call_and_all_before_it(path):
    with opened(path) as log:
        pages = log._connection.execute("PRAGMA page_count").fetchone()[0]
        log._connection.execute(f"PRAGMA max_page_count = {pages + 20}")  # SQLite then says SQLITE_FULL
        stored = []

        def fill() -> None:
            for i in range(1000):
                stored.append(log.log_impression(i, np.ones((100, 3))))

        with pytest.raises(FultrError, match="the disk is full: this call stored nothing; free some space"):
            fill()
        assert log.records().impressions.tolist() == stored
        assert log.forget(query=stored[0] - 1) == 1  # there is a way out
        assert log.log_impression("q", PAGE) > stored[-1]
        log.check()


LIMITED = """
import resource, sys
from fultr.device.log import DeviceLog
from fultr.core.errors import FultrError
with DeviceLog.open(sys.argv[1], features=519, retention=None) as log:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    stored = 0
    try:
        for i in range(1000):
            log.log_impression(i, [[1.0] * 519] * 10)
            stored += 1
    except FultrError as error:
        print(stored, error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.log_impression("q", [[1.0] * 519])  # there is room again
"""


@pytest.mark.process
def test_files_that_may_not_grow(path):
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    said = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True)
    stored, message = said.stdout.strip().split(" ", 1)
    assert message.startswith(f"{path}: cannot be read or written (disk I/O error)")
    assert int(stored) > 10
    with opened(path, features=519) as log:
        log.check()
        assert log.stats().impressions == int(stored) + 1


def test_a_locked_file_is_one_clear_error(path, monkeypatch):
    monkeypatch.setattr(device_file, "WAIT", 0.1)
    with opened(path) as log, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(FultrError, match="another process has kept it locked"):
            log.log_impression("q", PAGE)
        other.execute("ROLLBACK")
        assert log.log_impression("q", PAGE) == 1


def test_an_older_file_is_brought_up_to_date_whole_or_not_at_all(path, monkeypatch):
    good = full(path)
    assert struct.unpack_from(">i4xi", good, 60) == (5, int.from_bytes(b"fult", "big"))
    more = "ALTER TABLE impressions ADD COLUMN note TEXT"
    monkeypatch.setattr(device_file, "STEPS", (*device_file.STEPS, f"{more};\nINSERT INTO nowhere VALUES (1)"))
    with pytest.raises(FultrError, match="no such table: nowhere"):
        opened(path, features=40)
    assert path.read_bytes() == good
    monkeypatch.setattr(device_file, "STEPS", (*device_file.STEPS[:5], more))
    with opened(path, features=40) as log:
        assert log.records().impressions.size == 60
        assert log._connection.execute("SELECT count(note) FROM impressions").fetchone() == (0,)
        assert struct.unpack_from(">i", path.read_bytes(), 60) == (6,)  # an older program sees it at once
    monkeypatch.undo()
    with pytest.raises(FultrError, match="newer fultr"):
        opened(path, features=40)


def test_a_log_of_the_first_version_keeps_all_that_it_holds(path, monkeypatch):
    """Its clicks get checksums; all that it holds waits for the first batch to close."""
    monkeypatch.setattr(device_file, "STEPS", device_file.STEPS[:1])
    path.touch()
    stored = np.float32(PAGE).tobytes()
    check = checksum(5.0, b"q", 32, 2, None, stored)
    with closing(device_file.connect(path, write=True)) as connection:
        device_file.upgrade(path, connection)
        connection.execute("INSERT INTO schemas VALUES (1, 3, '3')")
        for id_ in (1, 2):
            connection.execute(
                "INSERT INTO impressions VALUES (?, 5.0, CAST('q' AS BLOB), '', 1, 32, 2, ?, NULL, NULL, ?)",
                (id_, check, stored),
            )
        connection.execute("INSERT INTO clicks VALUES (1, 2, 6.0), (2, 1, 7.5)")
    monkeypatch.undo()
    with opened(path) as log:
        log.check()
        assert log.records().log.clicks.tolist() == [[0, 1], [1, 0]]
        assert log.log_click(2, 2)
        assert [row[0] for row in log._connection.execute("SELECT batch FROM clicks")] == [0, 0, 0]
        assert log._connection.execute("SELECT count(*) FROM ledger").fetchone() == (0,)
        log.check()


@pytest.mark.parametrize("change", ["rank = 3 - rank", "time = time + 1", "batch = batch + 1", "checksum = 1"])
def test_a_changed_click_is_found(path, change):
    with opened(path) as log:
        shown = log.log_impression("q", PAGE)
        log.log_click(shown, 1)
        log.check()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"UPDATE clicks SET {change}")
            connection.commit()
        for look in (log.check, log.records):
            with pytest.raises(FultrError, match=r"is damaged \(a click on impression 1 is not as it was written"):
                look()


def test_packing_pads_rows_to_cache_lines():
    rows = packed(np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 0]))
    assert rows.shape == (2, 16)
    assert rows[:, :3].tolist() == [[3, 4, 5], [0, 1, 2]]
