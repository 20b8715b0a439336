"""Settings of a federation in their file: filled in by `fultr device simulate`, and nothing else touched."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path

import numpy as np
import pytest
from help.toml_values import NASTY, anything, written_document
from hypothesis import given
from hypothesis import strategies as st

from fultr.cli import deploy
from fultr.cli.main import main
from fultr.core.errors import FultrError
from fultr.core.settings import leaves
from fultr.deploy.folder import init_deployment
from fultr.device.local import LocalDevices
from fultr.device.log import DeviceLog
from fultr.federated.estimators import ESTIMATORS
from fultr.federated.federate import federate
from fultr.federated.federation import FederationSettings, fill_in
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Versions

WANTED = {"features": 64, "displayed": 5}


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("# features = 519\ndisplayed = 5\n", "features = 64\ndisplayed = 5\n", ["features"]),
        ("a = 1 # features = 3\n", "a = 1 # features = 3\nfeatures = 64\ndisplayed = 5\n", [*WANTED]),
        (
            "#features=519  # why\r\n# displayed = 10",
            "features = 64  # why\r\ndisplayed = 5",
            ["features", "displayed"],
        ),
        ("x = 1\n[t]\nfeatures = 3\n", "x = 1\nfeatures = 64\ndisplayed = 5\n[t]\nfeatures = 3\n", [*WANTED]),
        ("", "features = 64\ndisplayed = 5\n", [*WANTED]),
        ("features = 64 # é\n displayed = 5", "features = 64 # é\n displayed = 5", []),
    ],
)
def test_only_the_lines_of_the_settings_change(tmp_path, before, after, changed):
    path = tmp_path / "federation.toml"
    path.write_bytes(before.encode())
    path.chmod(0o640)
    assert fill_in(path, WANTED, write=False) == changed
    assert path.read_bytes() == before.encode()
    assert fill_in(path, WANTED) == changed
    assert path.read_bytes() == after.encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n# ours\nfeatures = 519\n", "federation.toml:3: expected features = 64, found 519; change that line"),
        ("features = 64\ndisplayed = 10 # all\n", "federation.toml:2: expected displayed = 5, found 10"),
        ("features = \n", "federation.toml:1: not valid TOML"),
        ('note = """\n# features = 3\n"""\n', "federation.toml: features, displayed: cannot be set here"),
    ],
)
def test_a_file_that_says_otherwise_stays(tmp_path, text, message):
    path = tmp_path / "federation.toml"
    path.write_text(text)
    with pytest.raises(FultrError) as caught:
        fill_in(path, WANTED)
    assert message in str(caught.value)
    assert path.read_text() == text


def test_values_are_replaced_where_that_is_asked_for(tmp_path):
    path = tmp_path / "federation.toml"
    path.write_text("rounds = 10  # some\nleast-devices = 2\n")
    assert fill_in(path, {"rounds": 5, "least_devices": 3}, replace=True) == ["rounds", "least_devices"]
    assert path.read_text() == "rounds = 5  # some\nleast_devices = 3\n"


def test_the_template_needs_features_alone(tmp_path):
    init_deployment(tmp_path / "fed", 2)
    path = tmp_path / "fed" / "federation.toml"
    before = path.read_text().splitlines()
    fill_in(path, WANTED)
    changed = [pair for pair in zip(before, path.read_text().splitlines(), strict=True) if pair[0] != pair[1]]
    assert [after for _, after in changed] == ["features = 64", "displayed = 5"]
    settings = tomllib.loads(path.read_text())
    del settings["state-dir"]
    assert FederationSettings.of(settings).features == 64


def simulate(folder: Path, *more: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["device", "simulate", "--nodes", "2", "--periods", "1", "--dir", str(folder), *more])
    return int(ended.value.code or 0)


def test_simulated_logs_and_settings_agree(tmp_path, capsys):
    folder = tmp_path / "fed"
    init_deployment(folder, 2)
    assert simulate(folder, "--displayed", "4") == 0
    told = f"{folder / 'federation.toml'}: set features = 64 and displayed = 4, as in these logs\n"
    assert told in capsys.readouterr().err
    with DeviceLog.open(folder / "nodes" / "node-2" / "device.db") as log:
        assert log.schemas()[0].count == 64
    settings = (folder / "federation.toml").read_text()
    assert simulate(folder, "--displayed", "4") == 2
    assert "there is a log already" in capsys.readouterr().err
    assert (folder / "federation.toml").read_text() == settings


def test_other_features_are_refused_before_a_log_is_filled(tmp_path, capsys):
    folder = tmp_path / "fed"
    init_deployment(folder, 2)
    path = folder / "federation.toml"
    path.write_text("features = 519\n")
    assert simulate(folder) == 2
    error = capsys.readouterr().err
    assert f"{path}:1: expected features = 64, found 519" in error
    assert error.count("\n") == 1
    assert path.read_text() == "features = 519\n"
    assert not list(folder.glob("nodes/*/device.db"))


def test_logs_outside_a_deployment_need_no_settings(tmp_path):
    assert simulate(tmp_path / "logs") == 0
    assert sorted(path.name for path in (tmp_path / "logs").glob("*.db")) == ["device-0.db", "device-1.db"]


def test_the_demo_ends_above_the_ranker_that_users_saw(tmp_path, capsys, monkeypatch):
    """With the settings that a new deployment has; devices are asked in this process."""

    def train_here(folder: Path, run: int, new: bool) -> None:
        settings = tomllib.loads((folder / "federation.toml").read_text())
        state = folder / settings.pop("state-dir")
        logs = {u: folder / "nodes" / f"node-{u + 1}" / "device.db" for u in range(5)}
        trained = federate(LocalDevices(logs), FederationSettings.of(settings), state)
        assert trained.rounds == 5
        ranker = Ranker(trained.weights, np.arange(1, 65))
        Versions(state / "versions").write(ranker, parent=None, configuration={}, metrics={})

    monkeypatch.setattr(deploy, "_start", lambda folder, patience: None)
    monkeypatch.setattr(deploy, "_stop", lambda folder: None)
    monkeypatch.setattr(deploy, "_submitted", lambda folder: (1, True))
    monkeypatch.setattr(deploy, "_followed", train_here)
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "demo", str(tmp_path / "fed")])
    assert ended.value.code == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    untrained, policy, federated = (float(row[-1]) for row in rows[-3:])
    assert untrained + 0.05 < policy < federated


def read(folder: Path, text: str) -> FederationSettings:
    (folder / "federation.toml").write_text(text, encoding="utf-8")
    return FederationSettings.read(folder / "federation.toml", besides=("state_dir",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("features = 5\n\nclient-rat = 1", "3: unknown setting 'client_rat'; did you mean client_rate?"),
        ("features = 5\nstate-dri = 1", "2: unknown setting 'state_dri'; did you mean state_dir?"),
        ("rounds = 5", " features: expected a whole number, at least 1, found nothing"),
        ('features = 5\nbeta1 = "2"', '2: beta1: expected a number, at least 0, below 1, found the text "2"'),
        ("features = 5\nclip = [1]", "2: clip: expected a number, above 0, or 0: no limit; found the list [1]"),
        ("features = 5\n[clip]\na = 1", "2: clip: expected a number, above 0, or 0: no limit; found a table"),
        (
            'features = 5\npropensity = "gess"',
            f'2: propensity: expected one of none, {", ".join(ESTIMATORS)}, or one number per rank; found "gess"',
        ),
        ("features = 5\ncohort = 1", "2: cohort: expected at least least_replies = 2, found 1"),
        ("features = ", "1: not valid TOML: Invalid value"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_its_line(tmp_path, text, says):
    with pytest.raises(FultrError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'federation.toml'}:{says}"


def accepted_or_one_line(name: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            read(Path(folder), written_document({"features": 5, "state-dir": "state", name: value}))
            fill_in(Path(folder) / "federation.toml", {"features": 5, "displayed": 10})
        except FultrError as error:
            assert "\n" not in str(error)  # noqa: PT017
            assert str(error).startswith(f"{folder}/federation.toml:")  # noqa: PT017


@pytest.mark.parametrize("name", leaves(FederationSettings))
def test_whatever_stands_at_a_key_is_taken_or_refused_in_one_line(name):
    for value in NASTY:
        accepted_or_one_line(name, value)


@given(st.sampled_from([*leaves(FederationSettings), "xyz"]), anything)
def test_any_value_at_any_key_is_taken_or_refused_in_one_line(name, value):
    accepted_or_one_line(name, value)


def test_what_is_read_can_be_written_and_read_again(tmp_path):
    for given_ in (
        {},
        {"propensity": "1,0.5", "displayed": 2, "clip": 3},
        {"propensity": "none", "client_rate": 1},
        {"feature_names": "a,b, c,d,e"},
    ):
        settings = FederationSettings.of({"features": 5, **given_})
        assert read(tmp_path, written_document(settings.as_mapping())) == settings


@pytest.mark.parametrize("names", ["a", "a,b,b", "a,b,", "a,b,c,d"])
def test_there_is_one_name_for_each_feature(names):
    with pytest.raises(FultrError, match=r"feature_names: expected 3 different names, found \d texts"):
        FederationSettings(features=3, feature_names=names)
    assert FederationSettings(features=3, feature_names=" a,b b , c").names == ("a", "b b", "c")
