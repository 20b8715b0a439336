"""The command `fultr`.

Modules that only some commands need, such as those that draw, are imported inside the commands.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from fultr.cli_deploy import deploy
from fultr.cli_device import device
from fultr.cli_estimate import estimate
from fultr.cli_experiments import reproduce, run
from fultr.cli_export import export, versions
from fultr.cli_options import (
    DATA_HELP,
    gamma_sd_option,
    json_option,
    numbers,
    policy_options,
    reading_options,
    threads_option,
)
from fultr.errors import FultrError


def main(arguments: list[str] | None = None) -> None:
    """Run the command; bad input or usage ends with one line on stderr and exit code 2."""
    warnings.showwarning = lambda message, *_: click.echo(f"fultr: {message}", err=True)
    try:
        status = cli.main(arguments, prog_name="fultr", standalone_mode=False)
        sys.stdout.flush()
        code = status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 0
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "fultr"
        message = " ".join(error.format_message().split())  # click lists choices on lines of their own
        click.echo(f"{command}: {message} (see {command} --help)", err=True)
        code = 2
    except FultrError as error:
        click.echo(f"fultr: {error}", err=True)
        code = 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("fultr: interrupted", err=True)
        code = 130
    except MemoryError as error:
        click.echo(f"fultr: not enough memory: {error}", err=True)
        code = 1
    except OSError as error:  # the reader of a pipe went away, or the disk is full
        if not isinstance(error, BrokenPipeError):
            click.echo(f"fultr: {error}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    sys.exit(code)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="fultr", message="%(prog)s %(version)s")
def cli() -> None:
    """Federated unbiased learning to rank.

    Rankers trained from biased clicks that never leave the users' devices: FedIPS, its baselines, and what is needed
    to study and to use them.

    \b
    Begin with
      fultr run                               the paper's comparison on generated data, a minute or two
      fultr reproduce all --quick             every experiment of the paper in small, some minutes
      fultr simulate --gamma 2 --out out/sim  one training run, with its ranker
      fultr evaluate out/sim/ranker.json synthetic
      fultr estimate CLICKLOG                 how biased a click log is, and whether that can be told
      fultr data inspect FOLDER               what a data set holds
      fultr deploy init FOLDER                a federation of real devices, with Flower
    """


cli.add_command(run)
cli.add_command(reproduce)
cli.add_command(estimate)
cli.add_command(device)
cli.add_command(deploy)
cli.add_command(export)
cli.add_command(versions)


@cli.command()
@click.option("--data", default="synthetic", show_default=True, help=DATA_HELP)
@reading_options
@click.option("--propensity", default="known", show_default=True,
              help="What clicks are divided by: known, none (FedAvg), one number a rank (1,0.5,...), or estimated from "
              "the clicks: personal, pooled, shrunk, power-law, harvested.")  # fmt: skip
@click.option("--cross-fit", is_flag=True, help="Estimate on one half of a client's log, reweight the other.")
@click.option("--policies", default=1, show_default=True, help="Versions of the logging policy, in use at random.")
@click.option("--gamma", default=1.0, show_default=True, help="Bias severity: examination is (1 / rank) ** gamma.")
@gamma_sd_option
@click.option("--relevant-grade", type=int, help="Lowest relevant grade.  [default: 3 of 0..4, 1 of 0..2]")
@click.option("--clients", default=2000, show_default=True, help="Clients a round, |U|.")
@click.option("--rounds", default=200, show_default=True, help="Rounds, T.")
@click.option("--queries", default=5, show_default=True, help="Queries a client and round.")
@click.option("--clicks", default=10, show_default=True, help="Clicks a client and round, m.")
@click.option("--displayed", default=5, show_default=True, help="Documents displayed a query, K.")
@click.option("--client-rate", default=0.01, show_default=True, help="Learning rate of clients, eta_l.")
@click.option("--server-rate", default=1.0, show_default=True, help="Learning rate of the server, eta_g.")
@click.option("--server", default="sgd", show_default=True,
              type=click.Choice(["sgd", "momentum", "adagrad", "adam", "yogi"]), help="Server optimiser.")  # fmt: skip
@click.option("--loss", default="hinge", show_default=True, type=click.Choice(["hinge", "logistic"]),
              help="Pairwise loss.")  # fmt: skip
@click.option("--metric", default="rank", show_default=True, type=click.Choice(["rank", "dcg"]),
              help="Additive metric that the loss bounds.")  # fmt: skip
@click.option("--pairs", default="displayed", show_default=True, type=click.Choice(["displayed", "retrieved"]),
              help="Documents that a clicked one is compared with.")  # fmt: skip
@click.option("--initial", default="zero", show_default=True, type=click.Choice(["zero", "policy", "random"]),
              help="Weights that training starts from, w_0.")  # fmt: skip
@click.option("--clip", type=float, help="Largest weight 1 / propensity of a click.  [default: no limit]")
@click.option("--epochs", default=1, show_default=True, help="Passes of a client over its log.")
@click.option("--users", type=int, help="A fixed population of so many users.  [default: new users every round]")
@click.option("--concentration", type=float, help="With --users: how alike users' queries are.  [default: 0.1]")
@click.option("--poisson", is_flag=True, help="With --users: each takes part independently, not a fixed number.")
@policy_options
@click.option("--evaluate-every", default=10, show_default=True, help="Rounds between two points of the curve.")
@click.option("--seed", default=0, show_default=True, help="Users, clicks and logging policy follow from it.")
@click.option("--out", type=click.Path(path_type=Path),
              help="Folder for the ranker, curve and settings; the same command goes on where it stopped.")  # fmt: skip
@threads_option
@json_option
def simulate(
    data: str,
    fold: int,
    merge: bool,
    sentinel: tuple[str, ...],
    propensity: str,
    users: int | None,
    concentration: float | None,
    poisson: bool,
    seed: int,
    out: Path | None,
    threads: int | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Train one ranker from the clicks of simulated users.

    \b
    Examples
      fultr simulate                                     FedIPS with known propensities
      fultr simulate --propensity none                   FedAvg: no correction
      fultr simulate --propensity shrunk                 propensities estimated from the clicks
      fultr simulate --propensity harvested --policies 2
      fultr simulate --server adam --server-rate 0.1 --gamma 2
      fultr simulate --data ~/data/MQ2007 --users 5000 --out out/mine
    """
    from fultr.commands import parse_propensity, simulate_once
    from fultr.runs import RunSettings

    if users is None and (poisson or concentration is not None):
        raise FultrError("--poisson and --concentration are for a fixed population: give --users too")
    if concentration is not None:
        settings["concentration"] = concentration
    if poisson:
        settings["sampling"] = "poisson"
    simulate_once(
        RunSettings(propensity=parse_propensity(propensity), users=users, **settings),
        data=data,
        reading=dict(fold=fold, merge=merge, sentinel=sentinel or "auto"),
        seed=seed,
        out=out,
        threads=threads,
        as_json=as_json,
    )


@cli.command()
@click.argument("ranker", type=click.Path(path_type=Path))
@click.argument("data")
@click.option("--split", default="test", show_default=True, type=click.Choice(["train", "valid", "test"]),
              help="Which queries of a data set; a single file is taken as a whole.")  # fmt: skip
@click.option("--k", "cutoffs", default="1,5,10", show_default=True, callback=numbers(int), help="Cutoffs.")
@click.option("--relevant-grade", type=int, help="Lowest relevant grade.  [default: the one it was trained with]")
@reading_options
@json_option
def evaluate(
    ranker: Path,
    data: str,
    split: str,
    cutoffs: tuple[int, ...],
    relevant_grade: int | None,
    fold: int,
    merge: bool,
    sentinel: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure a RANKER on DATA: NDCG, MRR, precision, relevant position.

    RANKER is a file that `fultr simulate --out` wrote, a version's file, or FOLDER@NAME: a version in a folder of
    versions, by its name, its number or as latest.

    Of a data set, queries whose documents all have one grade are left out; of a single file, every query counts that
    has a relevant document.

    \b
    Examples
      fultr evaluate out/sim/ranker.json synthetic
      fultr evaluate out/sim/ranker.json my-judgements.txt --k 3,10
      fultr evaluate versions@latest my-judgements.txt
    """
    from fultr.commands import evaluate_ranker

    reading = dict(fold=fold, merge=merge, sentinel=sentinel or "auto")
    evaluate_ranker(ranker, data, split, cutoffs, relevant_grade, reading, as_json)


@cli.command()
@click.argument("ranker", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "layout", default="scores", show_default=True, type=click.Choice(["scores", "trec"]),
              help="scores: one a document, in the file's order. trec: query Q0 document rank score tag.")  # fmt: skip
@click.option("--tag", default="fultr", show_default=True, help="Name of the run, last column of the TREC format.")
@click.option("--sentinel", multiple=True, help="A value that means `no value`, such as 1.79769313486232e+308.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write.  [default: stdout]")
def rank(ranker: Path, file: Path, layout: str, tag: str, sentinel: tuple[str, ...], output: Path | None) -> None:
    """Score or rank the documents of a LETOR FILE with a RANKER.

    RANKER is a file that `fultr simulate --out` wrote, a version's file, or FOLDER@NAME: a version in a folder of
    versions, by its name, its number or as latest.

    In TREC format a document is named by the `docid = NAME` of its line's comment, else by its query and its place in
    it, such as 17.3.

    \b
    Examples
      fultr rank out/sim/ranker.json test.txt > scores.txt
      fultr rank out/sim/ranker.json test.txt.gz --format trec -o run.trec
      fultr rank versions@v0003 test.txt
    """
    from fultr.commands import rank_file

    rank_file(ranker, file, layout, tag, sentinel, output)


@cli.group()
def data() -> None:
    """Look at data sets, or make them."""


@data.command("inspect")
@click.argument("path", type=click.Path(path_type=Path))
@reading_options
@threads_option
@json_option
def inspect_data(
    path: Path, fold: int, merge: bool, sentinel: tuple[str, ...], threads: int | None, as_json: bool
) -> None:
    """Count what a data set holds, and compare with the published figures.

    PATH is a folder with Yahoo LTRC set 1, Istella-S, MSLR-WEB, MQ2007/8 or any train, vali and test files; or one
    LETOR file. Every line is checked.
    """
    from fultr.commands import inspect_path

    inspect_path(path, fold, merge, sentinel, threads, as_json)


@data.command("make")
@click.argument("name", type=click.Choice(["synthetic", "synthetic-yahoo", "synthetic-istella"]))
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write to.  [default: NAME]")
@click.option("--seed", default=0, show_default=True, help="The data follow from it.")
@click.option("--compress", type=click.Choice(["gz", "xz", "bz2", "zst"]), help="Compress the files.")
@threads_option
def make_data(name: str, out: Path | None, seed: int, compress: str | None, threads: int | None) -> None:
    """Write a generated data set as LETOR files: train.txt, vali.txt, test.txt.

    They read back to the same numbers, to the last bit. synthetic takes 0.04 GB,
    synthetic-yahoo about 2.4 GB and synthetic-istella 4.7 GB.
    """
    from fultr.commands import make_files

    make_files(name, out or Path(name), seed, compress, threads)


@cli.command()
@click.argument(
    "what",
    nargs=-1,
    type=click.Choice(["round", "estimate", "evaluate", "read", "device", "flower", "deployment"]),
)
@json_option
def bench(what: tuple[str, ...], as_json: bool) -> None:
    """Measure speed, as ratios to the machine's limits or to other software, in one run.

    round: a round of federated training against reading the same features from memory. evaluate: 32 rankers against
    one. estimate: estimation of propensities against training. read: a LETOR file against scikit-learn. device: the
    on-device log against appending to a file. All these without an argument; they need about 3 GB of memory and 1 GB of
    disk. flower: a round against the same in Flower's simulation engine (pip install 'fultr[flower]'). deployment:
    rounds of 3, 5 and 10 nodes over TLS on this machine against the same in one process; takes 5 minutes.
    """
    from fultr.bench import run_benchmarks

    run_benchmarks(what or ("round", "estimate", "evaluate", "read", "device"), as_json)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes `fultr` commands in a SHELL.

    \b
    Examples
      eval "$(fultr completion bash)"        in ~/.bashrc
      eval "$(fultr completion zsh)"         in ~/.zshrc
      fultr completion fish | source         in config.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "fultr", "_FULTR_COMPLETE").source())
