"""The ServerApp: the rounds of `fultr.federated.federate`, with devices behind a Flower grid.

Its configuration holds the federation's settings by their names; `deployment`, the federation's folder; `state-dir`,
the folder where the server keeps its checkpoint, its progress, its events and the versions of the ranker; and `job`: to
train, or to compare the candidate of a release with the stable version. Training that is submitted again resumes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fultr.core.errors import FultrError
from fultr.core.files import locked, make_folder
from fultr.deploy.events import EventLog
from fultr.deploy.flower.devices import FlowerDevices
from fultr.deploy.folder import Deployment, load_deployment
from fultr.deploy.release import judge_candidate, publish_first, read_releases
from fultr.federated.events import Event
from fultr.federated.federate import Trained, compare, federate
from fultr.federated.federation import FederationSettings
from fultr.rankers.model import built
from fultr.rankers.plain import PLAIN
from fultr.rankers.ranker import Ranker
from fultr.rankers.versions import Version, Versions

app = ServerApp()
no_app = None  # Flower wants every app to name one for nodes; ours run none


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train and write the ranker; then, or only, compare the candidate with the stable version."""
    config = dict(context.run_config)
    deployment, state = load_deployment(Path(str(config.pop("deployment")))), Path(str(config.pop("state-dir")))
    job = config.pop("job")
    settings = FederationSettings.of(config)
    make_folder(state)
    tell = _teller(EventLog(state / "events.jsonl"))
    devices = FlowerDevices(grid, deployment.directory, deployment.enrolment, tell)
    try:
        with locked(state / ".lock", f"{state}: another run is at work there"):
            if job == "train":
                _train(devices, settings, deployment, state)
            _compare(devices, settings, deployment, state)
    except FultrError as error:
        devices.tell(Event("error", str(error)))
        raise


def _train(devices: FlowerDevices, settings: FederationSettings, deployment: Deployment, state: Path) -> None:
    trained = federate(devices, settings, state, tell=devices.tell)
    version = write_version(trained, settings, state)
    if trained.judged is not None:
        words = f"held-out clicks: {trained.judged.ranked:.4f} (as displayed {trained.judged.displayed:.4f})"
        devices.tell(Event("judged", words, trained.rounds))
    words = f"done: {trained.rounds} rounds; the ranker is version {version.name} in {state.name}/versions"
    devices.tell(Event("done", words, trained.rounds))
    if state == deployment.folder / "state":
        _release_first(devices.tell, deployment, version)


def _release_first(tell: Callable[[Event], object], deployment: Deployment, version: Version) -> None:
    """Give devices the first version; the training is done even if that cannot be, as when the key is not here."""
    try:
        released = publish_first(deployment.folder)
    except FultrError as error:
        command = shlex.join(["fultr", "deploy", "promote", str(deployment.folder), version.name])
        words = f"{version.name} was not released, so devices have no ranker: {error}; then: {command}"
        tell(Event("unreleased", words))
        return
    if released is not None:
        tell(Event("released", f"{version.name} is the first version: devices are given it"))


def _compare(devices: FlowerDevices, settings: FederationSettings, deployment: Deployment, state: Path) -> None:
    """Have devices judge the candidate and the stable version by the same clicks; a worse candidate is withdrawn."""
    last = next(reversed(read_releases(deployment.folder)), None)
    if last is None or last.candidate is None:
        return
    names = (last.candidate.name, last.stable.name)
    versions = Versions(deployment.folder / "state" / "versions")
    rankers = [versions.read(name).ranker for name in names]
    model: Any = built(PLAIN, settings.model, settings.features)
    if any(built(PLAIN, ranker.model, settings.features) != model for ranker in rankers):
        devices.tell(Event("compared", f"comparison: none, as one of the two is not a {model}"))
        return
    found = compare(devices, settings, state, *(ranker.weights for ranker in rankers), tell=devices.tell)
    judged = judge_candidate(deployment.folder, found, *names)
    devices.tell(Event("compared", judged.says))
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "candidate": names[0],
        "stable": names[1],
        "verdict": judged.verdict,
        "says": judged.says,
        **({} if found is None else asdict(found)),
    }
    with (state / "comparisons.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def write_version(trained: Trained, settings: FederationSettings, folder: Path) -> Version:
    """Write the ranker as the next version, unless the last one is the same."""
    versions = Versions(folder / "versions")
    names = versions.list()
    parent = versions.read("latest") if names else None
    if parent is not None and parent.ranker.weights.tobytes() == trained.weights.tobytes():
        return parent
    training = {"federation": settings.as_mapping(), "rounds": trained.rounds}
    features = np.arange(1, settings.features + 1)
    ranker = Ranker(trained.weights, features, settings.normalised, training, settings.model, settings.names)
    metrics: dict[str, dict[str, Any]] = {}
    if trained.judged is not None:
        judged = trained.judged
        for name, mean, error in (
            ("held-out clicks", judged.ranked, judged.ranked_error),
            ("held-out clicks, as displayed", judged.displayed, judged.displayed_error),
        ):
            metrics[name] = {"mean": mean, "standard_error": error, "devices": judged.devices}
    configuration = settings.as_mapping()
    if trained.privacy is not None:
        cost = trained.privacy.as_mapping()
        metrics["epsilon per device"] = {"mean": cost["epsilon"], "standard_error": None, "delta": cost["delta"]}
        configuration["spent"] = cost
    return versions.write(
        ranker,
        parent=None if parent is None else parent.name,
        configuration=configuration,
        metrics=metrics,
    )


def _teller(log: EventLog) -> Callable[[Event], None]:
    """Tells what happens in the run's log, for people, and in a file, for programs."""

    def tell(event: Event) -> None:
        print(f"fultr: {event}", flush=True)
        log.write(event)

    return tell
