"""Settings of a federation in their file: filled in by `fultr device simulate`, and nothing else touched."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from fultr import deploy_demo
from fultr.cli import main
from fultr.deployment import init_deployment
from fultr.device import DeviceLog
from fultr.errors import FultrError
from fultr.federation import LocalDevices, federate
from fultr.federation_settings import FederationSettings, fill_in
from fultr.rankers import LinearRanker
from fultr.versions import Versions

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
        ("\n# ours\nfeatures = 519\n", "federation.toml, line 3: expected features = 64, found 519; change that line"),
        ("features = 64\ndisplayed = 10 # all\n", "federation.toml, line 2: expected displayed = 5, found 10"),
        ("features = \n", "federation.toml: expected TOML"),
        ('note = """\n# features = 3\n"""\n', "federation.toml: features, displayed: found no place for it"),
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
    assert f"{path}, line 1: expected features = 64, found 519" in error
    assert error.count("\n") == 1
    assert path.read_text() == "features = 519\n"
    assert not list(folder.glob("nodes/*/device.db"))


def test_logs_outside_a_deployment_need_no_settings(tmp_path):
    assert simulate(tmp_path / "logs") == 0
    assert sorted(path.name for path in (tmp_path / "logs").glob("*.db")) == ["device-0.db", "device-1.db"]


def test_the_demo_ends_above_the_ranker_that_users_saw(tmp_path, capsys, monkeypatch):
    """With the settings that a new deployment has; devices are asked in this process."""

    def train_here(folder: Path, detach: bool, as_json: bool) -> None:
        settings = tomllib.loads((folder / "federation.toml").read_text())
        state = folder / settings.pop("state-dir")
        logs = {u: folder / "nodes" / f"node-{u + 1}" / "device.db" for u in range(5)}
        trained = federate(LocalDevices(logs), FederationSettings.of(settings), state)
        assert trained.rounds == 5
        ranker = LinearRanker(trained.weights, np.arange(1, 65))
        Versions(state / "versions").write(ranker, parent=None, configuration={}, metrics={})

    monkeypatch.setattr(deploy_demo, "start_command", lambda folder, patience: None)
    monkeypatch.setattr(deploy_demo, "stop_command", lambda folder: None)
    monkeypatch.setattr(deploy_demo, "train_command", train_here)
    deploy_demo.demo_command(tmp_path / "fed", nodes=5, rounds=5, seed=0)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    untrained, policy, federated = (float(row[-1]) for row in rows[-3:])
    assert untrained + 0.05 < policy < federated
