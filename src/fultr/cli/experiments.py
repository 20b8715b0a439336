"""The commands that run experiments: `fultr run` and `fultr reproduce`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fultr.cli.checking import check_saved
from fultr.cli.choosing import chosen_experiments, resized_experiments, source_of
from fultr.cli.console import folded, print_json, say, work_bar, working
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
from fultr.cli.outcomes import announce, list_experiments, print_outcomes, show_status, tally, took
from fultr.cli.stopping import resumable
from fultr.core.errors import FultrError
from fultr.study.settings import RunSettings

if TYPE_CHECKING:
    from fultr.study.experiment import Outcome
    from fultr.study.reproduce import Plan, Progress

SAMPLE = 3
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
    """Compare what is recommended, FedIPS, FedAvg and λLinear across bias severities.

    Loads or generates the data, trains a logging policy for each repeat, tunes learning rates on validation queries,
    trains every algorithm at every bias severity, and writes a table, a figure and a page with the findings. FedIPS
    learns from clicks and corrects their position bias; FedAvg learns from the same clicks uncorrected; λLinear learns
    from the judgements themselves. The recommended settings estimate the bias from the clicks, and what users see
    follows what was learnt.

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
              help="A data set to use instead of the generated ones; may be repeated.")  # fmt: skip
@reading_options
@click.option(
    "--quick",
    is_flag=True,
    help="3 repeats of 100 rounds, small cohorts and grids, on a small generated data set: some minutes.",
)
@click.option("--repeats", type=click.IntRange(min=1), help="Repeats of every run.  [default: the experiment's]")
@click.option("--tuning-repeats", type=click.IntRange(1, 1000),
              help="Choose rates by the median of this many extra repeats.  [default: the experiment's]")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of federated training.  [default: the experiment's]")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of everything random.  [default: the experiment's]")
@click.option("--out", type=PATH,
              help="Folder for finished runs and the report.  [default: out/paper; --quick: out/quick; --from: "
                   "out/saved]")  # fmt: skip
@workers_option
@click.option("--ray", metavar="ADDRESS", help="Do the work on a Ray cluster, such as 10.0.0.1:6379.")
@click.option("--lines", multiple=True, metavar="PATTERN",
              help="Run only lines with such names, 'FedIPS*'; may be repeated. Others can follow.")  # fmt: skip
@click.option("--save", type=PATH, metavar="FOLDER", help="Also add the finished runs to the saved ones there.")
@click.option("--finished", is_flag=True, help="Run nothing: judge, draw and save what is finished so far.")
@click.option("--from", "origin", type=PATH, metavar="FOLDER",
              help="Judge and draw again from runs saved there; nothing is run, no data are needed.")  # fmt: skip
@click.option("--check", type=PATH, metavar="FOLDER", help="Compute a few of the runs saved there again, and compare.")
@click.option("--sample", type=click.IntRange(min=1), help=f"How many of them.  [default: {SAMPLE}]")
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
    tuning_repeats: int | None,
    rounds: int | None,
    seed: int | None,
    out: Path | None,
    workers: int | None,
    ray: str | None,
    lines: tuple[str, ...],
    save: Path | None,
    finished: bool,
    origin: Path | None,
    check: Path | None,
    sample: int | None,
    listing: bool,
    status: bool,
    as_json: bool,
) -> None:
    """Rerun the paper: its figures, its claims, and more.

    EXPERIMENT is all, a name from --list, or a TOML file of your own (docs/experiments.md). Learning rates are tuned on
    validation queries and every run is repeated; the report says of each claim of the paper whether the numbers support
    it.

    FOLDER holds Yahoo LTRC set 1, Istella-S, MSLR-WEB, MQ2007/8, AOL4FOLTR or any train, vali and test files, as they
    are when unpacked; a folder above it will do.

    Finished runs are kept in the folder: interrupted or killed, the same command resumes. An experiment can be run in
    parts, by --data, --lines and --repeats. --save keeps finished runs in compact files, from which --from judges and
    draws again in seconds, and of which --check computes a random sample again.

    \b
    Examples
      fultr reproduce --list
      fultr reproduce all --quick
      fultr reproduce --figure 1
      fultr reproduce all --data yahoo=~/data/yahoo \\
                          --data istella=~/data/istella
      fultr reproduce population --data aol=~/data/aol4foltr
      fultr reproduce my-experiment.toml --out out/mine
      fultr reproduce --status
      fultr reproduce figure-1 --repeats 10 --save results
      fultr reproduce --from results
      fultr reproduce --check results --sample 3
    """
    from fultr.study.reproduce import Plan
    from fultr.study.saved import saved_experiments
    from fultr.study.sizing import QUICK_DATA

    folder = out or Path("out/quick" if quick else "out/saved" if origin else "out/paper")
    reading = {"--fold": fold != 1, "--merge": merge, "--sentinel": sentinel}
    if status:
        others = {"--save": save, "--finished": finished, "--from": origin, "--check": check, "--list": listing}
        _refuse_beside("--status", {**others, **reading, "--lines": lines, "--data": sources})
        show_status(folder, as_json=as_json)
        return
    if check is not None and origin is not None:
        raise click.UsageError("Give --from or --check, not both.")
    if sample is not None and check is None:
        raise click.UsageError("--sample goes with --check.")
    idle = {"--list": listing, "--lines": lines, "--finished": finished, "--workers": workers, "--ray": ray}
    if origin is not None:
        _refuse_beside("--from", {**idle, **reading, "--data": sources})
    elif check is not None:
        _refuse_beside("--check", {**idle, "--save": save, "--out": out})
    elif finished:
        _refuse_beside("--finished", {"--list": listing, "--lines": lines, "--workers": workers, "--ray": ray})
    saved = origin or check
    if saved is not None:
        there = saved_experiments(saved)
        known = chosen_experiments(what or (() if figure else ("all",)), figure)
        named = bool(what or figure)
        if not any(experiment.name in there for experiment in known):
            asked = ", ".join(experiment.name for experiment in known) if named else "any known experiment"
            raise FultrError(f"{saved}: has no runs of {asked}")
        chosen = resized_experiments(
            [experiment for experiment in known if named or experiment.name in there],
            quick=quick, repeats=repeats, tuning_repeats=tuning_repeats, rounds=rounds, seed=None if check else seed,
        )  # fmt: skip
        unknown = [] if named else sorted(set(there) - {experiment.name for experiment in known})
        plan = Plan(chosen, folder, saved=saved, from_saved=True)
        given = [source_of(text, fold, merge, sentinel) for text in sources]
        if check is not None:
            check_saved(plan, given, sample or SAMPLE, seed, as_json=as_json)
        else:
            _judge_finished(plan, as_json=as_json, save=save, unknown=unknown)
        return
    if not what and figure is None:
        if not listing:
            raise click.UsageError("Name experiments, such as all, or a --figure; --list shows what there is.")
        what = ("all",)
    chosen = resized_experiments(
        chosen_experiments(what, figure),
        quick=quick, repeats=repeats, tuning_repeats=tuning_repeats, rounds=rounds, seed=seed,
    )  # fmt: skip
    given = [source_of(text, fold, merge, sentinel) for text in sources or ((QUICK_DATA,) if quick else ())]
    plan = Plan(chosen, folder, given, workers, ray, lines, save)
    for pattern in lines:
        if not any(replace(plan, lines=(pattern,)).lines_of(experiment) for experiment in chosen):
            raise FultrError(f"--lines: no line of {', '.join(e.name for e in chosen)} matches {pattern!r}")
    if listing:
        list_experiments(plan, as_json=as_json)
    elif finished:
        _judge_finished(plan, as_json=as_json, save=save)
    else:
        _do(plan, as_json=as_json, save=save)


def _refuse_beside(option: str, given: Mapping[str, object]) -> None:
    """What would make no difference beside an option is not taken silently."""
    for name, value in given.items():
        if value:
            raise click.UsageError(f"{name} makes no difference with {option}; leave one of them out.")


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


def _do(plan: Plan, *, as_json: bool, save: Path | None = None) -> None:
    """Do the experiments, write the report, print what was found."""
    from fultr.core.files import make_folder
    from fultr.study.figures import hues
    from fultr.study.reproduce import check_savable

    for experiment in plan.experiments:
        hues(experiment)  # an unknown colour: better now than when hours are spent
    with working("Loading the data"):
        for experiment in plan.experiments:
            for source in plan.sources_of(experiment):
                source.fingerprints()
            if save is not None:
                check_savable(experiment, plan, save)
    make_folder(plan.folder)
    if not as_json:
        announce(plan)
    with resumable(lambda: f"finished runs are kept in {plan.folder}, and the same command resumes"):
        outcomes, notes, written = _performed(plan, save)
    _print_all(plan, outcomes, notes, written, as_json=as_json)


def _judge_finished(plan: Plan, *, as_json: bool, save: Path | None, unknown: Sequence[str] = ()) -> None:
    """Write the report and print what was found, by the runs that are finished; some saved ones may be `unknown`."""
    from fultr.study.missing import left_out, missing_runs
    from fultr.study.report import write_report
    from fultr.study.reproduce import outcomes as finished_outcomes
    from fultr.study.reproduce import save as save_runs

    with working("Judging and drawing"):
        saved = {} if save is None else {one.name: save_runs(one, plan, save) for one in plan.experiments}
        outcomes = [outcome for experiment in plan.experiments for outcome in finished_outcomes(experiment, plan)]
        if not outcomes:
            place, new = plan.saved if plan.from_saved else plan.folder, sum(saved.values())
            kept = f"; {new:,} that rates are chosen by are new in {save}" if new else ""
            raise FultrError(f"{place}: no finished runs of these experiments with these settings{kept}")
        where = f"are from {plan.saved}" if plan.from_saved else "were in the store"
        notes = missing_runs(plan, outcomes)
        if plan.from_saved:
            notes += [*left_out(plan), *(f"Left out: {name}: give its TOML file, to judge it too" for name in unknown)]
        written = write_report(outcomes, plan.folder, took=f"Nothing was run: all runs {where}.", notes=notes)
    for name, new in saved.items():
        say(f"{name}: {new:,} runs are new in {save}")
    _print_all(plan, outcomes, notes, written, as_json=as_json)


def _print_all(plan: Plan, outcomes: list[Outcome], notes: list[str], written: list[Path], *, as_json: bool) -> None:
    from fultr.study.report import results

    if as_json:
        print_json({**results(outcomes, notes), "files": [str(path) for path in written]})
        return
    for experiment in plan.experiments:
        found = [outcome for outcome in outcomes if outcome.experiment.name == experiment.name]
        if found:
            print_outcomes(found)
    for line in notes:
        say(line)
    print(folded(tally([verdict for outcome in outcomes for verdict in outcome.verdicts()])))
    say(f"Report: {written[0]}  (figures, curves, tuning and results are beside it)")


def _performed(plan: Plan, save: Path | None) -> tuple[list[Outcome], list[str], list[Path]]:
    """The outcomes, what is missing, the report's files; it is written on the way too, for those who cannot wait."""
    from fultr.study.missing import missing_runs
    from fultr.study.report import write_report
    from fultr.study.reproduce import Progress, reproduce
    from fultr.study.reproduce import save as save_runs

    outcomes: list[Outcome] = []
    notes: list[str] = []
    written: list[Path] = []
    progress = Progress()
    next_report = time.monotonic()
    with work_bar() as show:

        def on_progress(now: Progress) -> None:
            nonlocal progress
            progress = now
            show(now)

        for i, (experiment, done) in enumerate(zip(plan.experiments, reproduce(plan, on_progress), strict=True), 1):
            outcomes += done
            if save is not None:
                save_runs(experiment, plan, save)
            begun = time.monotonic()
            if i == len(plan.experiments) or begun >= next_report:
                notes = missing_runs(replace(plan, experiments=plan.experiments[:i]), outcomes)
                notes += [f"Still to come: {later.name}" for later in plan.experiments[i:]]
                written = write_report(outcomes, plan.folder, took=took(progress, plan), notes=notes)
                next_report = begun + _REPORT_PAUSE * (time.monotonic() - begun)
    return outcomes, notes, written
