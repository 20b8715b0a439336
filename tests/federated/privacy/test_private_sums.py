"""Privacy and secure sums together: noise under masks, and a sum that has all of its noise or is none."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from help.device_logs import opened
from help.tasks import DISPLAYED, FEATURES, SMALL, a_task, use
from scipy.stats import chi2

from fultr import FultrError
from fultr.device.local import LocalDevices
from fultr.federated.federate import federate
from fultr.federated.federation import FederationSettings
from fultr.federated.privacy import PRIVACY, accountant
from fultr.federated.privacy.accountant import spent
from fultr.federated.privacy.fixed_point import Layout, Whole
from fultr.federated.privacy.settings import Privacy
from fultr.federated.summing import ask_sum, layout_of
from fultr.study.seeded import SeededRandomness

DEVICES, NOISE = 12, 0.5


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    for i in range(2 * DEVICES):
        with opened(folder / f"{i}.db") as log:
            use(log, impressions=20, clicks=14, seed=i)
    return folder


@pytest.fixture
def logs(filled, tmp_path):
    shutil.copytree(filled, tmp_path / "logs")
    return {i: tmp_path / "logs" / f"{i}.db" for i in range(2 * DEVICES)}


@pytest.fixture
def small(monkeypatch):
    """Cohorts for which noise is of no use, as tests are to be quick."""
    monkeypatch.setattr(accountant, "LEAST_COHORT", 3)


def settings_of(mode: str, **others) -> FederationSettings:
    usual = {"features": FEATURES, "displayed": DISPLAYED, "rounds": 1, "client_rate": 0.1, "aggregation": "mean"}
    noise = {"privacy": mode, "noise_multiplier": NOISE, "population": 1000, "cohort": DEVICES, "update_bound": 1.0}
    return FederationSettings.of({**usual, **noise, "propensity": "shrunk", "secure_sums": True, **others})


class Dropping(LocalDevices):
    """Devices whose replies get lost: by question, from 0, how many of those asked."""

    def __init__(self, logs, lost=()):
        super().__init__(logs, policy=SMALL)
        self.__dict__.update(lost=dict(lost), asked=[])

    def post(self, contents, t, timeout):
        replies = super().post(contents, t, timeout)
        gone = sorted(contents)[: self.lost.get(len(self.asked), 0)]
        self.asked.append(sorted(contents))
        return {client: reply for client, reply in replies.items() if client not in gone}


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("mode", ["gaussian", "correlated"])
def test_a_server_that_adds_noise_may_see_sums_alone(logs, filled, tmp_path, small, mode):
    """The same bits as from single vectors, judgement included."""
    shutil.copytree(filled, tmp_path / "again")
    again = {i: tmp_path / "again" / path.name for i, path in logs.items()}
    random = SeededRandomness(3)
    secure = federate(Dropping(logs), settings_of(mode, rounds=2), tmp_path / "secure", random=random)
    settings = settings_of(mode, rounds=2, secure_sums=False)
    plain = federate(LocalDevices(again, policy=SMALL), settings, tmp_path / "plain", random=random)
    assert np.linalg.norm(secure.weights) > 0.01
    assert secure.weights.tobytes() == plain.weights.tobytes()
    assert secure.judged == plain.judged
    assert secure.privacy.epsilon == plain.privacy.epsilon
    assert secure.privacy.trust.endswith("it sees sums alone")


def test_the_sum_of_the_fewest_survivors_has_all_of_the_noise(tmp_path):
    """Devices without clicks: what is left of their sum is noise, of the deviation that the budget counts on."""
    numbers, honest = 4000, 9
    logs = {i: tmp_path / f"{i}.db" for i in range(DEVICES)}
    for path in logs.values():
        opened(path, features=numbers).close()
    settings = {"features": numbers, "aggregation": "mean", "secure_sums": True, "cohort": DEVICES}
    noise = {"privacy": "distributed", "noise_multiplier": 2.0, "population": 1000, "honest": honest}
    task = a_task(**settings, **noise)
    found = ask_sum(Dropping(logs, {0: DEVICES - honest}), task, sorted(logs), 1.0, bytes(16), 1)
    assert len(found.accepted) == honest
    scale = PRIVACY["distributed"].scale(task.algorithm.privacy)
    statistic = float(((found.total["vector"] / (2.0 * scale)) ** 2).sum())
    low, high = chi2.ppf([1e-4, 1 - 1e-4], numbers)
    assert 0.95**2 * numbers < low  # noise of .95 would be found
    assert low < statistic < high
    few = ask_sum(Dropping(logs, {0: DEVICES - honest + 1}), task, sorted(logs), 1.0, bytes(16), 2)
    assert few.total is None
    assert few.why == "0 of 12 devices are left, and 9 are needed"  # all have taken part in this round before


def test_a_run_with_shares_of_noise_says_who_is_trusted_and_repeats_what_fell_short(logs, tmp_path, small):
    """Two devices are lost at first, and one more than the noise allows; the next attempt has other devices."""
    devices = Dropping(logs, {0: 3})
    trained = federate(devices, settings_of("distributed", honest=10, judge=False), tmp_path)
    (failed,), (report,) = lines_of(tmp_path / "attempts.jsonl"), lines_of(tmp_path / "progress.jsonl")
    assert failed["why"] == "9 of 12 devices are left, and 10 are needed"
    assert not set(failed["accepted"]) & set(report["accepted"])
    assert len(report["accepted"]) >= 10
    assert report["privacy"]["trust"] == trained.privacy.trust
    assert trained.privacy.trust == (
        "the server sees sums alone, of 10 or more devices that add a share of the noise, "
        "if it tells all the same of who dropped out"
    )


def test_who_is_trusted_depends_on_what_a_cheating_server_can_see():
    """Of 100 devices it can see the sum of 2 x 67 - 100 = 34, of a neighbourhood of 61 that of 2 x 41 - 61 = 21."""
    for cohort, honest, cheats in ((100, 34, True), (100, 35, False), (1000, 21, True), (1000, 22, False)):
        privacy = Privacy("distributed", noise_multiplier=3.0, population=10**5, honest=honest)
        trust = spent(privacy, cohort=cohort, rounds=1, summed=True).trust
        assert ("whatever it tells them" in trust) == cheats, (cohort, honest)


def test_noise_that_devices_share_needs_secure_sums():
    with pytest.raises(FultrError, match="secure_sums: expected true with distributed noise, of which a single vector"):
        settings_of("distributed", secure_sums=False)


def test_whole_numbers_are_sent_as_they_are():
    """Beyond what is likely, too: to cut noise off would change what it is."""
    layout = Layout((Whole(10, (("vector", (3,)),)),))
    sent = layout.encoded({"vector": np.array([-(2.0**45), 3.0, 11.0])})
    assert sent.tolist() == [-(2**45), 3, 11]
    with pytest.raises(FultrError, match="vector: expected whole numbers"):
        layout.encoded({"vector": np.array([0.5, 0.0, 0.0])})
    with pytest.raises(FultrError, match="vector: is no sum of 2 vectors within the bound 10"):
        layout.decoded(np.array([0, 0, 21]).view(np.uint64), 2)


@pytest.mark.parametrize("mode", PRIVACY)
def test_the_most_that_devices_send_fits_the_layout(mode):
    """No sum that devices can send is refused, and none of the most devices wraps around."""
    task = a_task(**settings_of(mode, honest=10).as_mapping())
    (block,) = (block for block in layout_of(task).blocks if isinstance(block, Whole))
    scale = PRIVACY[mode].scale(task.algorithm.privacy)
    assert scale <= block.most <= 2**40
    layout = layout_of(task)
    vector = np.zeros(block.size)
    vector[0] = scale
    sent = layout.encoded({"vector": vector, "trained": np.ones(1)})
    assert layout.decoded(sent.view(np.uint64), 1)["vector"].tolist() == vector.tolist()
