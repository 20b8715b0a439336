"""The whole way: an application searches, devices train, and the application searches with what they learnt."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest
from help.commands import fultr as command
from help.deployments import time_limit

import fultr
from fultr.device.current import read_current

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)

from fultr.deploy.folder import init_deployment, load_deployment
from fultr.deploy.services import running

FEATURES = {"match": lambda query, document: document[0], "noise": lambda query, document: document[1]}
SETTINGS = """\
features = 2
feature_names = ["match", "noise"]
displayed = 5
rounds = 3
least_devices = 3
propensity = "pooled"
client_rate = 0.05
"""


def use(search: fultr.Search, seed: int, queries: int) -> list[float]:
    """A user who examines rank r with probability 1 / r and clicks on what matches; how well it matched on top."""
    rng = np.random.default_rng(seed)
    tops = []
    for i in range(queries):
        candidates = rng.random((10, 2)).tolist()
        results = search.rank(f"query {i}", candidates)
        tops.append(results[0][0])
        for rank in range(1, 6):
            if rng.random() < results[rank - 1][0] / rank:
                results.clicked(rank - 1)
    return tops


@pytest.mark.deployment
def test_an_application_gets_better_and_nobody_reads_along(tmp_path):
    folder = tmp_path / "fed"
    init_deployment(folder, 3)
    (folder / "federation.toml").write_text(SETTINGS)
    nodes = load_deployment(folder).nodes
    searches = {}
    for node in nodes:
        toml = node.folder / "node.toml"
        toml.write_text(toml.read_text().replace("ranker_poll = 600.0", "ranker_poll = 0.5"))
        toml.write_text(toml.read_text().replace("slowest_poll = 15.0", "slowest_poll = 0.5"))
        searches[node.name] = fultr.Search(
            node.folder / "device.db", FEATURES, rankers=node.folder / "rankers", displayed=5
        )
    before = [top for i, search in enumerate(searches.values()) for top in use(search, i, 600)]
    with time_limit(200), running(folder, 120):
        assert command("deploy", "train", folder).code == 0
        rankers = [node.folder / "rankers" for node in nodes]
        wait_for(lambda: all(folder.is_dir() and read_current(folder) is not None for folder in rankers))
        version = read_current(rankers[0])
        assert version is not None
        assert version.ranker.feature_names == ("match", "noise")
        after = [top for i, search in enumerate(searches.values()) for top in use(search, 100 + i, 600)]
        shown = [search.log.records().versions for search in searches.values()]
        assert all(versions[:600] == ("default",) * 600 for versions in shown)
        assert all(versions[600:] == (version.name,) * 600 for versions in shown)
    error = (np.var(before) / len(before) + np.var(after) / len(after)) ** 0.5
    assert np.mean(after) - np.mean(before) > 5 * error  # what is on top matches better than before
    told = command("device", "history", Path(nodes[0].folder) / "device.db").out
    assert told.count("answered: ") == 4  # three rounds and the final judgement
    page = command("deploy", "report", folder)
    assert page.code == 0
    for search in searches.values():
        search.close()


def wait_for(true) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
