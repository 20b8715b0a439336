"""Releases by the operator: rollout, promotion, rollback, by hand and automatic, interrupted and at the same time."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from help.commands import fultr
from help.killing import forked, killed_before, survived
from help.releases import NAMES, write_version

from fultr.core.errors import FultrError
from fultr.deploy.flower.server_app import _release_first
from fultr.deploy.folder import init_deployment, load_deployment
from fultr.deploy.release import judge_candidate, promote, publish_first, read_releases, rollback, rollout
from fultr.device.store import Taken, take_release
from fultr.federated.events import Event
from fultr.federated.judging import Comparison
from fultr.rankers.release import RELEASE_FILE, Release, ReleaseKey, open_release
from fultr.rankers.versions import Versions

WORSE = Comparison(-0.05, 0.01, -0.07, -0.03, 12, steady=True)
BETTER = Comparison(0.05, 0.01, 0.03, 0.07, 12)
UNSURE = Comparison(-0.01, 0.01, -0.03, 0.01, 12)


@pytest.fixture
def fed(tmp_path) -> Path:
    """A deployment of two nodes with three versions, none of them released."""
    folder = tmp_path / "fed"
    init_deployment(folder, 2)
    for seed in range(3):
        write_version(folder / "state", seed)
    return folder


@pytest.fixture
def names(fed) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (fed / "state" / "versions").glob("v*.json")))


def served(fed: Path) -> Release:
    """What a node accepts at this moment."""
    key = ReleaseKey.read(fed / "nodes" / "node-1" / "signing.pub")
    return open_release((fed / "state" / RELEASE_FILE).read_bytes(), key)


def uses(release: Release) -> tuple[str, str | None, float]:
    return release.stable.name, release.candidate and release.candidate.name, release.share


def test_from_the_first_version_to_the_next_and_back(fed, names):
    first, second, third = names
    step = promote(fed)
    assert (step.changed, step.release.action, uses(step.release)) == (True, "publish", (third, None, 0.0))
    for act, expected in [
        (lambda: promote(fed, "v0001"), (first, None, 0.0)),
        (lambda: rollout(fed, second, 0.1), (first, second, 0.1)),
        (lambda: rollout(fed, "v0002", 0.5), (first, second, 0.5)),
        (lambda: promote(fed), (second, None, 0.0)),
        (lambda: rollout(fed), (second, third, 0.2)),
        (lambda: rollback(fed), (second, None, 0.0)),
        (lambda: rollback(fed, "v0001"), (first, None, 0.0)),
    ]:
        step = act()
        assert step.changed
        assert uses(step.release) == expected
        assert served(fed) == step.release
    releases = read_releases(fed)
    assert [release.serial for release in releases] == list(range(1, 9))
    assert [release.action for release in releases[1:]] == [
        "promote", "rollout", "rollout", "promote", "rollout", "rollback", "rollback",
    ]  # fmt: skip
    assert (
        releases[2].salt == releases[3].salt != releases[5].salt
    )  # the same devices, until there is another candidate
    assert not any(release.automatic for release in releases)


def test_what_is_so_already_stays(fed, names):
    promote(fed, names[0])
    rollout(fed, names[1], 0.3)
    for act in (lambda: rollout(fed, "v0002", 0.3), lambda: rollout(fed, "v0001")):
        assert not act().changed
    rollback(fed)
    for act in (
        lambda: rollback(fed),
        lambda: rollback(fed, names[0]),
        lambda: promote(fed),
        lambda: promote(fed, "v0001"),
    ):
        step = act()
        assert not step.changed
        assert step.release == served(fed)
    assert len(read_releases(fed)) == 3


def test_a_new_signing_key_signs_the_same_again(fed, names):
    promote(fed, names[0])
    for old in fed.rglob("signing.*"):
        old.unlink()
    assert init_deployment(fed) == [
        "nodes/node-1/signing.pub", "nodes/node-2/signing.pub", "superlink/signing.key", "superlink/signing.pub",
    ]  # fmt: skip
    with pytest.raises(FultrError, match="was not signed"):
        served(fed)
    assert promote(fed, names[0]).changed
    assert served(fed).serial == 2
    assert not promote(fed, names[0]).changed


def test_the_first_version_is_published_once(fed, names):
    release = publish_first(fed)
    assert release == served(fed)
    assert (uses(release), release.serial, release.action) == ((names[2], None, 0.0), 1, "publish")
    write_version(fed / "state", 9)
    assert publish_first(fed) is None
    assert len(read_releases(fed)) == 1


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda fed: rollout(fed), "nothing has been released yet, .*: fultr deploy promote .*fed v0003-"),
        (lambda fed: rollback(fed), "fed: nothing has been released yet"),
        (lambda fed: promote(fed, "v0009"), "no version 'v0009'"),
        (
            lambda fed: (promote(fed, "v0001"), rollback(fed, "v0002")),
            "v0002-.*: was never given to all devices; to try",
        ),
        (lambda fed: rollout(fed, share=0.0), "share: expected a number, above 0, at most 1, found 0.0"),
        (lambda fed: rollout(fed, share=1.1), "share: expected a number, above 0, at most 1, found 1.1"),
        (lambda fed: read_releases(fed / "state"), "state: is not a deployment"),
    ],
)
def test_what_cannot_be_is_told(fed, act, message):
    with pytest.raises(FultrError, match=message):
        act(fed)


def test_damage_is_told(fed, names):
    promote(fed, names[0])
    (fed / "superlink" / "signing.key").write_text("no key")
    with pytest.raises(FultrError, match=r"signing\.key: is not a private Ed25519 key in PEM form"):
        promote(fed, names[1])
    (fed / "superlink" / "signing.key").unlink()
    with pytest.raises(
        FultrError,
        match=r"signing\.key: cannot be read: No such file.*; it is kept elsewhere; put it back while you sign",
    ):
        promote(fed, names[1])
    (fed / "superlink" / "signing.pub").unlink()
    with pytest.raises(
        FultrError, match=r"signing\.key: cannot be read: No such file.*; `fultr deploy init` makes one"
    ):
        promote(fed, names[1])
    assert len(read_releases(fed)) == 1


def test_a_training_is_done_where_the_signing_key_is_kept_elsewhere(fed, names, tmp_path):
    """Its version is not released, and the operator is told what to do; a worse candidate is told of, and stays."""
    key, version = fed / "superlink" / "signing.key", Versions(fed / "state" / "versions").read("latest")
    told: list[Event] = []
    key.rename(tmp_path / "kept.key")
    _release_first(told.append, load_deployment(fed), version)
    assert [event.what for event in told] == ["unreleased"]
    assert "it is kept elsewhere" in told[0].words
    assert told[0].words.endswith(f"then: fultr deploy promote {fed} {version.name}")
    (tmp_path / "kept.key").rename(key)
    _release_first(told.append, load_deployment(fed), version)
    _release_first(told.append, load_deployment(fed), version)
    assert [event.what for event in told] == ["unreleased", "released"]
    rollout(fed, names[0])
    key.unlink()
    judged = judge_candidate(fed, WORSE, names[0], version.name)
    assert (judged.verdict, judged.rollback) == ("worse", None)
    assert "; not withdrawn: " in judged.says
    (fed / "state" / "releases" / "r000001.json").write_text("{")
    with pytest.raises(FultrError, match=r"r000001\.json: release: expected a JSON object"):
        read_releases(fed)


def test_a_worse_candidate_is_withdrawn(fed, names):
    promote(fed, names[0])
    rollout(fed, names[1])
    judged = judge_candidate(fed, WORSE, names[1], names[0])
    assert judged.verdict == "worse"
    assert judged.rollback == served(fed)
    assert uses(served(fed)) == (names[0], None, 0.0)
    assert (served(fed).automatic, served(fed).action) == (True, "rollback")
    told = f"{names[1]} is worse than {names[0]}: -0.0500 (95% interval -0.0700 to -0.0300, 12 devices)"
    assert served(fed).why == told
    assert judged.says == f"{told}; withdrawn by release 3"


@pytest.mark.parametrize(
    ("comparison", "found"), [(BETTER, "better"), (UNSURE, "inconclusive"), (None, "inconclusive")]
)
def test_other_candidates_stay(fed, names, comparison, found):
    promote(fed, names[0])
    rollout(fed, names[1])
    judged = judge_candidate(fed, comparison, names[1], names[0])
    assert (judged.verdict, judged.rollback) == (found, None)
    assert uses(served(fed)) == (names[0], names[1], 0.2)


def test_a_comparison_of_others_changes_nothing(fed, names):
    promote(fed, names[0])
    rollout(fed, names[2])
    for candidate, stable in ((names[1], names[0]), (names[2], names[1])):
        judged = judge_candidate(fed, WORSE, candidate, stable)
        assert (judged.verdict, judged.rollback) == ("worse", None)
        assert judged.says.endswith("it is no longer the candidate")
    assert uses(served(fed)) == (names[0], names[2], 0.2)
    promote(fed)
    assert judge_candidate(fed, WORSE, names[2], names[0]).rollback is None


def test_devices_follow(fed, names, tmp_path):
    """Each node takes what the operator releases, with the key that it was enrolled with."""

    def devices() -> list[Taken]:
        return [
            take_release(
                tmp_path / node,
                lambda name, most: (fed / "state" / name).read_bytes(),
                ReleaseKey.read(fed / "nodes" / node / "signing.pub"),
                NAMES,
                (fed / "nodes" / node / "node.pub").read_bytes(),
            )
            for node in ("node-1", "node-2")
        ]

    assert [taken.refused for taken in devices()] == [
        f"{RELEASE_FILE}: cannot be fetched: [Errno 2] No such file or directory: '{fed}/state/{RELEASE_FILE}'"
    ] * 2
    promote(fed, names[0])
    assert devices() == [Taken(names[0], True, "")] * 2
    rollout(fed, names[1], 1.0)
    assert devices() == [Taken(names[1], True, "")] * 2
    judge_candidate(fed, WORSE, names[1], names[0])
    assert devices() == [Taken(names[0], True, "")] * 2
    assert devices() == [Taken(names[0], False, "")] * 2


@pytest.mark.process
def test_killed_between_any_two_operations_the_next_completes_it(fed, names, tmp_path):
    promote(fed, names[0])
    serials = []
    for operation in range(1, 1000):
        tried = tmp_path / f"tried-{operation}"
        shutil.copytree(fed, tried)
        if not killed_before(operation, tried, lambda tried=tried: rollout(tried, names[1])):
            break
        assert served(tried).serial in (1, 2)
        serials.append(len(read_releases(tried)))
        assert served(tried) == read_releases(tried)[-1]
        assert uses(rollout(tried, names[1]).release) == (names[0], names[1], 0.2)
        assert [release.serial for release in read_releases(tried)] == [1, 2]
        shutil.rmtree(tried)
    assert set(serials) == {1, 2}
    assert len(serials) > 20


def at_once(act: Callable[[int], object], count: int = 4) -> None:
    """Do something in several processes that start at the same moment."""
    start = time.monotonic() + 0.1

    def wait_and_act(number: int) -> None:
        time.sleep(max(0.0, start - time.monotonic()))
        act(number)

    for child in [forked(partial(wait_and_act, number)) for number in range(count)]:
        assert survived(child)


@pytest.mark.process
def test_operators_at_the_same_time_take_turns(fed, names, tmp_path):
    """Each release that an operator was told of is there, once."""
    promote(fed, names[0])

    def operate(number: int) -> None:
        steps = [rollout(fed, names[1 + i % 2], (number + 1) / 10) for i in range(10)]
        told = [step.release.to_bytes().decode() for step in steps if step.changed]
        (tmp_path / f"told-{number}").write_text("\n".join(told))

    at_once(operate)
    told = [line for number in range(4) for line in (tmp_path / f"told-{number}").read_text().splitlines()]
    releases = read_releases(fed)
    assert sorted(told) == sorted(release.to_bytes().decode() for release in releases[1:])
    assert [release.serial for release in releases] == list(range(1, len(releases) + 1))
    assert all(uses(release) != uses(after) for release, after in pairwise(releases))
    assert served(fed) == releases[-1]


@pytest.mark.process
def test_two_who_withdraw_go_back_once(fed, names):
    promote(fed, names[0])
    promote(fed, names[1])
    rollout(fed, names[2])
    at_once(lambda number: rollback(fed))
    assert uses(served(fed)) == (names[1], None, 0.0)
    assert len(read_releases(fed)) == 4


def test_a_single_device_withdraws_nothing(fed, names):
    """A comparison whose verdict depends on one device, which may lie, is shown; nothing is done."""
    promote(fed, names[0])
    rollout(fed, names[1])
    found = judge_candidate(fed, replace(WORSE, steady=False), names[1], names[0])
    assert (found.verdict, found.rollback) == ("worse", None)
    assert found.says.endswith("not withdrawn, as that depends on a single device")


def test_commands_say_what_devices_use(fed, names):
    assert fultr("deploy", "releases", fed).err.endswith(f"nothing has been released yet: fultr deploy promote {fed}\n")
    code, _, error = fultr("deploy", "rollout", fed)
    assert code == 2
    assert f"give it to all: fultr deploy promote {fed} {names[2]}\n" in error
    assert fultr("deploy", "promote", fed, "v0001").err == f"release 1: {names[0]} for all devices\n"
    trial = ("deploy", "rollout", fed, "v0002", "--share", "0.25", "--no-comparison")
    assert fultr(*trial).err == f"release 2: {names[1]} for 25% of the devices, {names[0]} for the others\n"
    assert fultr(*trial).err.startswith("unchanged since release 2: ")
    assert fultr("deploy", "promote", fed).err == f"release 3: {names[1]} for all devices\n"
    assert fultr("deploy", "rollout", fed, "v0002").err == f"{names[1]} is what all devices use already\n"
    said = fultr("deploy", "rollback", fed).err
    assert said.startswith(f"unchanged since release 3: {names[1]} for all devices\n")
    assert said.endswith(f"fultr deploy rollback {fed} {names[0]}\n")
    assert fultr("deploy", "rollback", fed, "v0001").err == f"release 4: {names[0]} for all devices\n"


def test_releases_are_listed(fed, names):
    promote(fed, names[0])
    rollout(fed, names[1])
    judge_candidate(fed, WORSE, names[1], names[0])
    rows = [line.split("  ") for line in fultr("deploy", "releases", fed).out.splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["release", "made", "action", "stable", "candidate", "share", "why"] in cells
    assert [row[0] for row in cells if row and row[0].isdecimal()] == ["1", "2", "3"]
    second, third = (next(row for row in cells if row[:1] == [serial]) for serial in "23")
    assert second[2:] == ["rollout", names[0], names[1], "20%"]
    assert third[2:4] == ["rollback, automatic", names[0]]
    assert third[4].startswith(f"{names[1]} is worse than {names[0]}: -0.0500")
    listed = json.loads(fultr("deploy", "releases", fed, "--json").out)
    assert [release["serial"] for release in listed] == [1, 2, 3]
    assert (listed[1]["candidate"]["name"], listed[2]["automatic"]) == (names[1], True)
