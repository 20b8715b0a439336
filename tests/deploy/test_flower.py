"""FedIPS on Flower with real processes: the same weights as the simulation, faults, interruptions, what nodes say."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from help.deployments import allow, time_limit

import fultr
from fultr.core.errors import FultrError
from fultr.device.answer import answer
from fultr.device.local import LocalDevices
from fultr.device.log import DeviceLog
from fultr.device.policy import DevicePolicy
from fultr.federated.budget import model_of
from fultr.federated.federate import Trained, federate, task_of
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server
from fultr.federated.messages import Reply, Task
from fultr.study.fill_devices import PERIOD, fill_devices
from fultr.study.settings import FiniteUsers
from fultr.study.sums import arrives

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from help.wiretap import Tap, tapped

from fultr.deploy.control import stop_active_runs
from fultr.deploy.flower.server_app import write_version
from fultr.deploy.folder import Deployment, free_port, init_deployment, load_deployment
from fultr.deploy.processes import is_running
from fultr.deploy.services import running, service_process, service_processes, start
from fultr.deploy.training import follow, submit
from fultr.rankers.model import MODELS, ModelSettings
from fultr.rankers.plain import PLAIN
from fultr.rankers.versions import Versions

DEVICES, ROUNDS, FILLED = 5, 3, 10
QUERY, VERSION, TEXT = "planted-query-4711", "planted-version-4711", "planted-text-4711"
VALUES = np.float32([0.7310585, 0.2718282, 0.5772157, 0.9159656])  # of planted documents
TIME = 1_234_567_890.4711
DROPOUTS = 0.15  # device 0 in round 3, and no other in three rounds
MANY = {"answers_a_day": 10**6, "answers_in_all": 10**6, "seconds_apart": 0.0}

# Runs at the start of a node: it replies as the file beside it says, a word a round.
MISBEHAVIOUR = """
import pathlib
if b"fultr\\0node" in pathlib.Path("/proc/self/cmdline").read_bytes():
    import io, os, time
    import numpy as np
    import fultr.device.mailbox as mailbox
    from dataclasses import replace
    import fultr.deploy.flower.fleet as fleet
    from fultr.federated.wire import read_reply, read_task, reply_bytes
    here, well, deliver = pathlib.Path(__file__).parent, mailbox.answer_message, fleet.called
    word = "well"

    def answer_message(log, content, policy, *others):
        global word
        sent, words = well(log, content, policy, *others)
        if content.startswith(b"sum"):
            return sent, words
        task = read_task(content)
        (here / f"asked-{task.round}").touch()
        told = (here / "behaviour").read_text().split()
        word = told[min(task.round, len(told) - 1)]
        if word == "well":
            return sent, words
        if word == "sleep":
            time.sleep(1000)
        if word == "die":
            os._exit(9)
        reply = read_reply(task, sent)
        update, archive = reply.sums["update"], io.BytesIO()
        np.savez(archive, update=update)
        bad = {
            "nan": {"update": update * np.float32(np.nan)},
            "shape": {"update": update[:-1].copy()},
            "norm": {"update": np.full_like(update, 1e4)},
            "judge": {"judged": np.array([1e300, 1e300, 0])},
        }
        if word in bad:
            sent = reply_bytes(replace(reply, sums={**reply.sums, **bad[word]}))
        raw = {"garbage": os.urandom(len(sent)), "archive": archive.getvalue(), "long": bytes(15_000_000)}
        return raw.get(word, sent), "misbehaved"

    def called(client, path, parts, *most):
        if word == "stall" and path == fleet.REPLY:  # announce a reply by Flower's API, and do not send it
            client.PushMessages(fleet.PushMessagesRequest.FromString(parts[0]))
            time.sleep(1000)
        return deliver(client, path, parts, *most)

    mailbox.answer_message, fleet.called = answer_message, called
"""


@pytest.fixture(scope="module")
def data():
    return fultr.load("synthetic")


@pytest.fixture(scope="module")
def periods(data, tmp_path_factory) -> list[Path]:
    """Logs of all the simulated users, to take periods from."""
    folder = tmp_path_factory.mktemp("whole")
    paths = [folder / f"device-{u}.db" for u in range(DEVICES)]
    fill_devices(paths, data, periods=FILLED)
    return paths


@pytest.fixture(scope="module")
def place(data, tmp_path_factory) -> Path:
    """A deployment with empty logs, whose nodes can be told, and reach the SuperLink through another port."""
    folder = tmp_path_factory.mktemp("flower") / "fed"
    init_deployment(folder, DEVICES)
    env = folder / "superlink" / "superlink.env"
    old = load_deployment(folder).port
    env.write_text(env.read_text().replace(f"\nPORT={old}", f"\nPORT={free_port()}"))
    for u, log in logs_of(folder).items():
        DeviceLog.open(log, features=data.train.width).close()
        told = folder / f"told-{u}"
        told.mkdir()
        (told / "sitecustomize.py").write_text(MISBEHAVIOUR)
        with (log.parent / "node.env").open("a") as file:
            file.write(f'export PYTHONPATH="{told}${{PYTHONPATH:+:$PYTHONPATH}}"\n')
    behave(folder)
    return folder


def behave(folder: Path, **words: str) -> None:
    """What each device does, a word a round; well if nothing is said."""
    for u in range(DEVICES):
        told = folder / f"told-{u}"
        (told / "behaviour").write_text(words.get(f"device_{u}", "well"))
        for asked in told.glob("asked-*"):
            asked.unlink()


@pytest.fixture(scope="module")
def federation(place):
    with time_limit(600):
        port = int(load_deployment(place).address.split(":")[1])
        with tapped(port, load_deployment(place).port, place / "superlink") as tap, running(place, 180) as deployment:
            yield deployment, tap


@pytest.fixture(scope="module")
def filled(federation, periods, tmp_path_factory) -> dict[int, Path]:
    """All periods and what is planted, in every log; copies of the logs as they are then, before any answer."""
    folder, copies = federation[0].folder, tmp_path_factory.mktemp("copies")
    for u, log in logs_of(folder).items():
        allow(log.parent, window="all", least_clicks=20, least_impressions=50, held_out=0.2, **MANY)
        with DeviceLog.open(log, retention=None, hold_text=True) as opened:
            opened.forget(all=True)
            for t in range(FILLED):
                append(opened, periods[u], t)
            plant(opened)
        shutil.copy(log, copies / log.parent.name)
    return {u: copies / f"node-{u + 1}" for u in range(DEVICES)}


def append(log: DeviceLog, whole: Path, period: int) -> None:
    """Log one period of another log again."""
    with DeviceLog.open(whole, retention=None) as other:
        records = other.records(since=period * PERIOD, until=(period + 1) * PERIOD)
    width = next(schema.count for schema in log.schemas() if schema.current)
    for query, clicks in zip(records.log.queries, records.log.clicks, strict=True):
        rows = records.display.shown[query]
        shown = log.log_impression(int(query), records.display.features[rows[rows >= 0], :width])
        for rank in np.flatnonzero(clicks) + 1:
            log.log_click(shown, int(rank))


def plant(log: DeviceLog) -> None:
    """An impression of values that nothing else has."""
    features = np.tile(VALUES, (3, 64 // VALUES.size))
    features[1:] = features[1:, ::-1] / 2
    for _ in range(4):  # one of them at least is trained on
        impression = log.log_impression(QUERY, features, version=VERSION, time=TIME, text=TEXT)
        log.log_click(impression, 2, time=TIME)


def settings_of(data, **others) -> FederationSettings:
    usual = {"features": data.train.width, "timeout": 90.0, "least_devices": DEVICES, "rounds": ROUNDS, "displayed": 5}
    return FederationSettings.of({**usual, "client_rate": 0.05, "judge": False, **others})


def train(deployment: Deployment, settings: FederationSettings, state: str) -> np.ndarray:
    """The weights that a training ends with."""
    write_settings(deployment, settings, state)
    run, new = submit(deployment.folder)
    follow(deployment.folder, run, new)
    return Versions(deployment.folder / state / "versions").read("latest").ranker.weights


def write_settings(deployment: Deployment, settings: FederationSettings, state: str) -> None:
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.as_mapping().items()]
    (deployment.folder / "federation.toml").write_text("\n".join([f'state-dir = "{state}"', *lines]))


def logs_of(folder: Path) -> dict[int, Path]:
    return {u: folder / "nodes" / f"node-{u + 1}" / "device.db" for u in range(DEVICES)}


def first_task(settings: FederationSettings) -> Task:
    model = model_of(settings)
    return task_of(settings, 0, Server.initial(settings.algorithm(), model, model.initial(), settings.displayed))


def reports(deployment: Deployment, state: str) -> list[dict]:
    path = deployment.folder / state / "progress.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def copied(logs: dict[int, Path], folder: Path) -> dict[int, Path]:
    """Logs to answer from, so that the others stay as they are."""
    folder.mkdir()
    return {u: Path(shutil.copy(log, folder / f"{u}.db")) for u, log in logs.items()}


@pytest.mark.deployment
def test_flower_ends_with_the_weights_of_the_simulation(data, federation, periods):
    """Each round's clicks are logged before it, and every device trains on what is new.

    Then the same in secure sums, with a device that drops out of the last.
    """
    deployment, _ = federation
    settings, summed = (settings_of(data, propensity="pooled", secure_sums=sums) for sums in (False, True))
    weights, masked = np.empty(0), np.empty(0)
    for t in range(ROUNDS):
        there = arrives(DROPOUTS, 0, t, 1, np.arange(DEVICES))
        for u, log in logs_of(deployment.folder).items():
            allow(log.parent, window="latest", least_clicks=1, least_impressions=1, held_out=0.0, **MANY)
            with DeviceLog.open(log, retention=None) as opened:
                append(opened, periods[u], t)
        weights = train(deployment, replace(settings, rounds=t + 1), "same")
        for u, log in logs_of(deployment.folder).items():
            allow(log.parent, answers_in_all=10**6 if there[u] else 0)
        masked = train(deployment, replace(summed, rounds=t + 1), "masked")
    assert [len(report["accepted"]) for report in reports(deployment, "masked")] == [5, 5, 4]
    users = FiniteUsers(DEVICES)
    options = dict(clients=DEVICES, rounds=ROUNDS, population=users, splits=())
    simulated = fultr.simulate(data, settings.algorithm(), **options)
    assert np.linalg.norm(weights) > 0.1
    assert weights.tobytes() == simulated.ranker.weights.tobytes()
    simulated = fultr.simulate(data, summed.algorithm(), secure_sums=True, dropouts=DROPOUTS, **options)
    assert masked.tobytes() == simulated.ranker.weights.tobytes() != weights.tobytes()


@pytest.mark.slow
@pytest.mark.deployment
def test_kills_cost_no_round(data, federation, filled, tmp_path):
    """The ServerApp, then the SuperLink, killed during a round and right after one: the same weights as without."""
    deployment, _ = federation
    settings = settings_of(data, propensity="shrunk", server="adam", server_rate=0.05, judge=True)
    local = LocalDevices(copied(filled, tmp_path / "copies"), policy=DevicePolicy(**MANY))
    whole = federate(local, settings, tmp_path / "local")
    behave(deployment.folder)
    write_settings(deployment, settings, "killed")
    asked = deployment.folder / "told-0" / "asked-{round}"
    run, _ = submit(deployment.folder)
    wait_for(lambda: Path(str(asked).format(round=0)).exists())
    kill(deployment, "superlink", b"flwr-serverapp")
    assert reports(deployment, "killed") == []
    with pytest.raises(FultrError, match=f"run {run} failed"):
        follow(deployment.folder, run, False)
    run, _ = submit(deployment.folder)
    wait_for(lambda: len(reports(deployment, "killed")) == 1)
    kill(deployment, "superlink", b"flwr-serverapp")
    stop_active_runs(deployment)
    submit(deployment.folder)
    wait_for(lambda: Path(str(asked).format(round=1)).exists())
    kill(deployment, "superlink")
    assert len(reports(deployment, "killed")) == 1
    start(deployment.folder, 180)
    submit(deployment.folder)
    wait_for(lambda: len(reports(deployment, "killed")) == 2)
    kill(deployment, "superlink")
    start(deployment.folder, 180)
    assert train(deployment, settings, "killed").tobytes() == whole.weights.tobytes()
    assert [report["round"] for report in reports(deployment, "killed")] == [1, 2, 3]


def wait_for(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.02)


def kill(deployment: Deployment, service: str, program: bytes = b"") -> None:
    """Kill a service, or only those of its processes that run a program, and wait until they are gone."""
    found = service_processes(deployment, service) if program else [service_process(deployment, service)]
    found = [process for process in found if program in Path(f"/proc/{process.number}/cmdline").read_bytes()]
    assert found
    for process in found:
        os.kill(process.number, signal.SIGKILL)
        wait_for(lambda process=process: not is_running(process))


@pytest.fixture(scope="module")
def faulty(data, federation, filled) -> tuple[FederationSettings, np.ndarray]:
    """A training with four devices of five that fail in some way; its settings and weights."""
    deployment, _ = federation
    behave(
        deployment.folder,
        device_1="nan norm archive",
        device_2="shape judge sleep",
        device_3="garbage long die",
        device_4="archive garbage stall",
    )
    settings = settings_of(data, least_replies=1, timeout=20.0, judge=True)
    weights = train(deployment, settings, "faults")
    behave(deployment.folder)
    for u in (2, 4):
        kill(deployment, f"node-{u + 1}")  # that sleep
    start(deployment.folder, 180)  # them, and the node that died
    return settings, weights


@pytest.mark.deployment
def test_bad_silent_and_dying_nodes_harm_nobody(federation, faulty, filled, tmp_path):
    deployment, _ = federation
    settings, weights = faulty
    alone = {0: copied(filled, tmp_path / "copies")[0]}
    expected = federate(LocalDevices(alone, policy=DevicePolicy(**MANY)), alone_of(settings), tmp_path / "local")
    first, second, third = reports(deployment, "faults")
    assert first["refused"]["1"] == "update: not finite"
    assert first["refused"]["2"] == "its reply cannot be read: update: expected float32 (64,), found float32 (63,)"
    assert "its reply cannot be read: its head is not" in first["refused"]["3"]
    assert "its reply cannot be read: its head is not" in first["refused"]["4"]
    assert "update: its norm is" in second["refused"]["1"]
    assert "judged: clicks of weight 1e+300 in all" in second["refused"]["2"]
    assert "its reply cannot be read" in second["refused"]["3"]
    assert third["refused"].keys() | set(map(str, third["silent"])) == {"1", "2", "3", "4"}
    assert {2, 4} <= set(third["silent"]) | {int(u) for u, why in third["refused"].items() if "whole" in why}
    assert [report["accepted"] for report in (first, second, third)] == [[0]] * 3
    assert first["answered"].keys() == {"0", "1", "2", "3", "4"}
    assert weights.tobytes() == expected.weights.tobytes()


def alone_of(settings: FederationSettings) -> FederationSettings:
    return FederationSettings.of({**settings.as_mapping(), "least_devices": 1})


@pytest.mark.deployment
def test_no_record_leaves_a_device(federation, faulty, filled, tmp_path):
    """Nothing planted is in what nodes said in the tests before, with TLS ended, nor in what the server noted."""
    deployment, tap = federation
    settings, _ = faulty
    task, logs = first_task(settings), copied(filled, tmp_path / "copies")
    sent = update_of(logs[0], task)
    with DeviceLog.open(logs[1], retention=None) as log:
        assert log.forget(query=QUERY) == 4
    assert update_of(filled[1], task).tobytes() != update_of(logs[1], task).tobytes()  # trained on what is planted
    assert tap.holds(sent.tobytes())  # the tap hears
    noted = [path for path in deployment.folder.rglob("*") if path.is_file() and path.name != "device.db"]
    noted = [path for path in noted if "told-" not in str(path) and not path.name.startswith("device.db")]
    for planted in plants(filled[0]):
        assert not tap.holds(planted), planted
        for path in noted:
            assert planted not in path.read_bytes(), (planted, path)


def update_of(log: Path, task: Task) -> np.ndarray:
    reply = answer(log, task, DevicePolicy(**MANY))
    assert isinstance(reply, Reply)
    return reply.sums["update"]


def plants(log: Path) -> list[bytes]:
    """What must not be found: as text, and as numbers in the ways that they are written."""
    values = [float(value) for value in VALUES]
    found = [QUERY.encode(), TEXT.encode(), VERSION.encode(), str(TIME).encode()]
    found += [struct.pack("<d", TIME), struct.pack(">d", TIME), struct.pack("<d", float(np.float32(TIME)))]
    for value in values:
        found += [struct.pack("<f", value), struct.pack("<d", value), struct.pack("<e", value) * 4]
        found += [np.format_float_positional(np.float32(value)).encode(), repr(value).encode()]
    found.append(VALUES.tobytes())
    with DeviceLog.open(log, retention=None) as opened:
        records = opened.records(displayed=5)
    found += [records.display.features[row, :8].tobytes() for row in range(0, 40, 7)]  # of the simulated documents
    return found


@pytest.mark.deployment
def test_the_tap_heard_a_tap(federation):
    assert isinstance(federation[1], Tap)
    assert sum(map(len, federation[1].said)) > 10_000


def test_versions_follow_each_other(data, tmp_path):
    settings = settings_of(data)
    weights = np.ones(64, np.float32)
    first = write_version(Trained(weights, 1, None), settings, tmp_path)
    assert write_version(Trained(weights, 1, None), settings, tmp_path).name == first.name
    second = write_version(Trained(weights * 2, 2, None), settings, tmp_path)
    assert second.parent == first.name


def test_a_version_names_its_model(tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS._places, "twin", "fultr.rankers.linear:Linear")
    monkeypatch.setitem(PLAIN._places, "twin", "fultr.rankers.plain:PlainLinear")
    settings = FederationSettings.of({"features": 2, "model": "twin"})
    version = write_version(Trained(np.ones(2, np.float32), 1, None), settings, tmp_path)
    assert version.ranker.model == settings.algorithm().model == ModelSettings("twin")


def test_a_version_has_the_features_names(tmp_path):
    settings = FederationSettings.of({"features": 2, "feature_names": "title match, freshness", "normalised": False})
    version = write_version(Trained(np.ones(2, np.float32), 1, None), settings, tmp_path)
    assert version.ranker.feature_names == ("title match", "freshness")
    assert not version.ranker.normalised
    without = FederationSettings.of({"features": 2})
    child = write_version(Trained(np.zeros(2, np.float32), 2, None), without, tmp_path)
    assert child.ranker.feature_names == ("title match", "freshness")  # the parent's
