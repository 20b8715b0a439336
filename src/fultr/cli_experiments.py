"""The commands that run experiments: `fultr run` and `fultr reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fultr.cli_options import (
    DATA_HELP,
    gamma_sd_option,
    json_option,
    numbers,
    policy_options,
    reading_options,
    workers_option,
)


@click.command()
@click.option("--data", default="synthetic", show_default=True, help=DATA_HELP)
@reading_options
@click.option("--gamma", "gammas", default="0.5,1,2", show_default=True, callback=numbers(float),
              help="Bias severities, with commas between them.")  # fmt: skip
@click.option("--repeats", default=5, show_default=True, help="Repeats of every run.")
@click.option("--rounds", default=200, show_default=True, help="Rounds of federated training, T.")
@click.option("--clients", default=2000, show_default=True, help="Clients a round, |U|.")
@gamma_sd_option
@policy_options
@click.option("--seed", default=0, show_default=True, help="Users, clicks and logging policy follow from it.")
@click.option("--out", default="out", show_default=True, type=click.Path(path_type=Path), help="Folder for the report.")
@click.option("--overwrite", is_flag=True, help="Replace results that other settings left in the folder.")
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

    Makes or loads the data, trains a logging policy for each repeat, tunes learning rates on validation queries, trains
    every algorithm for every bias severity, and writes a table, a figure and a page that says what was found. Finished
    runs are kept in the folder: the same command again does only what is missing.

    \b
    Examples
      fultr run
      fultr run --gamma 0.5,1,1.5,2 --repeats 10 --out out/more
      fultr run --data ~/data/MQ2007 --out out/mq2007
    """
    from fultr.comparisons import comparison
    from fultr.experiment_commands import refuse_other_results, run_experiments
    from fultr.reproduction import Plan
    from fultr.runs import RunSettings
    from fultr.store import Source

    common = RunSettings(evaluate_every=5, **settings)
    experiment = comparison(common, gammas=gammas, repeats=repeats, data=data, seed=seed)
    source = Source(data, fold=fold, merge=merge, sentinel=sentinel or "auto")
    plan = Plan([experiment], out, [source], workers)
    if not overwrite:
        refuse_other_results(plan)
    run_experiments(plan, as_json=as_json)


@click.command()
@click.argument("what", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--figure", type=click.Choice(["1", "2"]), help="The experiments of one of the paper's figures.")
@click.option("--data", "sources", multiple=True, metavar="NAME=FOLDER",
              help="A data set in LETOR format instead of the generated ones; repeat it for several.")  # fmt: skip
@reading_options
@click.option("--quick", is_flag=True, help="3 repeats of 100 rounds, on a small generated data set: some minutes.")
@click.option("--repeats", type=click.IntRange(min=1), help="Repeats of every run.  [default: the experiment's]")
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of federated training.  [default: the experiment's]")
@click.option("--seed", type=click.IntRange(min=0), help="Everything follows from it.  [default: the experiment's]")
@click.option("--out", type=click.Path(path_type=Path),
              help="Folder for finished runs and the report.  [default: out/paper; out/quick if --quick]")  # fmt: skip
@workers_option
@click.option("--ray", metavar="ADDRESS", help="Do the work on a Ray cluster, such as 10.0.0.1:6379.")
@click.option("--list", "listing", is_flag=True, help="Show what there is, and about how long each takes.")
@click.option("--status", is_flag=True, help="Show how far the work in the folder has come; for another terminal.")
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
    """Rerun the paper: its figures, what its text says beside them, and what lies beyond.

    EXPERIMENT is all, a name of the list, or a TOML file of your own (docs/experiments.md). Every line is tuned on
    validation queries and repeated; the report answers each claim of the paper from the numbers. Finished runs are
    kept in the folder: stopped in any way, the same command goes on where it was.

    \b
    Examples
      fultr reproduce --list
      fultr reproduce all --quick
      fultr reproduce --figure 1
      fultr reproduce all --data yahoo=~/data/yahoo --data istella=~/data/istella
      fultr reproduce my-experiment.toml --out out/mine
      fultr reproduce --status
    """
    from fultr.experiment_commands import (
        QUICK_DATA,
        chosen_experiments,
        list_experiments,
        parse_source,
        resized,
        run_experiments,
        show_status,
    )
    from fultr.reproduction import Plan

    folder = out or Path("out/quick" if quick else "out/paper")
    if status:
        show_status(folder, as_json=as_json)
        return
    if not what and figure is None:
        if not listing:
            raise click.UsageError("Name experiments, such as all, or a --figure; --list shows what there is.")
        what = ("all",)
    chosen = resized(chosen_experiments(what, figure), quick=quick, repeats=repeats, rounds=rounds, seed=seed)
    given = [parse_source(text, fold, merge, sentinel) for text in sources or ((QUICK_DATA,) if quick else ())]
    plan = Plan(chosen, folder, given, workers, ray)
    if listing:
        list_experiments(plan, as_json=as_json)
    else:
        run_experiments(plan, as_json=as_json)
