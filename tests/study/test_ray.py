"""The same experiment on a cluster of two Ray workers, started here and stopped here."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from test_reproduce import done, small, stored

from fultr.core.errors import FultrError
from fultr.data.load import load
from fultr.study.engine import each_finished
from fultr.study.reproduce import read_progress

pytestmark = pytest.mark.process


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait(ready, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "Ray did not start"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster():
    """The address of two Ray nodes of one core each, on loopback."""
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    port = _free_port()
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # short: it holds sockets
    common = ["--node-ip-address", "127.0.0.1", "--num-cpus", "1", "--object-store-memory", "100000000"]

    def start(*options: str) -> subprocess.Popen[bytes]:
        ray = str(Path(sys.executable).with_name("ray"))
        return subprocess.Popen(
            [ray, "start", *options, *common, "--disable-usage-stats", "--block"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def listening() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    nodes = [start("--head", "--port", str(port), "--include-dashboard=false", "--temp-dir", str(folder))]
    try:
        _wait(listening)
        nodes.append(start("--address", f"127.0.0.1:{port}"))
        yield f"127.0.0.1:{port}"
    finally:
        for node in reversed(nodes):
            node.terminate()
        for node in nodes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def test_ray_gives_what_one_process_gives(cluster, tmp_path):
    done(small(), tmp_path / "plain", workers=1)
    done(small(), tmp_path / "ray", ray=cluster)
    assert stored(tmp_path / "ray") == stored(tmp_path / "plain")
    progress, _ = read_progress(tmp_path / "ray")
    assert progress.performed == progress.runs


def test_both_workers_have_work(cluster):
    def where(_: int) -> str:
        import ray

        time.sleep(0.5)
        return ray.get_runtime_context().get_node_id()

    def two_nodes() -> bool:
        return len({node for _, node, _ in each_finished(where, range(6), workers=1, ray=cluster)}) == 2

    _wait(two_nodes)


def test_errors_come_back_as_they_were(cluster):
    with pytest.raises(FultrError, match="unknown data set 'synthetic-nothing'"):
        list(each_finished(load, ["synthetic-nothing"], workers=1, ray=cluster))


def test_no_cluster_is_one_line():
    with pytest.raises(FultrError, match=r"ray: cannot reach a cluster at 127\.0\.0\.1:1") as caught:
        list(each_finished(abs, [1], workers=1, ray="127.0.0.1:1"))
    assert "\n" not in str(caught.value)
