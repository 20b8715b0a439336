"""The command `fultr`.

Modules that only some commands need, such as those that draw, are imported inside the commands.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fultr.clicks import ClickModel
from fultr.errors import FultrError
from fultr.experiments import Comparison
from fultr.policy import PolicySettings

_Command = TypeVar("_Command", bound=Callable[..., Any])

DATA_HELP = "synthetic, synthetic-yahoo, synthetic-istella, or a folder or file in LETOR format."


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
        click.echo(f"{command}: {error.format_message()} (see {command} --help)", err=True)
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


def _json_option(command: _Command) -> _Command:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")(
        command
    )


def _threads_option(command: _Command) -> _Command:
    return click.option(
        "--threads",
        type=click.IntRange(min=1),
        help="Threads to use.  [default: all cores]  Results do not depend on it.",
    )(command)


def _policy_options(command: _Command) -> _Command:
    """How strong the logging policy is."""
    usual = PolicySettings()
    for name, default, text in (
        ("--policy-rate", usual.learning_rate, "Its learning rate."),
        ("--policy-epochs", usual.epochs, "Passes of its training over them."),
        ("--policy-fraction", usual.fraction, "Share of the training queries that the logging policy sees."),
    ):
        command = click.option(name, default=default, show_default=True, help=text)(command)
    return command


def _gamma_sd_option(command: _Command) -> _Command:
    return click.option(
        "--gamma-sd", default=ClickModel.gamma_sd, show_default="sqrt(0.1)", help="Spread of users' bias severity."
    )(command)


def _reading_options(command: _Command) -> _Command:
    """How LETOR files are read."""
    for option in (
        click.option("--sentinel", multiple=True, help="A value that means `no value`, such as 1.79769313486232e+308."),
        click.option("--merge", is_flag=True, help="Allow that a query comes back later in a file."),
        click.option("--fold", default=1, show_default=True, help="Which fold, where a data set has folds."),
    ):
        command = option(command)
    return command


def _numbers(kind: type) -> Callable[[click.Context, click.Parameter, str], tuple[Any, ...]]:
    def convert(context: click.Context, parameter: click.Parameter, text: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise click.BadParameter(f"expected numbers with commas between them, found {text!r}") from None

    return convert


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="fultr", message="%(prog)s %(version)s")
def cli() -> None:
    """Federated unbiased learning to rank.

    Rankers trained from biased clicks that never leave the users' devices: FedIPS, its baselines, and what is needed
    to study and to use them.

    \b
    Begin with
      fultr run                               the paper's comparison on generated data, a minute or two
      fultr simulate --gamma 2 --out out/sim  one training run, with its ranker
      fultr evaluate out/sim/ranker.json synthetic
      fultr data inspect FOLDER               what a data set holds
    """


@cli.command()
@click.option("--data", default="synthetic", show_default=True, help=DATA_HELP)
@_reading_options
@click.option("--gamma", "gammas", default="0.5,1,2", show_default=True, callback=_numbers(float),
              help="Bias severities, with commas between them.")  # fmt: skip
@click.option("--repeats", default=5, show_default=True, help="Repeats of every run.")
@click.option("--rounds", default=200, show_default=True, help="Rounds of federated training, T.")
@click.option("--clients", default=2000, show_default=True, help="Clients a round, |U|.")
@_gamma_sd_option
@_policy_options
@click.option("--seed", default=0, show_default=True, help="Users, clicks and logging policy follow from it.")
@click.option("--out", default="out", show_default=True, type=click.Path(path_type=Path), help="Folder for the report.")
@click.option("--overwrite", is_flag=True, help="Replace results that other settings left in the folder.")
@_threads_option
@_json_option
def run(
    data: str,
    fold: int,
    merge: bool,
    sentinel: tuple[str, ...],
    gammas: tuple[float, ...],
    repeats: int,
    rounds: int,
    clients: int,
    gamma_sd: float,
    policy_fraction: float,
    policy_epochs: int,
    policy_rate: float,
    seed: int,
    out: Path,
    overwrite: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Compare FedIPS, FedAvg and λLinear across bias severities.

    Makes or loads the data, trains a logging policy for each repeat, tunes learning rates on validation queries, trains
    every algorithm for every bias severity, and writes a table, a figure and a page that says what was found.

    \b
    Examples
      fultr run
      fultr run --gamma 0.5,1,1.5,2 --repeats 10 --out out/more
      fultr run --data ~/data/MQ2007 --out out/mq2007
    """
    from fultr.commands import run_comparison

    run_comparison(
        data,
        dict(fold=fold, merge=merge, sentinel=sentinel or "auto"),
        Comparison(
            gammas=gammas,
            repeats=repeats,
            rounds=rounds,
            clients=clients,
            gamma_sd=gamma_sd,
            policy=PolicySettings(policy_fraction, policy_epochs, learning_rate=policy_rate),
            seed=seed,
        ),
        out=out,
        overwrite=overwrite,
        threads=threads,
        as_json=as_json,
    )


@cli.command()
@click.option("--data", default="synthetic", show_default=True, help=DATA_HELP)
@_reading_options
@click.option("--propensity", default="known", show_default=True,
              help="What clicks are divided by: known, none (FedAvg), or one number a rank: 1,0.5,...")  # fmt: skip
@click.option("--gamma", default=1.0, show_default=True, help="Bias severity: examination is (1 / rank) ** gamma.")
@_gamma_sd_option
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
@_policy_options
@click.option("--evaluate-every", default=10, show_default=True, help="Rounds between two points of the curve.")
@click.option("--seed", default=0, show_default=True, help="Users, clicks and logging policy follow from it.")
@click.option("--out", type=click.Path(path_type=Path),
              help="Folder for the ranker, curve and settings; the same command goes on where it stopped.")  # fmt: skip
@_threads_option
@_json_option
def simulate(**options: Any) -> None:
    """Train one ranker from the clicks of simulated users.

    \b
    Examples
      fultr simulate                                     FedIPS with known propensities
      fultr simulate --propensity none                   FedAvg: no correction
      fultr simulate --server adam --server-rate 0.1 --gamma 2
      fultr simulate --data ~/data/MQ2007 --users 5000 --out out/mine
    """
    from fultr.commands import simulate_once

    simulate_once(**options)


@cli.command()
@click.argument("ranker", type=click.Path(path_type=Path))
@click.argument("data")
@click.option("--split", default="test", show_default=True, type=click.Choice(["train", "valid", "test"]),
              help="Which queries of a data set; a single file is taken as a whole.")  # fmt: skip
@click.option("--k", "cutoffs", default="1,5,10", show_default=True, callback=_numbers(int), help="Cutoffs.")
@click.option("--relevant-grade", type=int, help="Lowest relevant grade.  [default: the one it was trained with]")
@_reading_options
@_json_option
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
    """Measure a RANKER (a file that `fultr simulate --out` wrote) on DATA: NDCG, MRR, precision, relevant position.

    Of a data set, queries whose documents all have one grade are left out; of a single file, every query counts that
    has a relevant document.

    \b
    Examples
      fultr evaluate out/sim/ranker.json synthetic
      fultr evaluate out/sim/ranker.json my-judgements.txt --k 3,10
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

    In TREC format a document is named by the `docid = NAME` of its line's comment, else by its query and its place in
    it, such as 17.3.

    \b
    Examples
      fultr rank out/sim/ranker.json test.txt > scores.txt
      fultr rank out/sim/ranker.json test.txt.gz --format trec -o run.trec
    """
    from fultr.commands import rank_file

    rank_file(ranker, file, layout, tag, sentinel, output)


@cli.group()
def data() -> None:
    """Look at data sets, or make them."""


@data.command("inspect")
@click.argument("path", type=click.Path(path_type=Path))
@_reading_options
@_threads_option
@_json_option
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
@_threads_option
def make_data(name: str, out: Path | None, seed: int, compress: str | None, threads: int | None) -> None:
    """Write a generated data set as LETOR files: train.txt, vali.txt, test.txt.

    They read back to the same numbers, to the last bit. synthetic takes 0.04 GB,
    synthetic-yahoo about 2.4 GB and synthetic-istella 4.7 GB.
    """
    from fultr.commands import make_files

    make_files(name, out or Path(name), seed, compress, threads)


@cli.command()
@click.argument("what", nargs=-1, type=click.Choice(["round", "evaluate", "read"]))
@_json_option
def bench(what: tuple[str, ...], as_json: bool) -> None:
    """Measure speed, as ratios to the machine's limits or to other software, in one run.

    round: a round of federated training against reading the same features from memory. evaluate: 32 rankers against
    one. read: a LETOR file against scikit-learn. All three without an argument; needs about 3 GB of memory and 1 GB of
    disk.
    """
    from fultr.bench import run_benchmarks

    run_benchmarks(what or ("round", "evaluate", "read"), as_json)


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
