"""Run experiments: tune every line, repeat it, and collect the outcomes. Runs found in the store are not repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from fultr.core.errors import FultrError
from fultr.core.files import written_whole
from fultr.core.threads import default_threads
from fultr.study.engine import each_finished
from fultr.study.experiment import Choice, Experiment, Line, Outcome, choose
from fultr.study.run import Result, cost
from fultr.study.statistics import Measured, estimate
from fultr.study.store import Source, Store, Task, do


@dataclass
class Progress:
    """How far the work has come; written to progress.json for other terminals to read.

    Attributes:
        runs: how many there are in total. A run that two experiments share is counted for each, but done once.
        done: how many of them are finished.
        experiment: the current one.
        stage: "tuning" or "measuring".
        latest: a sentence about the run that finished last.
        cost: estimated cost of all runs, in seconds on one core.
        cost_done: the same for finished runs.
        seconds: elapsed since this process began the work.
        seconds_left: estimated remaining time; None until it is known.
        core_seconds: spent on runs by this process.
        performed: how many runs this process did, not counting those found in the store.
    """

    runs: int = 0
    done: int = 0
    experiment: str = ""
    stage: str = ""
    latest: str = ""
    cost: float = 0.0
    cost_done: float = 0.0
    seconds: float = 0.0
    seconds_left: float | None = None
    core_seconds: float = 0.0
    performed: int = 0
    _cost_performed: float = field(default=0.0, repr=False)
    _begun: float = field(default_factory=time.monotonic, repr=False)

    def advance(self, runs: int, cost: float, *, performed: bool = False, seconds: float = 0.0) -> None:
        """Count runs as finished: found in the store, or performed, which took `seconds`."""
        self.done += runs
        self.cost_done += cost
        self.seconds = time.monotonic() - self._begun
        if performed:
            self.performed += runs
            self.core_seconds += seconds
            self._cost_performed += cost
        if self._cost_performed > 0:
            self.seconds_left = max(0.0, self.cost - self.cost_done) * self.seconds / self._cost_performed

    def as_dict(self) -> dict[str, object]:
        """All public fields, ready for JSON."""
        return {name: value for name, value in asdict(self).items() if not name.startswith("_")}


@dataclass(frozen=True)
class Plan:
    """Which experiments to run, on which data, and how.

    Attributes:
        experiments: run in this order.
        sources: data sets that replace the experiments' own: an experiment on one data set takes the first, others
            take all. Empty: each experiment's own.
        folder: for finished runs and progress.
        workers: number of processes; None: one per core.
        ray: address of a Ray cluster that does the work instead.
    """

    experiments: Sequence[Experiment]
    folder: Path
    sources: Sequence[Source] = ()
    workers: int | None = None
    ray: str | None = None

    def sources_of(self, experiment: Experiment) -> list[Source]:
        """The data sets that an experiment is run on."""
        if not self.sources:
            return [Source(where) for where in experiment.data]
        return list(self.sources[:1] if len(experiment.data) == 1 else self.sources)

    @property
    def store(self) -> Store:
        """Where finished runs are stored."""
        return Store(self.folder / "runs")


def expected(experiment: Experiment, source: Source) -> tuple[int, float]:
    """How many runs an experiment consists of on one data set, and their estimated cost in seconds on one core.

    >>> from fultr import RunSettings
    >>> from fultr.study.experiment import Panel
    >>> line = Line("random", RunSettings(algorithm="random-ranking"))
    >>> mine = Experiment("mine", "Mine", "", "", ("synthetic",), (line,), (Panel("", ("random",)),), repeats=4)
    >>> expected(mine, Source("synthetic"))[0]
    4
    """
    data = source.load()
    runs, total = 0, 0.0
    for line in experiment.lines:
        if line.grid:
            tried = [candidate for _, candidate in line.candidates()]
            runs += len(tried) * experiment.tuning_repeats
            total += sum(cost(candidate, data, ("valid",)) for candidate in tried) * experiment.tuning_repeats
        runs += experiment.repeats
        total += cost(line.settings, data) * experiment.repeats
    return runs, total


def reproduce(plan: Plan, on_progress: Callable[[Progress], object] = lambda progress: None) -> Iterator[list[Outcome]]:
    """Run the experiments one after the other, and yield the outcomes of each: one per data set.

    Every finished run is stored at once; running again does only what is missing. Results do not depend on workers,
    cluster or interruptions.

    >>> import tempfile
    >>> from fultr import RunSettings
    >>> from fultr.study.experiment import Panel
    >>> line = Line("FedIPS", RunSettings(clients=50, rounds=4, evaluate_every=2))
    >>> mine = Experiment("mine", "Mine", "", "", ("synthetic",), (line,), (Panel("", ("FedIPS",)),), repeats=2)
    >>> [[outcome]] = reproduce(Plan([mine], Path(tempfile.mkdtemp()), workers=1))
    >>> outcome.lines["FedIPS"].ndcg.shape
    (2, 3)
    """
    progress = Progress()

    def tell() -> None:
        with written_whole(plan.folder / "progress.json") as temporary:
            temporary.write_text(json.dumps(progress.as_dict(), indent=1) + "\n", encoding="utf-8")
        on_progress(progress)

    with plan.store.alone():
        for experiment in plan.experiments:
            for source in plan.sources_of(experiment):
                runs, total = expected(experiment, source)
                progress.runs += runs
                progress.cost += total
        tell()
        for experiment in plan.experiments:
            progress.experiment = experiment.name
            yield _outcomes(experiment, plan, progress, tell)


def _outcomes(experiment: Experiment, plan: Plan, progress: Progress, tell: Callable[[], None]) -> list[Outcome]:
    """Tune, then measure, on all data sets at once: more parallel runs keep the cores busier."""
    sources = plan.sources_of(experiment)
    tuned = {
        (source, line.name): _tuning_tasks(experiment, line, source) for source in sources for line in experiment.lines
    }
    progress.stage = "tuning"
    scores = _results({key: tasks for key, tasks in tuned.items() if tasks}, plan, progress, tell)
    choices: dict[tuple[Source, str], Choice] = {}
    measured = {}
    for source in sources:
        for line in experiment.lines:
            settings = line.settings
            if line.grid:
                # One row per combination of rates, one column per repeat.
                table = np.reshape(
                    [run.ndcg["valid"][-1] for run in scores[source, line.name]], (-1, experiment.tuning_repeats)
                )
                choice = choose(line, table.mean(axis=1).tolist())
                choices[source, line.name] = choice
                settings = settings.but(choice.rates)
            measured[source, line.name] = [
                Task(settings, seed, ("test",), source, source.fingerprints()) for seed in experiment.seeds
            ]
    progress.stage = "measuring"
    runs = _results(measured, plan, progress, tell)
    return [
        Outcome(
            experiment,
            str(source),
            source.fingerprints(),
            {line.name: _measured(runs[source, line.name]) for line in experiment.lines},
            {line.name: choices[source, line.name] for line in experiment.lines if line.grid},
        )
        for source in sources
    ]


def _tuning_tasks(experiment: Experiment, line: Line, source: Source) -> list[Task]:
    """Every combination of rates on every tuning repeat, measured on validation queries alone."""
    if not line.grid:
        return []
    return [
        Task(settings, seed, ("valid",), source, source.fingerprints())
        for _, settings in line.candidates()
        for seed in experiment.tuning_seeds
    ]


def _measured(runs: list[Result]) -> Measured:
    shown = [run.online["displayed"] - run.online["policy"] for run in runs if run.online]
    return Measured(runs[0].rounds, np.stack([run.ndcg["test"] for run in runs]), np.stack(shown) if shown else None)


def _results(
    wanted: dict[tuple[Source, str], list[Task]], plan: Plan, progress: Progress, tell: Callable[[], None]
) -> dict[tuple[Source, str], list[Result]]:
    """The results of all tasks: from the store, or done now, the longest first."""
    results: dict[str, Result] = {}
    missing: dict[str, tuple[Task, str]] = {}
    costs: dict[str, float] = {}
    for (source, name), tasks in wanted.items():
        for task in tasks:
            costs[task.key] = cost(task.settings, source.load(), task.splits)
            stored = plan.store.load(task)
            if stored is not None:
                results[task.key] = stored
            if stored is not None or task.key in missing:
                progress.advance(1, costs[task.key])
            else:
                missing[task.key] = (task, f"{source}, {name}")
    tell()
    ordered = sorted(missing.values(), key=lambda entry: (-costs[entry[0].key], entry[0].seed, entry[0].key))
    tasks = [task for task, _ in ordered]
    finished: dict[str, list[float]] = {}
    workers = default_threads() if plan.workers is None else plan.workers
    for i, result, seconds in each_finished(
        partial(do, folder=plan.store.folder.absolute()), tasks, workers=workers, ray=plan.ray
    ):
        task, name = ordered[i]
        results[task.key] = result
        if plan.store.load(task) is None:  # done on a machine that does not see the store
            plan.store.save(task, result)
        split = task.splits[0]
        finished.setdefault(name, []).append(float(result.ndcg[split][-1]))
        progress.advance(1, costs[task.key], performed=True, seconds=seconds)
        progress.latest = _latest(name, split, task.settings.k, finished[name])
        tell()
    return {key: [results[task.key] for task in tasks] for key, tasks in wanted.items()}


def _latest(name: str, split: str, k: int, values: list[float]) -> str:
    """A summary of the finished runs of a line."""
    if split == "valid":
        return f"{name}: best NDCG@{k} on validation so far {max(values):.4f}"
    return f"{name}: NDCG@{k} {estimate(np.array(values))} over {len(values)} repeats"


def read_progress(folder: Path) -> tuple[Progress, bool]:
    """How far the work in a folder has come, and whether a process is running it."""
    path = folder / "progress.json"
    try:
        return Progress(**json.loads(path.read_text(encoding="utf-8"))), Store(folder / "runs").is_busy()
    except FileNotFoundError:
        raise FultrError(f"{folder}: fultr reproduce was never run there") from None
    except OSError as error:
        raise FultrError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError) as error:
        raise FultrError(f"{path}: cannot be read: {error}") from None
