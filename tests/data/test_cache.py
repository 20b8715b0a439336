"""The on-disk cache: what is stored comes back, whatever happens to processes and files in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fultr.core.files import cache_folder
from fultr.data.cache import cached, clear_cache, file_identity
from fultr.data.ranking import RankingData

ARRAYS = ("features", "labels", "offsets", "query_ids", "feature_ids")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FULTR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def example(seed: int = 0) -> list[RankingData]:
    rng = np.random.default_rng(seed)
    sets = [(rng.random((n, 3)), rng.integers(0, 5, n), np.arange(n) // 2) for n in (20, 5)]
    return [RankingData.from_arrays(*arrays) for arrays in sets]


def same(found: list[RankingData], expected: list[RankingData]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for a, b in pairs for name in ARRAYS)


def never() -> list[RankingData]:
    raise AssertionError("made again")


def entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_second_call_maps_what_the_first_stored(folder):
    key = {"kind": "example", "seed": 0}
    for found in (cached(key, example), cached(dict(reversed(key.items())), never)):
        assert same(found, example())
        assert not any(getattr(data, name).flags.writeable for data in found for name in ARRAYS)
        assert all(type(data.features) is np.ndarray and isinstance(data.features.base, np.memmap) for data in found)
    assert len(entries(folder)) == 1
    assert same(cached({**key, "seed": 1}, lambda: example(1)), example(1))
    assert len(entries(folder)) == 2


def test_a_key_must_be_plain():
    with pytest.raises(TypeError):
        cached({"kind": "example", "what": object()}, never)


def test_where_it_is(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("FULTR_CACHE", "off")
    assert cache_folder() is None
    assert same(cached({"kind": "example"}, example), example())
    assert clear_cache() == 0
    monkeypatch.delenv("FULTR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "fultr"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "fultr"


@pytest.mark.parametrize("name", ["0-features.npy", "1-labels.npy", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncate", "remove", "empty", "junk"])
def test_a_damaged_entry_is_made_again(folder, name, damage):
    cached({"kind": "example"}, example)
    file = next(folder.iterdir()) / name
    contents = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes({"truncate": contents[:-1], "empty": b"", "junk": b"[]" * len(contents)}[damage])
    assert same(cached({"kind": "example"}, example), example())
    assert same(cached({"kind": "example"}, never), example())
    assert len(entries(folder)) == 1


def test_a_cache_that_cannot_be_written_is_a_warning(folder, monkeypatch):
    folder.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="not cached: "):
        assert same(cached({"kind": "example"}, example), example())
    folder.unlink()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="not cached: No space left on device"):
        assert same(cached({"kind": "example"}, example), example())
    assert entries(folder) == []


def test_clear_cache_removes_entries_and_nothing_else(folder):
    found = cached({"kind": "example"}, example)
    (folder / "unfinished-nowhere-1-aa").mkdir()
    (folder / "my-notes").mkdir()
    (folder / "notes-of-mine.txt").touch()
    assert clear_cache() > found[0].features.nbytes
    assert entries(folder) == ["my-notes", "notes-of-mine.txt"]
    assert same(found, example())  # what is mapped stays usable


def test_file_identity_changes_with_the_file(tmp_path):
    file = tmp_path / "data.txt"
    file.write_text("a")
    first = file_identity(file)
    assert file_identity(tmp_path / "." / "data.txt") == first
    json.dumps(first)
    os.utime(file, ns=(1, 1))
    assert file_identity(file) != first


CHILD = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_cache import example, same
from fultr.data.cache import cached

def make():
    Path(sys.argv[2], f"ready-{os.getpid()}").touch()
    while len(list(Path(sys.argv[2]).glob("ready-*"))) < int(sys.argv[3]):
        time.sleep(0.001)
    return example()
"""


def start(tmp_path: Path, code: str, together: int) -> subprocess.Popen[bytes]:
    here = str(Path(__file__).parent)
    return subprocess.Popen([sys.executable, "-c", CHILD + code, here, str(tmp_path), str(together)])


@pytest.mark.process
def test_two_processes_fill_the_cache_at_once(tmp_path, folder):
    code = "for i in range(20): assert same(cached({'kind': 'example', 'i': i}, make), example())"
    children = [start(tmp_path, code, 2) for _ in range(2)]
    assert [child.wait(60) for child in children] == [0, 0]
    assert len(entries(folder)) == 20
    assert all(same(cached({"kind": "example", "i": i}, never), example()) for i in range(20))


@pytest.mark.process
@pytest.mark.parametrize("writes", [0, 4, 10])
def test_killed_while_writing(tmp_path, folder, writes):
    code = f"""
real, calls = os.fsync, []
def fsync(descriptor):
    calls.append(descriptor)
    if len(calls) > {writes}:
        Path(sys.argv[2], "writing").touch()
        time.sleep(60)
    real(descriptor)
os.fsync = fsync
cached({{"kind": "example"}}, make)
"""
    child = start(tmp_path, code, 1)
    while not (tmp_path / "writing").exists():
        assert child.poll() is None
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert [name.startswith("unfinished-") for name in entries(folder)] == [True]
    assert same(cached({"kind": "example"}, example), example())
    assert same(cached({"kind": "example"}, never), example())
    assert [name.startswith("example-") for name in entries(folder)] == [True]  # what was left over is gone


def test_left_overs_of_others_are_removed_when_old(folder):
    folder.mkdir()
    for name in (
        "unfinished-elsewhere-1-aa",
        "unfinished-elsewhere-2-bb",
        "unfinished-x",
        f"unfinished-a-{os.getpid()}-c",
    ):
        (folder / name).mkdir()
    os.utime(folder / "unfinished-elsewhere-2-bb", (1, 1))
    cached({"kind": "example"}, example)
    assert "unfinished-elsewhere-1-aa" in entries(folder)
    assert "unfinished-elsewhere-2-bb" not in entries(folder)
