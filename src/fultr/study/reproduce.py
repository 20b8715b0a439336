"""Run experiments: tune every line, repeat it, and collect the outcomes. Runs found in the store are not repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np

from fultr.core.errors import FultrError
from fultr.core.files import locked, make_folder, written_whole
from fultr.study.engine import cores, each_finished
from fultr.study.experiment import Experiment, Line, Outcome
from fultr.study.outcomes import measuring_tasks, outcome_of, runs_of
from fultr.study.run import Result
from fultr.study.saved import CURVES, Saved, SavedRun, saved_experiments
from fultr.study.sharing import Costs, bundles
from fultr.study.statistics import estimate
from fultr.study.store import Source, Store, Task, do, run_key
from fultr.study.tuning import Lookup, tuned


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
        lines: run only the lines whose names match one of these patterns; empty: all. What others have finished counts.
        saved: a folder of saved runs, which need not be done again.
        from_saved: nothing is loaded or run: experiments have the data sets that there are saved runs of.
    """

    experiments: Sequence[Experiment]
    folder: Path
    sources: Sequence[Source] = ()
    workers: int | None = None
    ray: str | None = None
    lines: tuple[str, ...] = ()
    saved: Path | None = None
    from_saved: bool = False

    def sources_of(self, experiment: Experiment) -> list[Source]:
        """The data sets that an experiment is run on."""
        if self.from_saved and self.saved is not None:
            return Saved.read(self.saved, experiment.name).sources(experiment.data)
        if not self.sources:
            return [Source(where) for where in experiment.data]
        return list(self.sources[:1] if len(experiment.data) == 1 else self.sources)

    def lines_of(self, experiment: Experiment) -> list[Line]:
        """The lines of an experiment that are run."""
        patterns = self.lines or ("*",)
        return [line for line in experiment.lines if any(line.name == p or fnmatchcase(line.name, p) for p in patterns)]

    def finished(self, experiment: Experiment) -> Lookup:
        """Looks for finished runs of an experiment: in the store, then among the saved ones.

        Experiments share runs, so what has been saved for another one is not done again.
        """
        saved = self._saved_of(experiment)
        known: dict[str, Result] = {}

        def look(task: Task) -> Result | None:
            result = known.get(task.key)
            if result is None and not self.from_saved:
                result = self.store.load(task)
            if result is None:
                result = next((there for file in saved if (there := file.load(task)) is not None), None)
            if result is not None:
                known[task.key] = result
            return result

        return look

    def _saved_of(self, experiment: Experiment) -> list[Saved]:
        """Where runs of an experiment may have been saved: its own file first; when nothing is run, it alone."""
        if self.saved is None:
            return []
        files = [Saved.read(self.saved, experiment.name)]
        if self.from_saved or not self.saved.is_dir():
            return files
        for name in saved_experiments(self.saved):
            if name != experiment.name:
                with suppress(FultrError):  # a damaged file of another experiment: its runs are done again
                    files.append(Saved.read(self.saved, name))
        return files

    @property
    def folder_of_saved(self) -> Path:
        """Where the saved runs are."""
        if self.saved is None:
            raise ValueError("this plan has no saved runs")
        return self.saved

    @property
    def store(self) -> Store:
        """Where finished runs are stored."""
        return Store(self.folder / "runs")


def expected(
    experiment: Experiment, source: Source, lines: Sequence[Line] | None = None, shared: set[str] | None = None
) -> tuple[int, float]:
    """How many runs an experiment consists of on one data set, and their estimated cost in seconds on one core.

    What a wider grid adds to that, where a choice is at the edge of its grid, is not known beforehand.

    Args:
        experiment: to be run.
        source: the data set.
        lines: some of its lines; None: all.
        shared: runs that are counted already, and cost nothing a second time; those of this experiment are added.

    >>> from fultr import RunSettings
    >>> from fultr.study.experiment import Panel
    >>> line = Line("random", RunSettings(algorithm="random-ranking"))
    >>> mine = Experiment("mine", "Mine", "", "", ("synthetic",), (line,), (Panel("", ("random",)),), repeats=4)
    >>> expected(mine, Source("synthetic"))[0]
    4
    """
    runs, total, known, costs, fingerprints = 0, 0.0, Costs(), dict[str, float](), source.fingerprints()
    for line in experiment.lines if lines is None else lines:
        parts = [(line.settings, "test", experiment.seeds, f"{line.grid}" if line.grid else "")]
        if line.grid:
            parts += [(settings, "valid", experiment.tuning_seeds, "") for _, settings in line.candidates()]
        for settings, split, seeds, rates in parts:
            runs += len(seeds)
            relevant = settings.relevant()
            for seed in seeds:
                key = rates + run_key(relevant, seed, (split,), fingerprints)
                if key not in costs:
                    costs[key] = known.of(settings, source, seed=seed, splits=(split,))
                if shared is None or key not in shared:
                    total += costs[key]
                if shared is not None:
                    shared.add(key)
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
                runs, total = expected(experiment, source, plan.lines_of(experiment))
                progress.runs += runs
                progress.cost += total
        tell()
        for experiment in plan.experiments:
            progress.experiment = experiment.name
            _perform(experiment, plan, progress, tell)
            yield outcomes(experiment, plan)


def outcomes(experiment: Experiment, plan: Plan) -> list[Outcome]:
    """What the finished runs of an experiment come to, on each data set that there are any of."""
    finished = plan.finished(experiment)
    found = [outcome_of(experiment, source, finished) for source in plan.sources_of(experiment)]
    return [outcome for outcome in found if outcome.lines]


def save(experiment: Experiment, plan: Plan, folder: Path) -> int:
    """Add the finished runs of an experiment to the saved ones in a folder; how many are new there."""
    finished = plan.finished(experiment)
    runs = [run for source in plan.sources_of(experiment) for run in runs_of(experiment, source, finished)]
    make_folder(folder)
    with locked(folder / ".lock"):
        return Saved.read(folder, experiment.name).add(SavedRun.of(task, result) for task, result in runs)


def check_savable(experiment: Experiment, plan: Plan, folder: Path) -> None:
    """Refuse, before any work, a folder that the runs of an experiment could not be saved in."""
    if folder.resolve() == plan.folder.resolve() and experiment.name == CURVES:
        raise FultrError(f"--save {folder}: the report there has a file {CURVES}.parquet, as this experiment would")
    saved = Saved.read(folder, experiment.name)
    for source in plan.sources_of(experiment):
        saved.check_data(str(source), source.fingerprints())


def _perform(experiment: Experiment, plan: Plan, progress: Progress, tell: Callable[[], None]) -> None:
    """Tune, then measure, on all data sets at once: more parallel runs keep the cores busier."""
    finished = plan.finished(experiment)
    lines = [(source, line) for source in plan.sources_of(experiment) for line in plan.lines_of(experiment)]
    progress.stage = "tuning"
    for step in range(1 + experiment.tuning_steps):
        found = {(source, line.name): tuned(experiment, line, source, finished) for source, line in lines}
        wanted = {key: tuning.steps[step] for key, tuning in found.items() if len(tuning.steps) > step}
        _do_all(wanted, plan, finished, progress, tell, more=step > 0)
    found = {(source, line.name): tuned(experiment, line, source, finished) for source, line in lines}
    first, wider = {}, {}
    for source, line in lines:
        key = source, line.name
        first[key], wider[source, f"{line.name}, wider grid"] = measuring_tasks(experiment, line, source, found[key])
    progress.stage = "measuring"
    _do_all(first, plan, finished, progress, tell)
    _do_all(wider, plan, finished, progress, tell, more=True)


def _do_all(
    wanted: Mapping[tuple[Source, str], Sequence[Task]],
    plan: Plan,
    finished: Lookup,
    progress: Progress,
    tell: Callable[[], None],
    *,
    more: bool = False,
) -> None:
    """See that all tasks are finished, the longest first; with `more`, they were not counted on."""
    missing: dict[str, tuple[Task, str]] = {}
    known, costs = Costs(), dict[str, float]()
    for (source, name), tasks in wanted.items():
        for task in tasks:
            if task.key not in costs:
                costs[task.key] = known.of(task.settings, source, seed=task.seed, splits=task.splits)
            if more:
                progress.runs += 1
                progress.cost += costs[task.key]
            if finished(task) is not None or task.key in missing:
                progress.advance(1, costs[task.key])
            else:
                missing[task.key] = (task, f"{source}, {name}")
    if wanted:
        tell()
    ordered = sorted(missing.values(), key=lambda entry: (-costs[entry[0].key], entry[0].seed, entry[0].key))
    values: dict[str, list[float]] = {}
    workers = cores(plan.workers, plan.ray) if ordered else 1
    work = bundles([task for task, _ in ordered], workers)
    for i, results, seconds in each_finished(
        partial(do, folder=plan.store.folder.absolute()), work, workers=workers, ray=plan.ray
    ):
        for task, result in zip(work[i], results, strict=True):
            name = missing[task.key][1]
            if plan.store.load(task) is None:  # done on a machine that does not see the store
                plan.store.save(task, result)
            split = task.splits[0]
            values.setdefault(name, []).append(float(result.ndcg[split][-1]))
            progress.advance(1, costs[task.key], performed=True, seconds=seconds / len(results))
            progress.latest = _latest(name, split, task.settings.k, values[name])
        tell()


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
