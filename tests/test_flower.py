"""FedIPS on Flower with real processes: the same weights as the simulation, faults, interruptions, what nodes say."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deployments import time_limit

import fultr
from fultr.device import DeviceLog
from fultr.device_simulation import PERIOD, fill_devices
from fultr.errors import FultrError
from fultr.federation import LocalDevices, Trained, federate, reply_from, task_of
from fultr.federation_settings import FederationSettings
from fultr.population import FiniteUsers
from fultr.rounds import ServerSide

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from wiretap import Tap, tapped

from fultr.deployment import Deployment, free_port, init_deployment, load_deployment
from fultr.deployment_control import stop_active_runs
from fultr.deployment_processes import running, service_process, service_processes, start
from fultr.deployment_train import follow, submit
from fultr.flower.messages import failure_record, read_reply, read_task, reply_record, task_record
from fultr.flower.server_app import write_version
from fultr.processes import is_running
from fultr.versions import Versions

DEVICES, ROUNDS = 5, 3
QUERY, VERSION, TEXT = "planted-query-4711", "planted-version-4711", "planted-text-4711"
VALUES = np.float32([0.7310585, 0.2718282, 0.5772157, 0.9159656])  # of planted documents
TIME = 1_234_567_890.4711

# Runs at the start of a node's processes: its client app replies as the file beside it says, a word a round.
MISBEHAVIOUR = """
import os, pathlib, signal, time
if "flwr-clientapp" in pathlib.Path("/proc/self/cmdline").read_text():
    import numpy as np
    import fultr.flower.client_app as shell
    from flwr.app import Array, ArrayRecord, RecordDict
    here, well = pathlib.Path(__file__).parent, shell.reply_record

    def reply_record(task, reply):
        words = (here / "behaviour").read_text().split()
        word, record = words[min(task.round, len(words) - 1)], well(task, reply)
        (here / f"asked-{task.round}").touch()
        update = reply.update
        if word == "raise":
            raise RuntimeError("planted-error " + (here / "secret").read_text())
        if word == "sleep":
            time.sleep(1000)
        if word == "die":
            for folder in pathlib.Path("/proc").iterdir():
                try:
                    same = folder.name.isdigit() and os.readlink(folder / "cwd") == os.getcwd()
                except OSError:
                    continue
                if same and folder.name != str(os.getpid()):
                    os.kill(int(folder.name), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        arrays = dict(record.array_records["arrays"])
        if word == "nan":
            arrays["update"] = Array(update * np.float32(np.nan))
        if word == "shape":
            arrays["update"] = Array(update[:-1].copy())
        if word == "norm":
            arrays["update"] = Array(np.full_like(update, 1e4))
        if word == "garbage":
            arrays["update"] = Array("float32", update.shape, "numpy.ndarray", os.urandom(100))
        record["arrays"] = ArrayRecord(arrays)
        return record

    shell.reply_record = reply_record
elif "flower-supernode" in pathlib.Path("/proc/self/cmdline").read_text():
    import flwr.supernode.start_client_internal as node
    here, push = pathlib.Path(__file__).parent, node._push_messages

    def push_messages(push_object, **rest):
        def push_or_stall(*thing):
            words, rounds = (here / "behaviour").read_text().split(), len(list(here.glob("asked-*")))
            if rounds and words[min(rounds, len(words)) - 1] == "stall":
                time.sleep(1000)
            return push_object(*thing)

        push(push_object=push_or_stall, **rest)

    node._push_messages = push_messages
"""


@pytest.fixture(scope="module")
def data():
    return fultr.load("synthetic")


@pytest.fixture(scope="module")
def place(data, tmp_path_factory) -> Path:
    """A deployment with filled logs, whose nodes can be told, and reach the SuperLink through another port."""
    folder = tmp_path_factory.mktemp("flower") / "fed"
    init_deployment(folder, DEVICES)
    env = folder / "superlink" / "superlink.env"
    old = load_deployment(folder).port
    env.write_text(env.read_text().replace(f"\nPORT={old}", f"\nPORT={free_port()}"))
    logs = [folder / "nodes" / f"node-{u + 1}" / "device.db" for u in range(DEVICES)]
    fill_devices(logs, data, periods=ROUNDS)
    for u, log in enumerate(logs):
        plant(log, data.train.width)
        told = folder / f"told-{u}"
        told.mkdir()
        (told / "sitecustomize.py").write_text(MISBEHAVIOUR)
        (told / "secret").write_text(TEXT)
        with (log.parent / "node.env").open("a") as file:
            file.write(f'export PYTHONPATH="{told}${{PYTHONPATH:+:$PYTHONPATH}}"\n')
    behave(folder)
    return folder


def plant(path: Path, width: int) -> None:
    """An impression, far from the others in time, of values that nothing else has."""
    features = np.tile(VALUES, (3, width // VALUES.size))
    features[1:] = features[1:, ::-1] / 2
    with DeviceLog.open(path, features=width, retention=None, hold_text=True) as log:
        impression = log.log_impression(QUERY, features, version=VERSION, time=TIME, text=TEXT)
        log.log_click(impression, 2, time=TIME)


def behave(folder: Path, **words: str) -> None:
    """What each device does, a word a round; well if nothing is said."""
    for u in range(DEVICES):
        told = folder / f"told-{u}"
        (told / "behaviour").write_text(words.get(f"device_{u}", "well"))
        for asked in told.glob("asked-*"):
            asked.unlink()


@pytest.fixture(scope="module")
def federation(place):
    with time_limit(900):
        port = int(load_deployment(place).address.split(":")[1])
        with tapped(port, load_deployment(place).port, place / "superlink") as tap, running(place, 180) as deployment:
            yield deployment, tap


def settings_of(data, **others) -> FederationSettings:
    chosen = {"client_rate": 0.05, "rounds": ROUNDS, "period": PERIOD, "held_out": 0.0, "displayed": 5, **others}
    return FederationSettings(features=data.train.width, timeout=90.0, least_devices=DEVICES, **chosen)


def train(deployment: Deployment, settings: FederationSettings, state: str) -> np.ndarray:
    """The weights that a training ends with."""
    write_settings(deployment, settings, state)
    run, new = submit(deployment.folder)
    follow(deployment.folder, run, new)
    return Versions(deployment.folder / state / "versions").read("latest").ranker.weights


def write_settings(deployment: Deployment, settings: FederationSettings, state: str) -> None:
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.as_mapping().items()]
    (deployment.folder / "federation.toml").write_text("\n".join([f'state-dir = "{state}"', *lines]))


def logs_of(deployment: Deployment) -> dict[int, Path]:
    return {u: deployment.folder / "nodes" / f"node-{u + 1}" / "device.db" for u in range(DEVICES)}


def reports(deployment: Deployment, state: str) -> list[dict]:
    path = deployment.folder / state / "progress.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("propensity", ["none", "1,0.5,0.33,0.25,0.2", "personal", "pooled", "shrunk", "power-law"])
def test_tasks_and_replies_come_back_the_same(data, place, propensity):
    settings = settings_of(data, propensity=propensity, held_out=0.2, clip=3.0)
    task = task_of(settings, 0, ServerSide.initial(settings.algorithm(), np.full(64, 0.25, np.float32), 5))
    read = read_task(task_record(task))
    path = place / "nodes" / "node-1" / "device.db"
    one, other = reply_from(path, task), reply_from(path, read)
    back = read_reply(task, reply_record(read, other))
    assert read.training == task.training
    for name in ("update", "judged"):
        assert getattr(back, name).tobytes() == getattr(one, name).tobytes()
    assert (back.round, back.clicks) == (one.round, one.clicks)
    if one.sums is None:
        assert back.sums is None
    else:
        for name, value in vars(one.sums).items():
            assert getattr(back.sums, name).tobytes() == value.tobytes(), name


def test_failures_are_one_of_two_sentences(data):
    task = task_of(settings_of(data), 0, ServerSide.initial(settings_of(data).algorithm(), np.zeros(64, np.float32), 5))
    assert read_reply(task, failure_record(because_of_the_log=True)) == "the device's log cannot be used"
    assert read_reply(task, failure_record(because_of_the_log=False)) == "training failed"
    record = failure_record(because_of_the_log=True)
    record.config_records["failed"]["why"] = "anything"
    assert read_reply(task, record) == "it failed"


@pytest.mark.deployment
def test_flower_ends_with_the_weights_of_the_simulation(data, federation):
    deployment, _ = federation
    settings = settings_of(data, propensity="pooled")
    weights = train(deployment, settings, "same")
    simulated = fultr.simulate(
        data, settings.algorithm(), clients=DEVICES, rounds=ROUNDS, population=FiniteUsers(DEVICES), splits=()
    )
    assert np.linalg.norm(weights) > 0.1
    assert weights.tobytes() == simulated.ranker.weights.tobytes()


@pytest.mark.deployment
def test_kills_cost_no_round(data, federation, tmp_path):
    """The ServerApp, then the SuperLink, killed during a round and right after one: the same weights as without."""
    deployment, _ = federation
    settings = settings_of(data, propensity="shrunk", server="adam", server_rate=0.05)
    whole = federate(LocalDevices(logs_of(deployment)), settings, tmp_path)
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


class Some(LocalDevices):
    """In each round, only these devices."""

    rounds: tuple[tuple[int, ...], ...] = ()

    def ask(self, task, clients, timeout):
        return super().ask(task, [c for c in clients if c in self.rounds[task.round]], timeout)


@pytest.mark.deployment
def test_bad_silent_and_dying_nodes_harm_nobody(data, federation, tmp_path):
    deployment, _ = federation
    behave(
        deployment.folder, device_1="nan norm", device_2="shape sleep", device_3="garbage die", device_4="raise stall"
    )
    settings = replace(settings_of(data, rounds=2, period=0.0), least_replies=1, timeout=45.0)
    found = train(deployment, settings, "faults")
    local = Some(logs_of(deployment))
    type(local).rounds = ((0,), (0,))
    expected = federate(local, settings, tmp_path)
    first, second = reports(deployment, "faults")
    assert first["refused"]["1"] == "update: not finite"
    assert "expected float32 (64,), found float32 (63,)" in first["refused"]["2"]
    assert "its reply cannot be read" in first["refused"]["3"]
    assert first["refused"]["4"] == "training failed"
    assert "its norm is" in second["refused"]["1"]
    assert all(str(client) in second["refused"] or client in second["silent"] for client in (2, 3))
    assert 4 in second["silent"]  # it announced a reply that it did not deliver
    assert second["accepted"] == [0]
    assert found.tobytes() == expected.weights.tobytes()
    behave(deployment.folder)
    kill(deployment, "node-5")
    start(deployment.folder, 180)  # it, and the node that died


@pytest.mark.deployment
def test_no_record_leaves_a_device(data, federation):
    """Nothing planted is in what nodes said in the tests before, with TLS ended, nor in what the server noted."""
    deployment, tap = federation
    settings = settings_of(data, rounds=1, period=0.0, propensity="none")
    train(deployment, settings, "wire")
    task = task_of(settings, 0, ServerSide.initial(settings.algorithm(), np.zeros(64, np.float32), 5))
    assert tap.holds(
        reply_from(logs_of(deployment)[0], task).update.tobytes()
    )  # the tap hears, and this is what it hears
    noted = [path for path in deployment.folder.rglob("*") if path.is_file() and path.name != "device.db"]
    noted = [path for path in noted if "told-" not in str(path) and not path.name.startswith("device.db")]
    for planted in plants(deployment):
        assert not tap.holds(planted), planted
        for path in noted:
            assert planted not in path.read_bytes(), (planted, path)


def plants(deployment: Deployment) -> list[bytes]:
    """What must not be found: as text, and as numbers in the ways that they are written."""
    values = [float(value) for value in VALUES]
    found = [QUERY.encode(), TEXT.encode(), VERSION.encode(), b"planted-error", str(TIME).encode()]
    found += [struct.pack("<d", TIME), struct.pack(">d", TIME), struct.pack("<d", float(np.float32(TIME)))]
    for value in values:
        found += [struct.pack("<f", value), struct.pack("<d", value), struct.pack("<e", value) * 4]
        found += [np.format_float_positional(np.float32(value)).encode(), repr(value).encode()]
    found.append(VALUES.tobytes())
    with DeviceLog.open(logs_of(deployment)[0], retention=None) as log:
        records = log.training_log(displayed=5)
    found += [records.display.features[row, :8].tobytes() for row in range(0, 40, 7)]  # of the simulated documents
    return found


@pytest.mark.deployment
def test_messages_are_small(data, federation):
    """Flower's own traffic aside, a reply is the update and the sums: features + 1, 2 K, and a few numbers."""
    _, tap = federation
    assert isinstance(tap, Tap)
    settings = settings_of(data, propensity="pooled")
    task = task_of(settings, 0, ServerSide.initial(settings.algorithm(), np.zeros(64, np.float32), 5))
    reply = reply_from(next(iter(logs_of(federation[0]).values())), task)
    record = reply_record(task, reply)
    assert set(record.array_records["arrays"]) == {"update", "sums_gradient", "sums_examined", "sums_impressions"}
    assert set(record.config_records["reply"]) == {"round", "clicks"}
    assert sum(len(a.data) for a in record.array_records["arrays"].values()) < 64 * 4 + (65 + 2 * 5) * 8 + 4 * 200


def test_versions_follow_each_other(data, tmp_path):
    settings = settings_of(data)
    weights = np.ones(64, np.float32)
    first = write_version(Trained(weights, 1, None), settings, tmp_path)
    assert write_version(Trained(weights, 1, None), settings, tmp_path).name == first.name
    second = write_version(Trained(weights * 2, 2, None), settings, tmp_path)
    assert second.parent == first.name
