"""The commands that run experiments: `fultr run` and `fultr reproduce`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fultr.cli.console import print_json, print_table, say, spoken_time, work_bar, working
from fultr.cli.options import (
    DATA_HELP,
    PATH,
    SEED_HELP,
    given_settings,
    json_option,
    numbers,
    reading_options,
    settings_options,
    workers_option,
)
from fultr.cli.stopping import resumable
from fultr.core.errors import FultrError
from fultr.study.settings import RunSettings

if TYPE_CHECKING:
    from fultr.study.claims import Verdict
    from fultr.study.experiment import Experiment, Outcome
    from fultr.study.reproduce import Plan, Progress
    from fultr.study.store import Source

QUICK = {"repeats": 3, "rounds": 100}
QUICK_DATA = "synthetic"
_MARKS = {"holds": ("✓", "green"), "does not hold": ("✗", "red"), "inconclusive": ("?", "yellow")}
_REPORT_PAUSE = 30  # between two reports on the way, in times that the last one took: the cores wait meanwhile


@click.command()
@click.option("--data", default="synthetic", show_default=True, help=DATA_HELP)
@reading_options
@click.option("--gamma", "gammas", default="0.5,1,2", show_default=True, callback=numbers(float),
              help="Bias severities, with commas between them: examination is (1 / rank) ** gamma.")  # fmt: skip
@click.option("--repeats", default=5, show_default=True, help="Repeats of every run, each with its own seed.")
@settings_options(
    RunSettings,
    ("rounds", "clients", "gamma_sd", "policy_fraction", "policy_epochs", "policy_rate"),
    {"rounds": 200},
)
@click.option("--seed", default=0, show_default=True, help=SEED_HELP)
@click.option("--out", default="out", show_default=True, type=PATH, help="Folder for finished runs and the report.")
@click.option("--overwrite", is_flag=True, help="Replace the results of other settings in that folder.")
@workers_option
@json_option
def run(
    data: str,
    fold: int,
    merge: bool,
    sentinel: tuple[str, ...],
    gammas: tuple[float, ...],
    repeats: int,
    seed: int,
    out: Path,
    overwrite: bool,
    workers: int | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Compare FedIPS, FedAvg and λLinear across bias severities.

    Loads or generates the data, trains a logging policy for each repeat, tunes learning rates on validation queries,
    trains every algorithm at every bias severity, and writes a table, a figure and a page with the findings. FedIPS
    learns from clicks and corrects their position bias; FedAvg learns from the same clicks uncorrected; λLinear learns
    from the judgements themselves, as a ceiling.

    Finished runs are kept in the folder: interrupted, the same command resumes.

    \b
    Examples
      fultr run
      fultr run --gamma 0.5,1,1.5,2 --repeats 10 --out out/more
      fultr run --data ~/data/MQ2007 --out out/mq2007
    """
    from fultr.study.comparison import comparison
    from fultr.study.reproduce import Plan
    from fultr.study.store import Source

    common = RunSettings.of({"evaluate_every": 5, **given_settings(settings)})
    experiment = comparison(common, gammas=gammas, repeats=repeats, data=data, seed=seed)
    source = Source(data, fold=fold, merge=merge, sentinel=sentinel or "auto")
    plan = Plan([experiment], out, [source], workers)
    if not overwrite:
        _refuse_other_results(plan)
    _do(plan, as_json=as_json)


@click.command()
@click.argument("what", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--figure", type=click.Choice(["1", "2"]), help="The experiments of one of the paper's figures.")
@click.option("--data", "sources", multiple=True, metavar="NAME=FOLDER",
              help="A data set in LETOR format to use instead of the generated ones; may be repeated.")  # fmt: skip
@reading_options
@click.option("--quick", is_flag=True, help="3 repeats of 100 rounds on a small generated data set: some minutes.")
@click.option("--repeats", type=click.IntRange(min=1), help="Repeats of every run.  [default: the experiment's]")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of federated training.  [default: the experiment's]")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.  [default: the experiment's]")
@click.option("--out", type=PATH,
              help="Folder for finished runs and the report.  [default: out/paper, or out/quick]")  # fmt: skip
@workers_option
@click.option("--ray", metavar="ADDRESS", help="Do the work on a Ray cluster, such as 10.0.0.1:6379.")
@click.option("--list", "listing", is_flag=True, help="Show the experiments, and about how long each takes.")
@click.option("--status", is_flag=True, help="Show the progress of the work in the folder, from another terminal.")
@json_option
def reproduce(
    what: tuple[str, ...],
    figure: str | None,
    sources: tuple[str, ...],
    fold: int,
    merge: bool,
    sentinel: tuple[str, ...],
    quick: bool,
    repeats: int | None,
    rounds: int | None,
    seed: int | None,
    out: Path | None,
    workers: int | None,
    ray: str | None,
    listing: bool,
    status: bool,
    as_json: bool,
) -> None:
    """Rerun the paper: its figures, its claims, and more.

    EXPERIMENT is all, a name from --list, or a TOML file of your own (docs/experiments.md). Learning rates are tuned on
    validation queries and every run is repeated; the report says of each claim of the paper whether the numbers support
    it.

    Finished runs are kept in the folder: interrupted or killed, the same command resumes.

    \b
    Examples
      fultr reproduce --list
      fultr reproduce all --quick
      fultr reproduce --figure 1
      fultr reproduce all --data yahoo=~/data/yahoo \\
                          --data istella=~/data/istella
      fultr reproduce my-experiment.toml --out out/mine
      fultr reproduce --status
    """
    from fultr.study.reproduce import Plan

    folder = out or Path("out/quick" if quick else "out/paper")
    if status:
        _show_status(folder, as_json=as_json)
        return
    if not what and figure is None:
        if not listing:
            raise click.UsageError("Name experiments, such as all, or a --figure; --list shows what there is.")
        what = ("all",)
    chosen = _resized(_chosen(what, figure), quick=quick, repeats=repeats, rounds=rounds, seed=seed)
    given = [_source(text, fold, merge, sentinel) for text in sources or ((QUICK_DATA,) if quick else ())]
    plan = Plan(chosen, folder, given, workers, ray)
    if listing:
        _list(plan, as_json=as_json)
    else:
        _do(plan, as_json=as_json)


def _chosen(names: Sequence[str], figure: str | None) -> list[Experiment]:
    """The experiments that are asked for: by name, "all", a figure of the paper, or files of the user's own."""
    from fultr.study.experiment_files import packaged, read_experiment

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


def _source(text: str, fold: int, merge: bool, sentinel: tuple[str, ...]) -> Source:
    """NAME=WHERE, or WHERE alone."""
    from fultr.study.store import Source

    label, equals, where = text.partition("=")
    if not equals:
        label, where = "", text
    if not where:
        raise FultrError(f"--data: expected NAME=FOLDER, found {text!r}")
    return Source(where, label, fold, merge, sentinel or "auto")


def _resized(
    experiments: list[Experiment], *, quick: bool, repeats: int | None, rounds: int | None, seed: int | None
) -> list[Experiment]:
    """The experiments in the size that is asked for."""
    repeats = QUICK["repeats"] if quick and repeats is None else repeats
    rounds = QUICK["rounds"] if quick and rounds is None else rounds
    sized = [experiment.resized(rounds=rounds, repeats=repeats) for experiment in experiments]
    return sized if seed is None else [replace(experiment, seed=seed) for experiment in sized]


def _refuse_other_results(plan: Plan) -> None:
    """Results of one configuration never replace those of another unasked."""
    from fultr.study.report import asked

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


def _do(plan: Plan, *, as_json: bool) -> None:
    """Do the experiments, write the report, print what was found."""
    from fultr.core.files import make_folder
    from fultr.study.figures import hues
    from fultr.study.report import results

    for experiment in plan.experiments:
        hues(experiment)  # an unknown colour: better now than when hours are spent
    with working("Loading the data"):
        for experiment in plan.experiments:
            for source in plan.sources_of(experiment):
                source.fingerprints()
    make_folder(plan.folder)
    with resumable(lambda: f"finished runs are kept in {plan.folder}, and the same command resumes"):
        outcomes, written = _performed(plan)
    if as_json:
        print_json({**results(outcomes), "files": [str(path) for path in written]})
        return
    for experiment in plan.experiments:
        _print_outcomes([outcome for outcome in outcomes if outcome.experiment.name == experiment.name])
    print(_tally([verdict for outcome in outcomes for verdict in outcome.verdicts()]))
    say(f"Report: {written[0]}  (figures, curves, tuning and results are beside it)")


def _performed(plan: Plan) -> tuple[list[Outcome], list[Path]]:
    """The outcomes, and the files of the report; it is written on the way too, for those who cannot wait."""
    from fultr.study.report import write_report
    from fultr.study.reproduce import Progress, reproduce

    outcomes: list[Outcome] = []
    written: list[Path] = []
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
    return outcomes, written


def _took(progress: Progress, plan: Plan) -> str:
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


def _print_outcomes(outcomes: list[Outcome]) -> None:
    from fultr.study.report import table

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
            print(
                f"  Tuned to the edge of the grid, so a better value may lie beyond it [{outcome.data}]: "
                f"{'; '.join(edges)}"
            )
    print()


def _tally(verdicts: list[Verdict]) -> str:
    from fultr.study.statistics import expected_by_chance

    counts = [f"{sum(verdict.answer == answer for verdict in verdicts)} × {answer}" for answer in _MARKS]
    chance = f"If none of them were true, about {expected_by_chance(len(verdicts))} would be said to hold."
    return f"Verdicts: {', '.join(counts)}. {chance if len(verdicts) > 1 else ''}".rstrip()


def _list(plan: Plan, *, as_json: bool) -> None:
    """What there is, and what each will cost."""
    from fultr.core.threads import default_threads
    from fultr.study.reproduce import expected

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
    heading = ["name", "title", "data", "repeats", "runs", "about"]
    body = [
        [e.name, e.title, ", ".join(map(str, sources)), f"{e.repeats}", f"{runs:,}", spoken_time(seconds)]
        for e, sources, runs, seconds in rows
    ]
    total = ["all", "", "", "", f"{sum(row[2] for row in rows):,}", spoken_time(sum(row[3] for row in rows))]
    print_table([heading, *body, total], left=3)
    say("Times are rough, for the cores of this machine and an empty folder. To begin: fultr reproduce all --quick")


def _show_status(folder: Path, *, as_json: bool) -> None:
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
