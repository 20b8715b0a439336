"""A real federation in which one device refuses everything: every command shows it."""

from __future__ import annotations

import importlib.util
import json
import urllib.request
from pathlib import Path

import pytest
from help.commands import fultr

from fultr.data.load import load
from fultr.deploy.folder import init_deployment
from fultr.deploy.services import running
from fultr.federated.federation import fill_in
from fultr.study.fill_devices import fill_devices

if importlib.util.find_spec("flwr") is None or importlib.util.find_spec("prometheus_client") is None:
    pytest.skip("needs pip install 'fultr[flower]'", allow_module_level=True)

from fultr.deploy.metrics import serving

ROUNDS = 2


# Flower's HTTP client leaves a socket behind when the other side dies in the middle of a handshake.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
@pytest.mark.deployment
@pytest.mark.slow
def test_a_device_that_refuses_in_every_round_is_seen_everywhere(tmp_path: Path):
    folder = tmp_path / "fed"
    init_deployment(folder, 3)
    data = load("synthetic")
    fill_devices([folder / "nodes" / f"node-{u}" / "device.db" for u in (1, 2, 3)], data, periods=30, seed=1)
    settings = {"features": data.train.width, "displayed": 5, "rounds": ROUNDS, "least_devices": 3}
    fill_in(folder / "federation.toml", settings, replace=True)
    policy = folder / "nodes" / "node-2" / "node.toml"
    lines = [line for line in policy.read_text().splitlines() if not line.startswith("sends")]
    policy.write_text("\n".join([*lines, 'sends = ["judgement"]', ""]))

    with running(folder):
        done = fultr("deploy", "train", folder, "--json")
        assert done.code == 0, done.err
        assert "  round 1: device 1 refused to answer\n" in done.err
        told = json.loads(done.out)["devices"]
        assert [(one["asked"], one["refused"]) for one in told] == [(ROUNDS, 0), (ROUNDS, ROUNDS), (ROUNDS, 0)]
        status = json.loads(fultr("deploy", "status", folder, "--json").out)
        assert (status["devices"][1]["refused"], status["devices"][1]["last_answered"]) == (ROUNDS, None)
        with serving(folder, 0) as port:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
    assert {"fultr_superlink_up 1.0", "fultr_devices_connected 3.0"} <= set(text.splitlines())
    assert f'fultr_device_refused_total{{device="1",reason="refused"}} {ROUNDS}.0' in text
    assert 'fultr_run_state{state="completed"} 1.0' in text

    events = [json.loads(line) for line in (folder / "state" / "events.jsonl").read_text().splitlines()]
    assert [(one["round"], one["device"]) for one in events if one["what"] == "refused"] == [(1, 1), (2, 1)]
    assert [one["round"] for one in events if one["what"] == "round"] == [1, 2]
    assert [one["what"] for one in events[-3:]] == ["judged", "done", "released"]
    page = Path(fultr("deploy", "report", folder).out.strip()).read_text()
    assert "device 1, round 2: refused to answer" in page
