"""What the commands that run experiments print: outcomes, verdicts, lists, progress."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fultr.cli.console import folded, print_json, print_table, say, spoken_time, working

if TYPE_CHECKING:
    from fultr.study.claims import Verdict
    from fultr.study.experiment import Outcome
    from fultr.study.reproduce import Plan, Progress

_COLOURS = {"yes": "green", "no": "red", "unsure": "yellow"}


def took(progress: Progress, plan: Plan) -> str:
    """How long the work took, in words."""
    from fultr.core.threads import default_threads

    where = "a Ray cluster" if plan.ray else f"{plan.workers or default_threads()} processes"
    if not progress.performed:
        return f"All {progress.runs:,} runs were in the store."
    found = progress.done - progress.performed
    stored = f"; {found:,} more were in the store or shared" if found else ""
    return (
        f"{progress.performed:,} runs took {spoken_time(progress.seconds)} on {where} "
        f"({spoken_time(progress.core_seconds)} of computing){stored}."
    )


def print_outcomes(outcomes: list[Outcome]) -> None:
    """The table of an experiment, and the verdicts on its claims."""
    from fultr.study.summary import mark, table

    experiment = outcomes[0].experiment
    print_table(table(outcomes), title=experiment.title)
    for outcome in outcomes:
        where = f" [{outcome.data}]" if len(outcomes) > 1 else ""
        for verdict in outcome.verdicts():
            style, symbol = mark(verdict.conclusion)
            plain = f"{symbol} {verdict.conclusion}"
            said = folded(f"{plain}: {verdict.claim.says}{where}", "  ")
            click.echo(said.replace(plain, click.style(plain, fg=_COLOURS[style], bold=True), 1))
            first = f"as the grid stands {verdict.answer}: " if verdict.edges else ""
            print(folded(f"    {first}{_told(verdict)}", "    "))
            if verdict.wider is not None:
                print(folded(f"    with a wider grid {verdict.wider.answer}: {_told(verdict.wider)}", "    "))
        if outcome.edges:
            edges = [f"{name} ({', '.join(rates)})" for name, rates in outcome.edges.items()]
            print(
                folded(
                    f"  Tuned to the edge of the grid, so that better rates may lie beyond it [{outcome.data}]: "
                    f"{'; '.join(edges)}",
                    "  ",
                )
            )
    print()


def _told(verdict: Verdict) -> str:
    return (
        f"{verdict.detail} {verdict.test[:1].upper()}{verdict.test[1:]}." if verdict.test != "none" else verdict.detail
    )


def tally(verdicts: list[Verdict]) -> str:
    """How many verdicts there are of each kind, and how many false ones to expect."""
    from fultr.study.statistics import expected_by_chance
    from fultr.study.summary import MARKS

    counted = Counter(verdict.conclusion for verdict in verdicts)
    plain = [answer for answer in MARKS if counted[answer] or answer != "not run"]
    counts = [f"{counted[answer]} × {answer}" for answer in (*plain, *sorted(counted.keys() - MARKS.keys()))]
    judged = sum(verdict.answer != "not run" for verdict in verdicts)
    chance = f"If none of them were true, about {expected_by_chance(judged)} would be said to hold."
    return f"Verdicts: {', '.join(counts)}. {chance if judged > 1 else ''}".rstrip()


def announce(plan: Plan) -> None:
    """Say how much there is to do, and about how long it takes, before it starts."""
    from fultr.core.threads import default_threads
    from fultr.study.reproduce import expected

    shared: set[str] = set()
    costs = [
        expected(experiment, source, plan.lines_of(experiment), shared)
        for experiment in plan.experiments
        for source in plan.sources_of(experiment)
    ]
    runs, seconds = sum(runs for runs, _ in costs), sum(seconds for _, seconds in costs)
    workers = plan.workers or default_threads()
    where = "on the cluster's cores together" if plan.ray else f"with {workers} processes"
    about = spoken_time(seconds if plan.ray else seconds / workers)
    say(f"{runs:,} runs: about {about} {where}, less what is finished already; {plan.folder} keeps them.")


def list_experiments(plan: Plan, *, as_json: bool) -> None:
    """What there is, and what each will cost."""
    from fultr.core.threads import default_threads
    from fultr.study.reproduce import expected

    rows = []
    shared: set[str] = set()
    with working("Loading the data"):
        for experiment in plan.experiments:
            sources = plan.sources_of(experiment)
            costs = [expected(experiment, source, plan.lines_of(experiment), shared) for source in sources]
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
    heading = ["name", "title", "data", "repeats", "runs", "about"]
    body = [
        [e.name, e.title, ", ".join(map(str, sources)), f"{e.repeats}", f"{runs:,}", spoken_time(seconds)]
        for e, sources, runs, seconds in rows
    ]
    total = ["all", "", "", "", f"{sum(row[2] for row in rows):,}", spoken_time(sum(row[3] for row in rows))]
    print_table([heading, *body, total], left=3)
    say(
        "Times are rough, for the cores of this machine and an empty folder; runs that an experiment shares with one "
        "above it are counted there. A wider grid, where a choice is at the edge, takes longer. To begin: fultr "
        "reproduce all --quick"
    )


def show_status(folder: Path, *, as_json: bool) -> None:
    """How far the work in a folder has come, asked from another terminal."""
    from fultr.study.reproduce import read_progress

    progress, busy = read_progress(folder)
    if as_json:
        print_json({**progress.as_dict(), "at_work": busy})
        return
    stage = f"; {progress.experiment}, {progress.stage}" if progress.stage else ""
    print(f"{folder}: {progress.done:,} of {progress.runs:,} runs done{stage}")
    if progress.latest:
        print(progress.latest)
    if progress.done >= progress.runs:
        print("Finished.")
    elif busy:
        left = "not known yet" if progress.seconds_left is None else f"about {spoken_time(progress.seconds_left)}"
        print(f"Running for {spoken_time(progress.seconds)}; time left: {left}")
    else:
        print("Not running; the same command resumes.")
