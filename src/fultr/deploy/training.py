"""Submit the training to a running federation, and follow it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fultr.core.checks import written
from fultr.core.errors import FultrError
from fultr.core.files import locked, make_folder
from fultr.core.toml import parse_toml, read_text
from fultr.deploy.control import control, list_runs, run_log, submit_run
from fultr.deploy.folder import Deployment, load_deployment
from fultr.deploy.history import Round, read_line
from fultr.federated.federation import FederationSettings

_POLL_SECONDS = 1.0
_STATUS_SECONDS = 5.0  # between two requests to the SuperLink


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of training: a round is done, or an attempt at one failed.

    Attributes:
        run: the run's number.
        round: rounds done, including those before an interruption.
        rounds: how many in total.
        seconds_left: estimated from the rounds of this run; None before two are done.
        latest: the last line of progress.jsonl, or of attempts.jsonl if an attempt failed.
        happened: the same, as a history has it.
    """

    run: int
    round: int
    rounds: int
    seconds_left: float | None
    latest: dict[str, Any]
    happened: Round


def read_settings(deployment: Deployment) -> tuple[FederationSettings, Path]:
    """The settings in federation.toml, and the folder that `state-dir` names there."""
    settings = FederationSettings.read(deployment.folder / "federation.toml", besides=("state_dir",))
    return settings, state_folder(deployment)


def state_folder(deployment: Deployment) -> Path:
    """The folder that `state-dir` in federation.toml names: where the server app keeps what it knows."""
    path = deployment.folder / "federation.toml"
    given = parse_toml(read_text(path), str(path))
    folder = given.get("state_dir", given.get("state-dir", "state"))
    if not isinstance(folder, str) or not folder:
        raise FultrError(f"{path}: state-dir: expected a folder, found {written(folder)}")
    try:
        return deployment.folder / Path(folder).expanduser()
    except RuntimeError as error:  # a home that nobody has
        raise FultrError(f"{path}: state-dir: {error}: found {written(folder, text_expected=True)}") from None


def submit(folder: Path, job: Literal["train", "compare"] = "train") -> tuple[int, bool]:
    """Submit a job; returns the run's number, and whether it is new rather than already in progress.

    Args:
        folder: the deployment's.
        job: to train, and then compare the candidate of a release, if there is one; or only to compare.
    """
    deployment = load_deployment(folder)
    settings, state = read_settings(deployment)
    make_folder(deployment.folder / "run")
    with locked(deployment.folder / "run" / "submit"), control(deployment) as client:
        active = next((run for run in list_runs(client) if run.active), None)
        if active is not None:
            return active.number, False  # two would write to one state-dir
        places = {"state-dir": str(state), "deployment": str(deployment.folder), "job": job}
        return submit_run(client, {**settings.as_mapping(), **places}), True


def follow(folder: Path, run: int, new: bool, show: Callable[[TrainingProgress], None] = lambda progress: None) -> None:
    """Follow a run until it completes; if it does not, an error says why.

    Args:
        folder: the deployment's.
        run: the run's number.
        new: was it just submitted? Then the present content of progress.jsonl is from earlier runs.
        show: called with each step.
    """
    deployment = load_deployment(folder)
    settings, state = read_settings(deployment)
    rounds, attempts = (_Tail(state / f"{name}.jsonl", from_end=new) for name in ("progress", "attempts"))
    waiting: list[tuple[Round, dict[str, Any]]] = []
    if not new:  # of what was done before, only the latest
        waiting = _read(rounds, completed=True)[-1:]
        attempts.lines()
    first: tuple[float, int] | None = None
    asked, ended = 0.0, None
    while ended is None:
        if time.monotonic() - asked >= _STATUS_SECONDS:
            asked = time.monotonic()
            ended = _end_of(deployment, run)
        waiting += _read(attempts, completed=False) + _read(rounds, completed=True)
        for one, line in sorted(waiting, key=lambda read: (read[0].number, read[0].completed)):
            now, left = time.monotonic(), None
            done = one.number if one.completed else one.number - 1
            first = first or ((now, done) if one.completed else None)
            if first is not None and done > first[1]:
                left = (now - first[0]) / (done - first[1]) * (settings.rounds - done)
            show(TrainingProgress(run, done, settings.rounds, left, line, one))
        waiting = []
        if ended is None:
            time.sleep(_POLL_SECONDS)
    if ended[0] != "completed":
        raise FultrError(f"run {run} {ended[0]}: {ended[1]}")


def _end_of(deployment: Deployment, number: int) -> tuple[str, str] | None:
    """How a run ended, and why; None while it is in progress."""
    with control(deployment) as client:
        runs = list_runs(client, number)
        if runs and runs[0].active:
            return None
        if not runs:
            return "is gone", "the SuperLink does not know it; was its state.db removed?"
        if runs[0].state != "failed":
            return runs[0].state, runs[0].details or f"resume it with fultr deploy train {deployment.folder}"
        lines = [line for line in run_log(client, number).splitlines() if line.strip()]
        shown = "\n".join(f"  {line[:300]}" for line in lines[-12:])
        return "failed", f"{runs[0].details.strip() or 'no reason given'}\n{shown}".rstrip()


def latest_comparison(folder: Path) -> dict[str, Any] | None:
    """What the last comparison of two versions found; None if there was none."""
    state = state_folder(load_deployment(folder))
    return next(reversed(_Tail(state / "comparisons.jsonl", from_end=False).lines()), None)


def _read(tail: _Tail, completed: bool) -> list[tuple[Round, dict[str, Any]]]:
    """The rounds or attempts in the lines since the last call, with the lines."""
    found = ((read_line(line, completed), line) for line in tail.lines())
    return [(one, line) for one, line in found if one is not None]


class _Tail:
    """The lines added to a file of JSON lines, which need not exist yet."""

    def __init__(self, path: Path, from_end: bool) -> None:
        self.path = path
        self.place = path.stat().st_size if from_end and path.exists() else 0

    def lines(self) -> list[dict[str, Any]]:
        """The complete lines since the last call; from the start if the file has become shorter."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self.place:
                    self.place = 0
                file.seek(self.place)
                content = file.read()
        except OSError:
            return []
        content = content[: content.rfind(b"\n") + 1]
        self.place += len(content)
        found = []
        for line in content.splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
        return found
