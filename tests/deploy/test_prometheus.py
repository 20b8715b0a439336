"""The metrics of a federation, asked for over HTTP."""

from __future__ import annotations

import importlib.util
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from help.commands import fultr
from help.histories import DEVICES, ROUNDS, past_federation

from fultr.core.errors import FultrError
from fultr.deploy import metrics
from fultr.deploy.folder import Deployment, free_port
from fultr.deploy.history import REASONS

if importlib.util.find_spec("flwr") is None or importlib.util.find_spec("prometheus_client") is None:
    pytest.skip("needs pip install 'fultr[flower]'", allow_module_level=True)

from prometheus_client.parser import text_string_to_metric_families

# Flower's HTTP client leaves a socket behind when the other side dies in the middle of a handshake.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
Samples = dict[tuple[str, ...], float]


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return past_federation(tmp_path / "fed")


def asked(folder: Path) -> Samples:
    """All samples by name and labels' values, as a real request gets them."""
    with (
        metrics.serving(folder, 0) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer,
    ):
        text = answer.read().decode()
    return {
        (sample.name.removeprefix("fultr_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_another_host_gets_nothing(deployment):
    with metrics.serving(deployment.folder, 0) as port:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": f"evil.example:{port}"})
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(request, timeout=30)
        urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=30).close()


def test_a_past_federation_in_numbers(deployment):
    found = asked(deployment.folder)
    assert found["superlink_up",] == 0
    assert ("devices_connected",) not in found
    assert found["devices_registered",] == DEVICES
    assert found["rounds_done",] == found["rounds_planned",] == ROUNDS
    assert found["attempts_failed_total",] == 1
    assert found["device_asked_total", "3"] == ROUNDS + 1
    assert found["device_answered_total", "3"] == 0
    assert found["device_refused_total", "3", "refused"] == ROUNDS + 1
    assert found["device_refused_total", "5", "too large"] == 5
    assert found["device_silent_total", "6"] == 3
    assert (found["device_seconds_count", "0"], found["device_seconds_sum", "0"]) == (ROUNDS + 1, 1.0 * (ROUNDS + 1))
    assert (found["round_seconds_bucket", "5.0"], found["round_seconds_bucket", "10.0"]) == (0, ROUNDS)
    assert (found["round_seconds_sum",], found["round_seconds_count",]) == (8.0 * ROUNDS, ROUNDS)
    assert found["held_out_quality", "ranked"] == 0.5 + ROUNDS / 100
    assert found["held_out_quality_error", "displayed"] == 0.02
    assert [found["examination", str(rank)] for rank in (1, 2, 3)] == [1.0, 0.5, 0.25]
    assert found["certificate_days_left", "server"] > 800


def test_labels_are_of_a_few_kinds(deployment):
    """Whatever a file holds: words of others never become labels, nor do numbers of devices that nobody knows."""
    with (deployment.folder / "state" / "progress.jsonl").open("a") as file:
        file.writelines(
            f'{{"round": {13 + u}, "accepted": [{100 + u}], "refused": {{"{200 + u}": "nonsense {u}"}}}}\n'
            for u in range(50)
        )
    found = asked(deployment.folder)
    devices = {key[1] for key in found if key[0].startswith("device_")}
    assert devices == {*map(str, range(DEVICES)), "other"}
    assert {key[2] for key in found if key[0] == "device_refused_total"} <= set(REASONS)
    assert found["device_refused_total", "other", "other"] == found["device_answered_total", "other"] == 50


@pytest.mark.parametrize("damage", ["no state", "noise", "no settings", "no certificate", "no deployment"])
def test_damage_costs_its_own_metrics_only(deployment, damage):
    folder, state = deployment.folder, deployment.folder / "state"
    with metrics.serving(folder, 0) as port:  # it goes on while files come and go
        if damage == "no state":
            (state / "progress.jsonl").unlink()
            (state / "attempts.jsonl").unlink()
        elif damage == "noise":
            (state / "progress.jsonl").write_bytes(b"\x00\xff" * 50_000)
        elif damage == "no settings":
            (folder / "federation.toml").write_text("features = ")
        elif damage == "no certificate":
            (deployment.superlink / "server.crt").write_text("none")
        else:
            (deployment.superlink / "superlink.env").unlink()
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    assert "fultr_superlink_up 0.0" in text
    assert ("fultr_devices_registered 7.0" in text) == (damage != "no deployment")
    assert ("fultr_rounds_done 12.0" in text) == (damage == "no certificate")
    assert ("fultr_rounds_planned" in text) == (damage not in ("no settings", "no deployment"))


def test_a_superlink_that_hangs_is_down(deployment, monkeypatch):
    monkeypatch.setattr(metrics, "_PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", deployment.port)):  # takes calls, and says nothing
        assert asked(deployment.folder)["superlink_up",] == 0


def test_it_listens_on_this_machine_only_and_says_if_it_cannot(deployment):
    with metrics.serving(deployment.folder, port := free_port()) as served:
        assert served == port
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", port), timeout=5)  # as good as any other address
        with pytest.raises(FultrError, match=rf"--port: cannot listen on 127.0.0.1:{port}: Address already in use"):
            metrics.serving(deployment.folder, port).__enter__()
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)
    done = fultr("deploy", "metrics", deployment.folder / "nowhere")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "is not a deployment" in done.err
