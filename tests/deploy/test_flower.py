"""FedIPS on Flower with real processes: the same weights as the simulation, faults, interruptions, what nodes say."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from help.deployments import time_limit

import fultr
from fultr.core.errors import FultrError
from fultr.device.answer import LocalDevices, reply_from
from fultr.device.log import DeviceLog
from fultr.federated.federate import Trained, federate, model_of, task_of
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server
from fultr.federated.messages import Task
from fultr.study.fill_devices import PERIOD, fill_devices
from fultr.study.settings import FiniteUsers

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from help.wiretap import Tap, tapped

from fultr.deploy.control import stop_active_runs
from fultr.deploy.flower.messages import failure_record, read_reply, read_task, reply_record, task_record
from fultr.deploy.flower.server_app import write_version
from fultr.deploy.folder import Deployment, free_port, init_deployment, load_deployment
from fultr.deploy.processes import is_running
from fultr.deploy.services import running, service_process, service_processes, start
from fultr.deploy.training import follow, submit
from fultr.rankers.model import MODELS
from fultr.rankers.plain import PLAIN
from fultr.rankers.versions import Versions

DEVICES, ROUNDS = 5, 3
QUERY, VERSION, TEXT = "planted-query-4711", "planted-version-4711", "planted-text-4711"
VALUES = np.float32([0.7310585, 0.2718282, 0.5772157, 0.9159656])  # of planted documents
TIME = 1_234_567_890.4711

# Runs at the start of a node's processes: its client app replies as the file beside it says, a word a round.
MISBEHAVIOUR = """
import os, pathlib, signal, time
if "flwr-clientapp" in pathlib.Path("/proc/self/cmdline").read_text():
    import numpy as np
    import fultr.deploy.flower.client_app as shell
    from flwr.app import Array, ArrayRecord, RecordDict
    here, well = pathlib.Path(__file__).parent, shell.reply_record

    def reply_record(reply):
        words = (here / "behaviour").read_text().split()
        word, record = words[min(reply.round, len(words) - 1)], well(reply)
        (here / f"asked-{reply.round}").touch()
        update = reply.sums["update"]
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
    usual = {"features": data.train.width, "timeout": 90.0, "least_devices": DEVICES}
    return FederationSettings.of({**usual, **chosen})


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


def first_task(settings: FederationSettings, weights: np.ndarray | None = None) -> Task:
    model = model_of(settings)
    first = model.initial() if weights is None else weights
    return task_of(settings, 0, Server.initial(settings.algorithm(), model, first, settings.displayed))


def reports(deployment: Deployment, state: str) -> list[dict]:
    path = deployment.folder / state / "progress.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("propensity", ["none", "1,0.5,0.33,0.25,0.2", "personal", "pooled", "shrunk", "power-law"])
def test_tasks_and_replies_come_back_the_same(data, place, propensity):
    settings = settings_of(data, propensity=propensity, held_out=0.2, clip=3.0)
    task = first_task(settings, np.full(64, 0.25, np.float32))
    read = read_task(task_record(task))
    path = place / "nodes" / "node-1" / "device.db"
    one, other = reply_from(path, task), reply_from(path, read)
    back = read_reply(task, reply_record(other))
    assert read.algorithm.training == task.algorithm.training
    assert back.round == one.round
    assert back.sums.keys() == one.sums.keys() >= {"update", "judged", "clicks"}
    for name, value in one.sums.items():
        assert back.sums[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.zeros(1, np.float32)}, r"weights: expected float32 \(64,\), found float32 \(1,\)"),
        ({"weights": np.zeros(64)}, r"weights: expected float32 \(64,\), found float64"),
        ({"weights": np.full(64, np.nan, np.float32)}, "weights: not finite"),
        ({"estimation_pooled": np.zeros(0)}, r"pooled: expected float64 \(5,\), found float64 \(0,\)"),
        ({"estimation_priors": np.zeros((5, 8, 1), np.float32)}, r"priors: expected float32 \(5, 8, 32\)"),
        ({"estimation_other": np.zeros(5)}, "the task has chosen, grid, other, pooled, .* instead of"),
        ({"displayed": 10**9}, "displayed: expected a whole number, at least 1, at most 1,000, found 1000000000"),
        ({"displayed": -1}, "displayed: expected"),
        ({"held_out": 1.5}, "held_out: expected"),
        ({"seed": -1}, "seed: expected"),
        ({"since": "yesterday"}, "since: expected a number, found the text"),
        ({"algorithm_loss": "mine"}, "loss: expected one of"),
    ],
)
def test_a_device_refuses_a_task_that_does_not_fit(data, change, message):
    """Compiled code would read beyond the end of what is too short."""
    record = task_record(first_task(settings_of(data, propensity="shrunk")))
    for name, value in change.items():
        if isinstance(value, np.ndarray):
            record.array_records["arrays"][name] = Array(value)
        else:
            record.config_records["task"][name] = value
    with pytest.raises(FultrError, match=message):
        read_task(record)


def _npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def test_whatever_a_device_sends_becomes_words(data):
    """An archive, pickled objects, lengths that are not there, other records: none is an error, nothing is executed."""
    task = first_task(settings_of(data))
    archive = io.BytesIO()
    np.savez(archive, update=np.zeros(64, np.float32))
    shapes = ("(10**9,)", "(-1,)", "(9999999999999,)", "(2000000000,)")
    headers = [f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n" for shape in shapes]
    headers += ["{'descr': '|O', 'fortran_order': False, 'shape': (64,)}\n", "(" * 500]
    for content in (archive.getvalue(), b"", b"\x80\x04N.", *map(_npy, headers)):
        sent = Array(dtype="float32", shape=(64,), stype="numpy.ndarray", data=content)
        record = RecordDict({"arrays": ArrayRecord({"update": sent}), "reply": ConfigRecord({"round": 0})})
        assert re.fullmatch(r"its reply cannot be read \(\w+\)", read_reply(task, record))
    for record in (RecordDict(), RecordDict({"failed": ArrayRecord()}), RecordDict({"arrays": ConfigRecord()}), None):
        assert re.fullmatch(r"its reply cannot be read \(\w+\)", read_reply(task, record))
    for number in (0.0, True, "0", [0]):
        record = RecordDict({"arrays": ArrayRecord(), "reply": ConfigRecord({"round": number})})
        assert read_reply(task, record) == "its round is not a whole number"


def test_failures_are_one_of_two_sentences(data):
    task = first_task(settings_of(data))
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


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def faulty(data, federation) -> tuple[FederationSettings, np.ndarray]:
    """A training on all that is logged, with four devices of five that fail in some way; its settings and weights."""
    deployment, _ = federation
    behave(
        deployment.folder, device_1="nan norm", device_2="shape sleep", device_3="garbage die", device_4="raise stall"
    )
    settings = settings_of(data, rounds=2, period=0.0, least_replies=1, timeout=45.0)
    weights = train(deployment, settings, "faults")
    behave(deployment.folder)
    kill(deployment, "node-5")
    start(deployment.folder, 180)  # it, and the node that died
    return settings, weights


@pytest.mark.deployment
def test_bad_silent_and_dying_nodes_harm_nobody(federation, faulty, tmp_path):
    deployment, _ = federation
    settings, weights = faulty
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
    assert weights.tobytes() == expected.weights.tobytes()


@pytest.mark.deployment
def test_no_record_leaves_a_device(federation, faulty):
    """Nothing planted is in what nodes said in the tests before, with TLS ended, nor in what the server noted."""
    deployment, tap = federation
    settings, _ = faulty
    task = first_task(settings)
    log = logs_of(deployment)[0]
    update = reply_from(log, task).sums["update"]
    assert update.tobytes() != reply_from(log, replace(task, until=TIME)).sums["update"].tobytes()
    assert tap.holds(update.tobytes())  # the tap hears, and what it hears was trained on what is planted
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
        records = log.records(displayed=5)
    found += [records.display.features[row, :8].tobytes() for row in range(0, 40, 7)]  # of the simulated documents
    return found


@pytest.mark.deployment
def test_messages_are_small(data, federation):
    """Flower's own traffic aside, a reply is the update and the sums: features + 1, 2 K, and a few numbers."""
    _, tap = federation
    assert isinstance(tap, Tap)
    settings = settings_of(data, propensity="pooled")
    task = first_task(settings)
    reply = reply_from(next(iter(logs_of(federation[0]).values())), task)
    record = reply_record(reply)
    assert set(record.array_records["arrays"]) == {"update", "gradient", "examined", "impressions", "clicks"}
    assert set(record.config_records["reply"]) == {"round"}
    assert sum(len(a.data) for a in record.array_records["arrays"].values()) < 64 * 4 + (65 + 2 * 5 + 1) * 8 + 5 * 200


def test_versions_follow_each_other(data, tmp_path):
    settings = settings_of(data)
    weights = np.ones(64, np.float32)
    first = write_version(Trained(weights, 1, None), settings, tmp_path)
    assert write_version(Trained(weights, 1, None), settings, tmp_path).name == first.name
    second = write_version(Trained(weights * 2, 2, None), settings, tmp_path)
    assert second.parent == first.name


def test_a_version_names_its_model(tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS._places, "twin", "fultr.rankers.linear:Linear")
    monkeypatch.setitem(PLAIN, "twin", PLAIN["linear"])
    settings = FederationSettings.of({"features": 2, "model": "twin"})
    version = write_version(Trained(np.ones(2, np.float32), 1, None), settings, tmp_path)
    assert version.ranker.model == settings.algorithm().model == "twin"


def test_a_version_has_the_features_names(tmp_path):
    settings = FederationSettings.of({"features": 2, "feature_names": "title match, freshness", "normalised": False})
    version = write_version(Trained(np.ones(2, np.float32), 1, None), settings, tmp_path)
    assert version.ranker.feature_names == ("title match", "freshness")
    assert not version.ranker.normalised
    without = FederationSettings.of({"features": 2})
    child = write_version(Trained(np.zeros(2, np.float32), 2, None), without, tmp_path)
    assert child.ranker.feature_names == ("title match", "freshness")  # the parent's
