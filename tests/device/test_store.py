"""A device's rankers: taken only if they are signed, whole and of use; whatever goes wrong, there is one to use."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from help.killing import killed_before
from help.releases import NAMES, Server, write_version

from fultr.device.store import KEPT, Taken, write_current
from fultr.rankers.release import MOST_RELEASE_BYTES, RELEASE_FILE, ReleaseKey, sign_release
from fultr.rankers.versions import Versions


@pytest.fixture
def server(tmp_path) -> Server:
    """With three versions, none of them released."""
    made = Server(tmp_path / "state")
    for seed in range(3):
        write_version(made.state, seed)
    return made


@pytest.fixture
def names(server) -> tuple[str, ...]:
    return Versions(server.state / "versions").list()


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "device" / "rankers"


def in_use(folder: Path) -> str:
    """The version in use, read and checked as an application would."""
    return Versions(folder).read((folder / "current").read_text().strip()).name


def replaced(file: Path, data: bytes) -> None:
    file.unlink()
    file.write_bytes(data)


def test_a_release_is_taken_once(server, names, folder):
    server.release(1, names[0])
    assert server.take(folder) == Taken(names[0], True, "")
    assert in_use(folder) == names[0]
    assert (folder / f"{names[0]}.json").read_bytes() == server.file(names[0]).read_bytes()
    assert server.asked == [RELEASE_FILE, f"versions/{names[0]}.json"]
    assert server.take(folder) == Taken(names[0], False, "")
    assert server.asked[2:] == [RELEASE_FILE]


def test_the_next_release_and_the_way_back(server, names, folder):
    for serial, name in enumerate([names[0], names[2], names[0]], 1):
        server.release(serial, name)
        assert server.take(folder) == Taken(name, True, "")
        assert in_use(folder) == name
    assert server.asked.count(f"versions/{names[0]}.json") == 1  # kept, and used again


def test_some_devices_try_the_candidate(server, names, folder):
    release = server.release(1, names[0], names[1], share=0.5)
    for i in range(10):
        identity = b"key of %d" % i
        taken = server.take(folder.with_name(f"device-{i}"), identity=identity)
        assert taken == Taken(release.version_for(identity).name, True, "")
    assert {f"versions/{name}.json" for name in names[:2]} <= set(server.asked)


def test_forged_foreign_and_damaged_releases_are_refused(server, names, folder):
    release, served = server.release(1, names[0]), server.state / RELEASE_FILE
    server.take(folder)
    newer = replace(release, serial=2, stable=server.released(names[1]))
    signed = sign_release(newer, server.signer)
    for data, why in [
        (sign_release(newer, Ed25519PrivateKey.generate()), "release: was not signed with the key"),
        (signed.replace(names[1].encode(), names[2].encode()), "release: was not signed with the key"),
        (sign_release(replace(newer, federation="other"), server.signer), "is for the federation 'other'"),
        (signed[:-40], "release: expected a JSON object"),
        (b"", "release: expected a JSON object"),
        (b" " * (MOST_RELEASE_BYTES + 1), f"{RELEASE_FILE}: expected at most 64,000 bytes, found 64,001"),
    ]:
        served.write_bytes(data)
        taken = server.take(folder)
        assert taken == Taken(names[0], False, taken.refused)
        assert why in taken.refused
        assert in_use(folder) == names[0]
    served.write_bytes(signed)
    assert server.take(folder) == Taken(names[1], True, "")


def test_older_releases_are_not_taken_again(server, names, folder):
    server.release(1, names[0])
    first = (server.state / RELEASE_FILE).read_bytes()
    server.release(3, names[1])
    server.take(folder)
    (server.state / RELEASE_FILE).write_bytes(first)
    says = "release: has serial 1, older than 3, which was here before"
    assert server.take(folder) == Taken(names[1], False, says)
    server.release(3, names[2])
    says = "release: there are two with serial 3; the first one is kept"
    assert server.take(folder) == Taken(names[1], False, says)


def test_a_release_whose_version_cannot_be_had_counts_as_seen(server, names, folder):
    server.release(1, names[0])
    first = (server.state / RELEASE_FILE).read_bytes()
    server.take(folder)
    server.release(2, names[1])
    kept = server.file(names[1]).read_bytes()
    replaced(server.file(names[1]), b"")
    assert "is not the file that was signed" in server.take(folder).refused
    (server.state / RELEASE_FILE).write_bytes(first)
    assert "older than 2" in server.take(folder).refused
    replaced(server.file(names[1]), kept)
    server.release(2, names[1])
    assert server.take(folder) == Taken(names[1], True, "")


def test_a_new_key_starts_anew(server, names, folder):
    server.release(9, names[0])
    server.take(folder)
    server.signer = Ed25519PrivateKey.generate()
    server.release(1, names[1])
    assert server.take(folder) == Taken(names[1], True, "")
    other = ReleaseKey("other", server.key.public)
    assert "is for the federation 'pilot', expected 'other'" in server.take(folder, key=other).refused


@pytest.mark.parametrize(
    ("served", "why"),
    [
        (lambda data: data.replace(b'"made": "2', b'"made": "3'), "is not the file that was signed"),
        (lambda data: data[:-1], "is not the file that was signed"),
        (lambda data: b"", "is not the file that was signed: 0 bytes of"),
        (lambda data: data + b" ", "bytes, found"),
        (lambda data: data * 1000, "bytes, found"),
    ],
)
def test_changed_truncated_and_huge_versions_are_refused(server, names, folder, served, why):
    server.release(1, names[0])
    server.take(folder)
    server.release(2, names[1])
    replaced(server.file(names[1]), served(server.file(names[1]).read_bytes()))
    taken = server.take(folder)
    assert taken == Taken(names[0], False, taken.refused)
    assert why in taken.refused
    assert not (folder / f"{names[1]}.json").exists()
    assert in_use(folder) == names[0]


def test_no_more_is_asked_for_than_was_signed(server, names, folder):
    server.release(1, names[0])
    server.take(folder)
    assert server.limits == {
        RELEASE_FILE: MOST_RELEASE_BYTES,
        f"versions/{names[0]}.json": server.file(names[0]).stat().st_size,
    }


def test_what_is_signed_but_no_version_is_refused(server, names, folder):
    """The operator's commands sign no such thing; a device does not rely on it."""
    for data, why in [
        (b"{}", "expected a ranker saved by fultr"),
        (b"[" * 100_000, "found no JSON"),
        (server.file(names[1]).read_bytes(), f"{names[0]}.json: holds version {names[1]}"),
        (server.file(names[0]).read_bytes().replace(b'"linear"', b'"forest"'), "damaged ranker file"),
    ]:
        replaced(server.file(names[0]), data)
        server.release(1, names[0])
        assert why in server.take(folder).refused
        assert not (folder / "current").exists()
        shutil.rmtree(folder)


def test_rankers_of_other_features_are_refused(server, names, folder):
    server.release(1, names[0])
    server.take(folder)
    server.release(2, names[1])
    for features, why in [
        (("title", "size", "length"), f"{names[1]}: its feature 2 is 'age', and the log's is 'size'"),
        (NAMES[:2], f"{names[1]}: ranks by 3 features, and the log has 2"),
        (4, f"{names[1]}: ranks by 3 features, and the log has 4"),
    ]:
        assert server.take(folder, features) == Taken(names[0], False, why)
    assert not (folder / f"{names[1]}.json").exists()
    assert server.take(folder, 3) == Taken(names[1], True, "")


def test_features_without_names_are_counted(server, folder):
    unnamed = write_version(server.state, 9, names=None)
    server.release(1, unnamed)
    assert "ranks by 3 features, and the log has 2" in server.take(folder, NAMES[:2]).refused
    assert server.take(folder, NAMES) == Taken(unnamed, True, "")


def test_a_damaged_store_is_mended(server, names, folder):
    server.release(1, names[0])
    server.take(folder)
    (folder / f"{names[0]}.json").write_bytes(b"{")
    assert server.take(folder) == Taken(names[0], False, "")
    assert in_use(folder) == names[0]
    (folder / "current").write_bytes(b"\xff")
    (folder / RELEASE_FILE).write_bytes(b"")
    assert server.take(folder) == Taken(names[0], True, "")
    assert in_use(folder) == names[0]


def test_whatever_a_network_raises_is_a_reason(server, names, folder):
    server.release(1, names[0])
    server.take(folder)

    def fails(name: str, most: int) -> bytes:
        raise RuntimeError("no\nroute")

    server.fetch = fails  # type: ignore[method-assign]
    assert server.take(folder) == Taken(names[0], False, f"{RELEASE_FILE}: cannot be fetched: no route")


def test_a_folder_that_cannot_be_written_is_a_reason(server, names, folder):
    folder.parent.mkdir()
    folder.write_text("a file")
    server.release(1, names[0])
    assert "cannot create this folder" in server.take(folder).refused


def test_the_versions_that_were_in_use_last_are_kept(server, folder):
    """All in turn, and in between the first one again: it is newer in use than the second."""
    names = [write_version(server.state, seed) for seed in range(KEPT + 5)]
    order = [*names[:10], names[0], *names[10:]]
    for serial, name in enumerate(order, 1):
        server.release(serial, name)
        assert server.take(folder).version == name
    assert Versions(folder).list() == (names[0], *names[5:])
    assert len(names[5:]) == KEPT  # with the one in use


def test_a_release_outranks_another_choice_of_version(server, names, folder):
    server.release(1, names[0])
    server.take(folder)
    shutil.copy(server.file(names[1]), folder)
    write_current(folder, names[1])
    assert server.take(folder) == Taken(names[0], True, "")


@pytest.mark.process
def test_killed_between_any_two_operations_it_stays_usable(server, names, folder, tmp_path):
    """The first ranker, and a change to another with an old one to be deleted."""
    for serial, stable in ((1, names[0]), (2, names[1])):
        if serial == 2:
            for seed in range(10, 10 + KEPT):
                shutil.copy(server.file(write_version(server.state, seed)), folder)
        server.release(serial, stable)
        before = in_use(folder) if folder.exists() else None
        outcomes = set()
        for operation in range(1, 1000):
            tried = tmp_path / f"tried-{serial}-{operation}"
            if folder.exists():
                shutil.copytree(folder, tried)
            if not killed_before(operation, tried, lambda tried=tried: server.take(tried)):
                break
            found = in_use(tried) if (tried / "current").exists() else None
            assert found in (before, stable)
            assert all(Versions(tried).read(name) for name in Versions(tried).list())
            outcomes.add(found)
            assert server.take(tried) == Taken(stable, found != stable, "")
            assert in_use(tried) == stable
            assert not list(tried.glob(".v*")) + list(tried.glob(".current*")) + list(tried.glob(".release*"))
        assert operation > 15
        assert outcomes == {before, stable}
        server.take(folder)
