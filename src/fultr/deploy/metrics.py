"""A federation's numbers for Prometheus, on this machine only.

Every request reads the files of the deployment and asks the SuperLink. Whatever is missing, damaged or down leaves its
own metrics out, and no others. Labels are numbers of registered devices, ranks, and words from fixed lists.
"""

from __future__ import annotations

import importlib.util
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fultr.core.errors import FultrError
from fultr.deploy.control import Run, connected_nodes, control, list_runs
from fultr.deploy.folder import Deployment, load_deployment
from fultr.deploy.history import History, read_history, reason_class
from fultr.deploy.keys import days_left, require_flower
from fultr.deploy.training import read_settings, state_folder

if TYPE_CHECKING:
    from prometheus_client.core import Metric

RUN_STATES = ("none", "pending", "starting", "running", "completed", "failed", "stopped", "other")
BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds of a round."""

_PATIENCE = 5.0  # seconds for the SuperLink to answer
_MOST_RANKS = 50


@dataclass(frozen=True)
class _Asked:
    """What the SuperLink said."""

    connected: int
    run: Run | None


class FederationCollector:
    """What Prometheus is told about a federation, made anew at every request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._asking: _Question | None = None
        self._lock = threading.Lock()
        self._read: tuple[object, History] = (None, History())

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        with self._lock:
            try:
                deployment = load_deployment(self.folder)
            except FultrError:
                yield _gauge("superlink_up", "Does the SuperLink answer?", 0)
                return
            yield from self._superlink(deployment)
            yield from _certificates(deployment)
            with suppress(FultrError):
                planned = read_settings(deployment)[0].rounds
                yield _gauge("rounds_planned", "Rounds that federation.toml asks for.", planned)
            with suppress(FultrError):
                state = state_folder(deployment)
                yield from _history(self._history(state), [node.device for node in deployment.nodes])
                with suppress(OSError):
                    changed = (state / "progress.jsonl").stat().st_mtime
                    yield _gauge("last_round_timestamp_seconds", "When the last round ended, since 1970.", changed)

    def _history(self, state: Path) -> History:
        """The history, read again only if a file has changed."""
        stamps: list[tuple[str, int, int]] = []
        for name in ("progress.jsonl", "attempts.jsonl"):
            with suppress(OSError):
                found = (state / name).stat()
                stamps.append((name, found.st_size, found.st_mtime_ns))
        if self._read[0] != (state, stamps):
            self._read = ((state, stamps), read_history(state))
        return self._read[1]

    def _superlink(self, deployment: Deployment) -> Iterator[Metric]:
        asked = self._ask(deployment)
        yield _gauge("superlink_up", "Does the SuperLink answer?", 0 if asked is None else 1)
        yield _gauge("devices_registered", "Devices whose keys the deployment has.", len(deployment.nodes))
        if asked is None:
            return
        yield _gauge("devices_connected", "Devices that are connected.", asked.connected)
        state = "none" if asked.run is None else asked.run.state
        now = state if state in RUN_STATES else "other"
        rows = [((name,), float(name == now)) for name in RUN_STATES]
        yield _gauges("run_state", "1 for the state of the latest run.", ["state"], rows)

    def _ask(self, deployment: Deployment) -> _Asked | None:
        """What the SuperLink says; None if it does not answer in time. One that hangs is asked only once."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = _Question(deployment)
            self._asking.start()
        self._asking.join(_PATIENCE)
        return self._asking.answer


class _Question(threading.Thread):
    """Asks the SuperLink; a daemon, so that one that hangs keeps nobody from ending."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(daemon=True)
        self.deployment = deployment
        self.answer: _Asked | None = None

    def run(self) -> None:
        with suppress(FultrError, ValueError):
            connected = connected_nodes(self.deployment)
            with control(self.deployment) as client:
                self.answer = _Asked(len(connected), next(iter(list_runs(client)), None))


def _certificates(deployment: Deployment) -> Iterator[Metric]:
    rows = []
    for name, file in (("server", "server.crt"), ("authority", "ca.crt")):
        with suppress(FultrError):
            rows.append(((name,), days_left(deployment.superlink / file)))
    yield _gauges("certificate_days_left", "Days until a certificate expires.", ["certificate"], rows)


def _history(history: History, devices: Sequence[int]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, SummaryMetricFamily

    known = set(devices)

    def label(device: int) -> str:
        return str(device) if device in known else "other"  # one that was removed, or damage

    completed = history.completed
    yield _gauge("rounds_done", "Rounds that are done.", history.done)
    yield _gauge("history_damaged_lines", "Lines of the history that cannot be read.", history.damaged)
    failed = len(history.rounds) - len(completed)
    yield CounterMetricFamily("fultr_attempts_failed", "Attempts at a round that came to nothing.", value=failed)
    tables: dict[str, Counter[tuple[str, ...]]] = {
        name: Counter({(label(device),): 0 for device in devices}) for name in ("asked", "answered", "silent")
    }
    refused: Counter[tuple[str, ...]] = Counter()
    seconds: dict[str, list[float]] = {}
    for one in history.rounds:
        for device, outcome in one.outcomes().items():
            tables["asked"][label(device),] += 1
            if outcome in tables:
                tables[outcome][label(device),] += 1
        for device, why in one.refused.items():
            refused[label(device), reason_class(why)] += 1
        for device, took in one.answered.items():
            seconds.setdefault(label(device), []).append(took)
    says = {
        "asked": "Times a device was asked.",
        "answered": "Times its reply was accepted.",
        "silent": "Times it did not answer.",
    }
    for name, counts in tables.items():
        yield _counters(f"device_{name}", says[name], ["device"], counts)
    yield _counters("device_refused", "Times it refused, or its reply was.", ["device", "reason"], refused)
    took_family = SummaryMetricFamily("fultr_device_seconds", "Seconds that its answers took.", labels=["device"])
    for name, values in sorted(seconds.items()):
        took_family.add_metric([name], count_value=len(values), sum_value=sum(values))
    yield took_family
    lengths = [one.seconds for one in completed if one.seconds is not None]
    buckets = [(str(edge), sum(value <= edge for value in lengths)) for edge in BUCKETS]
    rounds = HistogramMetricFamily("fultr_round_seconds", "Seconds that rounds took.")
    rounds.add_metric([], [*buckets, ("+Inf", len(lengths))], sum_value=sum(lengths))
    yield rounds
    yield from _learned(history)


def _learned(history: History) -> Iterator[Metric]:
    """Quality and examination, as last known."""
    if (found := history.quality()) is not None:
        judged, order = found[1], ["order"]
        means = [(("ranked",), judged.ranked), (("displayed",), judged.displayed)]
        yield _gauges("held_out_quality", "Mean gain on held-out clicks, before the last round.", order, means)
        errors = (("ranked", judged.ranked_error), ("displayed", judged.displayed_error))
        known = [((name,), error) for name, error in errors if error is not None]
        yield _gauges("held_out_quality_error", "Its standard error over devices.", order, known)
    examination = next((one.examination for one in reversed(history.completed) if one.examination), ())
    ranks = [((str(rank),), value) for rank, value in enumerate(examination[:_MOST_RANKS], 1)]
    yield _gauges("examination", "Probability that a rank is examined, relative to rank 1.", ["rank"], ranks)


def _gauge(name: str, help_: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"fultr_{name}", help_, value=value)


def _gauges(name: str, help_: str, labels: list[str], rows: Sequence[tuple[tuple[str, ...], float]]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"fultr_{name}", help_, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _counters(name: str, help_: str, labels: list[str], counts: Counter[tuple[str, ...]]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"fultr_{name}", help_, labels=labels)
    for values, number in sorted(counts.items()):
        family.add_metric(values, number)
    return family


def _for_this_host(app: Any, port: int) -> Any:
    """Answers only under this machine's own names: a page elsewhere could have made a name of its own point here."""
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    def checked(environ: dict[str, Any], start_response: Any) -> Any:
        if environ.get("HTTP_HOST", "") not in hosts:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"Not Found\n"]
        return app(environ, start_response)

    return checked


@contextmanager
def serving(folder: Path, port: int) -> Iterator[int]:
    """Serve a federation's metrics on 127.0.0.1 during the block; yields the port.

    Args:
        folder: the deployment's.
        port: where to listen; 0: any free port.
    """
    require_flower()
    if importlib.util.find_spec("prometheus_client") is None:
        raise FultrError("fultr deploy metrics needs prometheus-client: pip install 'fultr[flower]'")
    from prometheus_client import CollectorRegistry, start_http_server

    load_deployment(folder)  # what is wrong with it is said now
    collector = FederationCollector(folder)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise FultrError(f"--port: cannot listen on 127.0.0.1:{port}: {error.strerror or error}") from None
    given = int(server.server_address[1])
    server.set_app(_for_this_host(server.get_app(), given))
    try:
        yield given
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
