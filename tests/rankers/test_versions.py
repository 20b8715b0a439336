"""Versions of a ranker: what is written is read back, nothing is overwritten, damage is told."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import plain
import pytest

from fultr.cli.main import main
from fultr.core.errors import FultrError
from fultr.data.letor.writer import write_letor
from fultr.rankers.metrics import summarise
from fultr.rankers.ranker import Ranker, digest_of
from fultr.rankers.versions import Version, Versions, read_ranker
from fultr.study.statistics import estimate

FEATURES = 7


def some_ranker(seed: int = 0) -> Ranker:
    weights = np.random.default_rng(seed).standard_normal(FEATURES).astype(np.float32)
    return Ranker(weights, np.arange(1, FEATURES + 1), training={"seed": seed})


def write(versions: Versions, seed: int = 0, parent: str | None = None, **others) -> Version:
    asked = dict(configuration={"seed": seed}, metrics={"NDCG@5": 0.5}) | others
    return versions.write(some_ranker(seed), parent=parent, **asked)


@pytest.fixture
def versions(tmp_path) -> Versions:
    """Three of them: the second and the third both come from the first."""
    made = Versions(tmp_path / "versions")
    first = write(made)
    write(made, 1, parent=first.name)
    write(made, 2, parent=first.name)
    return made


def file_of(versions: Versions, name: str) -> Path:
    return Path(versions.folder) / f"{versions.read(name).name}.json"


def change(file: Path, how) -> None:
    """Replace a version's file, which is read-only."""
    text = how(file.read_text())
    file.unlink()
    file.write_text(text)


def test_everything_comes_back(tmp_path):
    versions = Versions(tmp_path / "new" / "versions")
    values = np.array([0.2, 0.4, np.nan])
    metrics = {
        "NDCG@5": summarise(values),
        "over repeats": estimate(np.array([0.1, 0.3])),
        "one query": summarise(values[:1]),
        "bare": np.float32(0.5),
        "given": {"mean": 1, "standard_error": 0.25},
    }
    names = [f"féature {i}" for i in range(FEATURES)]
    written = versions.write(
        some_ranker(), parent=None, configuration={"rounds": 3, "ks": (1, 5), "by": {10: "x", 9: "y"}}, metrics=metrics,
        note="the fïrst", feature_names=names,
    )  # fmt: skip
    for found in (written, versions.read(written.name), versions.read("v0001"), versions.read("latest")):
        np.testing.assert_array_equal(found.ranker.weights.view(np.int32), some_ranker().weights.view(np.int32))
        np.testing.assert_array_equal(found.ranker.feature_ids, some_ranker().feature_ids)
        assert found.ranker.training == {"seed": 0}
        assert found.ranker.normalised
        assert found.configuration == {"rounds": 3, "ks": [1, 5], "by": {"10": "x", "9": "y"}}
        assert found.metrics["NDCG@5"] == {
            "mean": pytest.approx(0.3),
            "standard_error": pytest.approx(0.1),
            "queries": 2,
        }
        assert found.metrics["over repeats"]["mean"] == pytest.approx(0.2)
        assert found.metrics["one query"] == {"mean": 0.2, "standard_error": None, "queries": 1}
        assert found.metrics["bare"] == {"mean": 0.5, "standard_error": None}
        assert found.metrics["given"] == {"mean": 1, "standard_error": 0.25}
        assert (found.parent, found.note, found.ranker.feature_names) == (None, "the fïrst", tuple(names))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found.made)
        assert found.name == f"v0001-{found.digest[:6]}"
        assert repr(found) == f"Version({found.name}, Ranker(linear, 7 features))"


def test_any_float32_comes_back_to_the_bit(tmp_path):
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    extremes = np.float32([0.0, -0.0, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38, 1.1754944e-38])
    weights = np.r_[extremes, bits[np.isfinite(bits)]]
    ranker = Ranker(weights, np.arange(weights.size))
    found = Versions(tmp_path).write(ranker, parent=None, configuration={}, metrics={})
    np.testing.assert_array_equal(found.ranker.weights.view(np.uint32), weights.view(np.uint32))


def test_names_are_in_order_and_follow_from_the_content(versions):
    names = versions.list()
    assert [name[:6] for name in names] == ["v0001-", "v0002-", "v0003-"]
    assert list(names) == sorted(names)
    for name in names:
        content = json.loads(file_of(versions, name).read_text())
        assert name[6:] == content["digest"][:6] == digest_of(content)[:6]


def test_order_beyond_four_digits(tmp_path):
    versions = Versions(tmp_path)
    (tmp_path / "v9999-aaaaaa.json").write_text("")
    (tmp_path / "v10001-aaaaaa.json").write_text("")
    assert write(versions).name.startswith("v10002-")
    assert [name.split("-")[0] for name in versions.list()] == ["v9999", "v10001", "v10002"]


def test_lineage(versions):
    fourth = write(versions, parent="v0002")
    assert [v.name[:5] for v in versions.lineage("latest")] == ["v0004", "v0002", "v0001"]
    assert [v.name[:5] for v in versions.lineage("v0003")] == ["v0003", "v0001"]
    assert [v.name[:5] for v in versions.lineage("v0001")] == ["v0001"]
    assert fourth.parent == versions.list()[1]
    gone = file_of(versions, "v0001")
    gone.unlink()
    with pytest.raises(FultrError, match=rf"lineage of v0004-.{{6}}, parent of v0002-.{{6}}: .*'{gone.stem}'"):
        versions.lineage("latest")


def test_feature_names_pass_to_children_with_the_same_features(tmp_path):
    versions = Versions(tmp_path)
    names = tuple("abcdefg")
    assert write(versions).ranker.feature_names == tuple("1234567")
    assert write(versions, feature_names=names).ranker.feature_names == names
    assert write(versions, parent="latest").ranker.feature_names == names
    other = Ranker(np.float32([1, 2]), np.array([4, 9]))
    child = versions.write(other, parent="latest", configuration={}, metrics={})
    assert (child.ranker.feature_names, child.ranker.named) == (("4", "9"), False)
    own = replace(some_ranker(), feature_names=tuple("gfedcba"))
    kept = versions.write(own, parent="v0002", configuration={}, metrics={})
    assert kept.ranker.feature_names == own.feature_names == Ranker.load(file_of(versions, "latest")).feature_names


WRITER = """
import sys
import numpy as np
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Versions

folder, writer, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for i in range(count):
    ranker = Ranker(np.float32([writer, i]), np.array([1, 2]))
    Versions(folder).write(ranker, parent=None, configuration={"writer": writer, "i": i}, metrics={})
"""


@pytest.mark.process
def test_processes_that_write_at_once(tmp_path):
    writers, each = 4, 15
    folder = tmp_path / "versions"
    work = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(w), str(each)], stderr=subprocess.PIPE)
        for w in range(writers)
    ]
    for process in work:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    versions = Versions(folder)
    names = versions.list()
    assert [int(name[1:5]) for name in names] == list(range(1, writers * each + 1))
    found = [versions.read(name) for name in names]
    for w in range(writers):
        assert [v.configuration["i"] for v in found if v.configuration["writer"] == w] == list(range(each))
    assert all(v.ranker.weights.tolist() == [v.configuration["writer"], v.configuration["i"]] for v in found)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", *(f"{name}.json" for name in names)]


def test_versions_are_never_changed(versions):
    before = {path: path.read_bytes() for path in Path(versions.folder).glob("v*")}
    assert all(path.stat().st_mode & 0o222 == 0 for path in before)
    write(versions)  # the same ranker as the first
    write(versions)
    assert len(versions.list()) == 5
    assert {path: path.read_bytes() for path in before} == before


def test_other_files_in_the_folder_are_no_versions(versions):
    for name in (
        "notes.txt",
        "v0009-abcdef.json.bak",
        "v9-abcdef.json",
        ".v0009-abcdef.json.host-1-00",
        "V0009-abcdef.json",
    ):
        (Path(versions.folder) / name).write_text("something")
    assert len(versions.list()) == 3


def changed(**parts):
    """A file with other content and a digest that fits it, as a foreign program might write."""

    def how(text: str) -> str:
        content = json.loads(text)
        content["version"] |= parts
        return json.dumps(content | {"digest": digest_of(content)})

    return how


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda text: "", "found no JSON"),
        (lambda text: text[: len(text) // 2], "found no JSON"),
        (lambda text: "[1]", "expected a ranker saved by fultr"),
        (lambda text: '{"format": "another"}', "expected a ranker saved by fultr, with format 'fultr ranker 1'"),
        (lambda text: text.replace('"seed": 1', '"seed": 2', 1), "its content has digest .* restore it from a backup"),
        (lambda text: re.sub(r'"weights": \[\s*-?\d', '"weights": [ 3', text), "its content has digest"),
        (lambda text: re.sub(r'"digest": "....', '"digest": "zzzz', text), "its content has digest"),
        (lambda text: re.sub(r'"digest": "\w*"', '"digest": null', text), "its content has digest"),
        (lambda text: re.sub(r',\s*"digest": "\w*"', "", text), "damaged version file: 'digest'"),
        (lambda text: "[" * 200_000, "found no JSON"),
        (changed(number=0), "damaged version file: number: expected a whole number from 1"),
        (changed(parent="v0002-aaaaaa"), "damaged version file: parent: expected the name of an earlier version"),
        (changed(parent="v2"), "damaged version file: parent"),
        (changed(configuration=3), "damaged version file"),
        (changed(metrics=[]), "damaged version file"),
        (changed(note="other"), "the file was renamed; rename it back"),
    ],
)  # fmt: skip
def test_damaged_files_get_one_clear_line(versions, how, message):
    file = file_of(versions, "v0002")
    change(file, how)
    with pytest.raises(FultrError, match=message) as caught:
        versions.read("v0002")
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)
    assert versions.read("latest").name.startswith("v0003")  # the others are as good as before


def test_the_digest_holds_for_the_plain_reader_too(versions):
    file = file_of(versions, "v0001")
    np.testing.assert_array_equal(Ranker.load(file).weights, some_ranker().weights)
    change(file, lambda text: text.replace('"normalised": true', '"normalised": false'))
    with pytest.raises(FultrError, match="its content has digest"):
        Ranker.load(file)


def test_a_version_that_is_not_there(versions, tmp_path):
    first, second, third = versions.list()
    with pytest.raises(FultrError, match=f"no version 'v0007'; expected latest, {first}, {second}, {third}"):
        versions.read("v0007")
    shutil.copy(file_of(versions, "v0002"), Path(versions.folder) / "v0003-000000.json")
    with pytest.raises(FultrError, match=f"'v0003' is ambiguous: v0003-000000 or {third}; give the full name"):
        versions.read("v0003")
    assert versions.read(third).name == third
    with pytest.raises(FultrError, match="expected a folder of versions, found none: there is no such folder"):
        Versions(tmp_path / "nowhere").read("latest")
    assert Versions(tmp_path / "nowhere").list() == ()
    with pytest.raises(FultrError, match="cannot be read as a folder of versions: Not a directory"):
        Versions(file_of(versions, "v0001")).read("latest")


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (dict(parent="v0009"), "no version 'v0009'"),
        (dict(metrics={"NDCG@5": "0.5"}), "metrics: NDCG@5: expected a number, or a mean with its standard_error"),
        (dict(metrics={"NDCG@5": {"mean": 0.5}}), "metrics: NDCG@5: expected a number"),
        (dict(metrics={"NDCG@5": float("inf")}), "cannot be written as JSON"),
        (dict(configuration={"rate": float("nan")}), "cannot be written as JSON"),
        (dict(configuration={"rate": object()}), "cannot be written as JSON"),
        (dict(feature_names=["a"]), "feature_names: expected 7 different names, one per feature"),
        (dict(feature_names="abcdefg"), "feature_names: expected 7 different names"),
        (dict(feature_names=[]), "feature_names: expected 7 different names"),
        (dict(feature_names=[*"abcdef", "a"]), "feature_names: expected 7 different names"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(versions, others, message):
    with pytest.raises(FultrError, match=message):
        write(versions, **others)
    assert len(versions.list()) == 3


def test_weights_that_are_not_finite_are_refused(tmp_path):
    diverged = Ranker(np.float32([np.nan, 1]), np.array([1, 2]))
    with pytest.raises(FultrError, match="training diverged"):
        Versions(tmp_path / "new").write(diverged, parent=None, configuration={}, metrics={})
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FultrError, match="cannot create this folder"):
        write(Versions(tmp_path / "file"))


def test_rankers_are_found_by_file_and_by_name(versions, tmp_path):
    some_ranker(5).save(tmp_path / "old@home.json")
    ranker, version = read_ranker(tmp_path / "old@home.json")
    assert version is None
    np.testing.assert_array_equal(ranker.weights, some_ranker(5).weights)
    folder, third = versions.folder, versions.list()[2]
    copy = shutil.copy(file_of(versions, third), tmp_path / "copy.json")
    for where in (f"{folder}@latest", f"{folder}/@v0003", f"{folder}@{third}", f"{folder}/{third}.json", copy):
        ranker, version = read_ranker(where)
        assert version is not None
        assert version.name == third
        np.testing.assert_array_equal(ranker.weights, some_ranker(2).weights)
    with pytest.raises(FultrError, match=r"versions: is a folder; .* name it: .*versions@latest"):
        read_ranker(folder)
    with pytest.raises(FultrError, match=r"me@home/none.json: cannot be read: No such file"):
        read_ranker(tmp_path / "me@home" / "none.json")


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(str(ended.value.code)), captured.out, captured.err


@pytest.fixture
def letor_file(tmp_path) -> Path:
    data = plain.random_data(np.random.default_rng(0), features=FEATURES)
    write_letor(data, tmp_path / "test.txt")
    return tmp_path / "test.txt"


def test_rank_uses_any_version(versions, letor_file, tmp_path, capsys, monkeypatch):
    some_ranker(1).save(tmp_path / "ranker.json")
    code, expected, _ = run(capsys, "rank", tmp_path / "ranker.json", letor_file)
    assert code == 0
    assert len(expected.splitlines()) > 20
    for where in (f"{versions.folder}@v0002", f"{versions.folder}/@v0002", file_of(versions, "v0002")):
        assert run(capsys, "rank", where, letor_file) == (0, expected, "")
    monkeypatch.chdir(versions.folder)
    assert run(capsys, "rank", "@v0002", letor_file) == (0, expected, "")
    assert run(capsys, "rank", "@latest", letor_file)[1] != expected


def test_evaluate_tells_the_version(versions, letor_file, capsys):
    code, out, _ = run(capsys, "evaluate", f"{versions.folder}@latest", letor_file, "--json")
    assert code == 0
    assert json.loads(out)["version"] == versions.list()[-1]
    assert "NDCG@5" in run(capsys, "evaluate", f"{versions.folder}@latest", letor_file)[1]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("versions@v0009", "versions: no version 'v0009'; expected latest, v0001-"),
        ("versions", "versions: is a folder; to use one of its versions, name it: versions@latest"),
        ("none@latest", "none: expected a folder of versions, found none: there is no such folder"),
        ("damaged.json", "damaged.json: damaged ranker file: its content has digest"),
    ],
)
def test_commands_tell_what_is_wrong_in_one_line(versions, letor_file, capsys, monkeypatch, where, message):
    monkeypatch.chdir(Path(versions.folder).parent)
    Path("damaged.json").write_text(file_of(versions, "v0001").read_text().replace('"seed": 0', '"seed": 1'))
    for command in (["rank", where, letor_file], ["evaluate", where, letor_file], ["export", where, "--to", "json"]):
        code, out, err = run(capsys, *command)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1


def test_help_tells_how_versions_are_named(capsys):
    for command in ("rank", "evaluate", "export"):
        assert "FOLDER@NAME: a version in a folder of" in run(capsys, command, "--help")[1]


def listed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["versions", *map(str, arguments)])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_versions_are_listed(versions, capsys):
    second = versions.list()[1]
    measured = {"held-out clicks": {"mean": 0.6612, "standard_error": 0.0213}}
    fourth = write(versions, 3, parent=second, configuration={"rounds": 20}, metrics=measured)
    code, table, said = listed(capsys, versions.folder)
    rows = [line.split() for line in table.splitlines() if line.startswith("  v")]
    assert code == 0
    assert [row[0] for row in rows[1:]] == list(versions.list())
    assert rows[0] == ["version", "made", "parent", "rounds", "NDCG@5", "held-out", "clicks"]
    assert rows[1][-1] == "0.5000"
    assert rows[4][3:] == [second, "20", "0.6612", "±", "0.0213"]
    assert "note" not in table
    assert f"{versions.folder}@v0004" in said
    code, text, _ = listed(capsys, versions.folder, "--json")
    last = json.loads(text)[-1]
    assert (last["name"], last["parent"], last["metrics"]) == (fourth.name, second, measured)
    write(versions, 4, note="for the phone")
    assert "for the phone" in listed(capsys, versions.folder)[1]


def test_listing_tells_what_is_wrong_in_one_line(versions, tmp_path, capsys):
    (tmp_path / "fed").mkdir()
    shutil.copytree(versions.folder, tmp_path / "fed" / "state" / "versions")
    code, table, error = listed(capsys, tmp_path / "fed")
    assert (code, table) == (2, "")
    assert f"fed: expected a folder of versions, found none; there are some in {tmp_path}/fed/state/versions\n" in error
    assert listed(capsys, tmp_path / "nowhere")[::2] == (
        2,
        f"fultr: {tmp_path}/nowhere: expected a folder of versions, found none: there is no such folder\n",
    )
    change(file_of(versions, "v0002"), lambda text: text[:100])
    code, table, error = listed(capsys, versions.folder)
    assert (code, table, error.count("\n")) == (2, "", 1)
    assert "v0002" in error
