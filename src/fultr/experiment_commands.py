"""What `fultr run` and `fultr reproduce` do, once their options are read."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from fultr.claims import Verdict
from fultr.console import print_json, print_table, say, spoken_time, work_bar, working
from fultr.errors import FultrError
from fultr.experiment_files import packaged, read_experiment
from fultr.experiments import Experiment, Outcome
from fultr.figures import hues
from fultr.files import make_folder
from fultr.report import asked, results, table, write_report
from fultr.reproduction import Plan, Progress, expected, read_progress, reproduce
from fultr.store import Source
from fultr.threads import default_threads

QUICK = {"repeats": 3, "rounds": 100}
QUICK_DATA = "synthetic"
_MARKS = {"holds": ("✓", "green"), "does not hold": ("✗", "red"), "not enough repeats to tell": ("?", "yellow")}
_REPORT_PAUSE = 30  # between two reports on the way, in times that the last one took: the cores wait meanwhile


def chosen_experiments(names: Sequence[str], figure: str | None) -> list[Experiment]:
    """The experiments that are asked for: by name, "all", a figure of the paper, or files of the user's own."""
    known = {experiment.name: experiment for experiment in packaged()}
    chosen: list[Experiment] = []
    if figure is not None:
        chosen += [experiment for experiment in known.values() if experiment.figure == figure]
    for name in names:
        if name == "all":
            chosen += known.values()
        elif name in known:
            chosen.append(known[name])
        elif name.endswith(".toml") or Path(name).is_file():
            chosen.append(read_experiment(Path(name)))
        else:
            raise FultrError(f"no experiment is called {name!r}; there are all, {', '.join(known)}, or a TOML file")
    unique: dict[str, Experiment] = {}
    for experiment in chosen:
        if unique.setdefault(experiment.name, experiment) != experiment:
            raise FultrError(f"two different experiments are called {experiment.name!r}; rename one of the files")
    return list(unique.values())


def parse_source(text: str, fold: int, merge: bool, sentinel: tuple[str, ...]) -> Source:
    """NAME=WHERE, or WHERE alone."""
    label, equals, where = text.partition("=")
    if not equals:
        label, where = "", text
    if not where:
        raise FultrError(f"--data: expected NAME=FOLDER, found {text!r}")
    return Source(where, label, fold, merge, sentinel or "auto")


def resized(
    experiments: list[Experiment], *, quick: bool, repeats: int | None, rounds: int | None, seed: int | None
) -> list[Experiment]:
    """The experiments in the size that is asked for."""
    repeats = QUICK["repeats"] if quick and repeats is None else repeats
    rounds = QUICK["rounds"] if quick and rounds is None else rounds
    sized = [experiment.resized(rounds=rounds, repeats=repeats) for experiment in experiments]
    return sized if seed is None else [replace(experiment, seed=seed) for experiment in sized]


def run_experiments(plan: Plan, *, as_json: bool) -> None:
    """Do the experiments, write the report, print what was found."""
    for experiment in plan.experiments:
        hues(experiment)  # an unknown colour: better now than when hours are spent
    with working("Loading the data"):
        for experiment in plan.experiments:
            for source in plan.sources_of(experiment):
                source.fingerprints()
    make_folder(plan.folder)
    outcomes: list[Outcome] = []
    progress = Progress()
    next_report = time.monotonic()
    with work_bar() as show:

        def on_progress(now: Progress) -> None:
            nonlocal progress
            progress = now
            show(now)

        for done in reproduce(plan, on_progress):
            outcomes += done
            last = len({outcome.experiment.name for outcome in outcomes}) == len(plan.experiments)
            begun = time.monotonic()
            if last or begun >= next_report:
                written = write_report(outcomes, plan.folder, took=_took(progress, plan))
                next_report = begun + _REPORT_PAUSE * (time.monotonic() - begun)
    if as_json:
        print_json({**results(outcomes), "files": [str(path) for path in written]})
        return
    for experiment in plan.experiments:
        _print_outcomes([outcome for outcome in outcomes if outcome.experiment.name == experiment.name])
    print(_tally([verdict for outcome in outcomes for verdict in outcome.verdicts()]))
    say(f"Report: {written[0]}  (with figures, curves, tuning and results beside it)")


def refuse_other_results(plan: Plan) -> None:
    """Results of one configuration never replace those of another unasked."""
    path = plan.folder / "results.json"
    if not path.exists():
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["asked"]
        data = [entry["fingerprints"] for entry in found]
    except (OSError, ValueError, KeyError, TypeError):
        raise FultrError(f"{path}: not results of fultr; give another --out, or --overwrite") from None
    wanted = [asked(e, source.fingerprints()) for e in plan.experiments for source in plan.sources_of(e)]
    if found == json.loads(json.dumps(wanted)):
        return
    what = "settings" if data == [entry["fingerprints"] for entry in wanted] else "data"
    raise FultrError(
        f"{path}: holds results of another configuration (they differ in their {what}); give another --out, or "
        "--overwrite"
    )


def _took(progress: Progress, plan: Plan) -> str:
    where = "a Ray cluster" if plan.ray else f"{plan.workers or default_threads()} processes"
    if not progress.performed:
        return f"All {progress.runs:,} runs were in the store."
    found = progress.done - progress.performed
    stored = f"; {found:,} more were in the store or shared" if found else ""
    return (
        f"{progress.performed:,} runs took {spoken_time(progress.seconds)} on {where} "
        f"({spoken_time(progress.core_seconds)} of computing){stored}."
    )


def _print_outcomes(outcomes: list[Outcome]) -> None:
    experiment = outcomes[0].experiment
    print_table(table(outcomes), title=experiment.title)
    for outcome in outcomes:
        for verdict in outcome.verdicts():
            mark, colour = _MARKS[verdict.answer]
            where = f" [{outcome.data}]" if len(outcomes) > 1 else ""
            click.echo(f"{click.style(f'{mark} {verdict.answer}', fg=colour, bold=True)}: {verdict.claim.says}{where}")
            print(f"    {verdict.detail} {verdict.test[:1].upper()}{verdict.test[1:]}.")
        edges = [f"{name} ({', '.join(choice.at_edge)})" for name, choice in outcome.choices.items() if choice.at_edge]
        if edges:
            print(f"  At the edge of its grid, so that better ones may lie beyond [{outcome.data}]: {'; '.join(edges)}")
    print()


def _tally(verdicts: list[Verdict]) -> str:
    counts = [f"{sum(verdict.answer == answer for verdict in verdicts)} × {answer}" for answer in _MARKS]
    return f"Verdicts: {', '.join(counts)}."


def list_experiments(plan: Plan, *, as_json: bool) -> None:
    """What there is, and what each will cost."""
    rows = []
    with working("Loading the data"):
        for experiment in plan.experiments:
            sources = plan.sources_of(experiment)
            costs = [expected(experiment, source) for source in sources]
            runs, seconds = sum(runs for runs, _ in costs), sum(seconds for _, seconds in costs)
            rows.append((experiment, sources, runs, seconds / (plan.workers or default_threads())))
    if as_json:
        print_json(
            [
                {
                    "name": experiment.name,
                    "title": experiment.title,
                    "figure": experiment.figure,
                    "data": [str(source) for source in sources],
                    "repeats": experiment.repeats,
                    "runs": runs,
                    "seconds": round(seconds),
                }
                for experiment, sources, runs, seconds in rows
            ]
        )
        return
    heading = ["name", "what", "data", "repeats", "runs", "about"]
    body = [
        [e.name, e.title, ", ".join(map(str, sources)), f"{e.repeats}", f"{runs:,}", spoken_time(seconds)]
        for e, sources, runs, seconds in rows
    ]
    total = ["all", "", "", "", f"{sum(row[2] for row in rows):,}", spoken_time(sum(row[3] for row in rows))]
    print_table([heading, *body, total], left=3)
    say("Times are rough, for this machine's cores, with nothing in the store. Begin: fultr reproduce all --quick")


def show_status(folder: Path, *, as_json: bool) -> None:
    """How far the work in a folder has come, asked from another terminal."""
    progress, busy = read_progress(folder)
    if as_json:
        print_json({**progress.as_dict(), "at_work": busy})
        return
    print(f"{folder}: {progress.done:,} of {progress.runs:,} runs done, at {progress.experiment}, {progress.stage}")
    if progress.latest:
        print(progress.latest)
    if progress.done >= progress.runs:
        print("Finished.")
    elif busy:
        left = "not known yet" if progress.seconds_left is None else f"about {spoken_time(progress.seconds_left)}"
        print(f"At work since {spoken_time(progress.seconds)}; time left: {left}")
    else:
        print("Nobody is at work; the same command again goes on from here.")
