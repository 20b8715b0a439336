"""The command `fultr`: its groups of commands, and what becomes of errors.

Each command is a module of its own, which is imported when the command is called. What takes long to import (NumPy,
numba, SciPy, matplotlib, pyarrow) is imported inside the commands, so that help and completion answer at once.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import ClassVar

import click

from fultr.cli.lazy import Entry, LazyGroup
from fultr.cli.stopping import last_words, stoppable
from fultr.core.errors import FultrError

_BAD_PATHS = (errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EROFS, errno.ELOOP)


class _Commands(LazyGroup):
    """All commands."""

    sections: ClassVar = {
        "Search": [
            Entry("search", "fultr.cli.search", "Search your own files, on your own machine."),
        ],
        "Study in simulation": [
            Entry("run", "fultr.cli.experiments", "Compare FedIPS, FedAvg and λLinear across bias severities."),
            Entry("reproduce", "fultr.cli.experiments", "Rerun the paper: its figures, its claims, and more."),
            Entry("simulate", "fultr.cli.simulate", "Train one ranker from the clicks of simulated users."),
            Entry("privacy", "fultr.cli.privacy", "Plan differential privacy: what it takes, and what it costs."),
        ],
        "Click logs and data sets": [
            Entry("estimate", "fultr.cli.estimate", "Estimate the position bias of a click log you have."),
            Entry("train", "fultr.cli.train", "Train a ranker on a click log you have."),
            Entry("compare", "fultr.cli.compare", "Ask a click log which of two rankers would have got more clicks."),
            Entry("data", "fultr.cli.data", "Inspect data sets, or generate them, or a click log."),
        ],
        "Rankers": [
            Entry("evaluate", "fultr.cli.evaluate", "Measure a ranker on judged data: NDCG, MRR, precision."),
            Entry("rank", "fultr.cli.evaluate", "Score or rank the documents of a LETOR file."),
            Entry("export", "fultr.cli.export", "Write a ranker in a form that an application can use."),
            Entry("versions", "fultr.cli.export", "List the versions of a ranker."),
        ],
        "Real devices": [
            Entry("device", "fultr.cli.device", "Inspect, export or delete a device's log, or simulate some."),
            Entry("node", "fultr.cli.node", "Take part in a federation, on a device."),
            Entry("deploy", "fultr.cli.deploy", "Run a federation of real devices with Flower."),
        ],
        "fultr itself": [
            Entry("bench", "fultr.cli.bench.command", "Measure speed, as ratios to the machine's limits."),
            Entry("completion", "fultr.cli.completion", "Print the completion script of a shell."),
        ],
    }

    def invoke(self, ctx: click.Context) -> object:
        """Call the command; click would print an empty line for an interruption, whether or not anyone sees it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            raise click.Abort from stopped


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="fultr", message="%(prog)s %(version)s")
def cli() -> None:
    """Federated unbiased learning to rank.

    Trains rankers from biased clicks that never leave the users' devices: FedIPS and its baselines, to study in
    simulation and to run on real devices.

    \b
    Start with
      fultr run                               the paper's comparison; 1-2 minutes
      fultr reproduce all --quick             all its experiments, scaled down
      fultr simulate --gamma 2 --out out/sim  one training run, with its ranker
      fultr evaluate out/sim/ranker.json synthetic
      fultr data clicks                       a sample click log, clicks.tsv
      fultr estimate CLICKLOG                 how biased a click log is
      fultr train CLICKLOG                    a ranker from it, without the bias
      fultr compare CLICKLOG RANKER RANKER    which would have got more clicks
      fultr data inspect FOLDER               what a data set holds
      fultr deploy demo                       a federation of 5 devices, on Flower
      fultr search index ~/Documents          search your own files
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command, then exit; bad input or usage ends with one line on stderr and code 2, signal n with 128 + n."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (>&-): what is said goes nowhere
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    show = warnings.showwarning
    warnings.showwarning = lambda message, *_: click.echo(f"fultr: {message}", err=True)
    try:
        with stoppable():
            code = _exit_code(sys.argv[1:] if arguments is None else arguments)
    finally:
        warnings.showwarning = show
    sys.exit(code)


def _exit_code(arguments: list[str]) -> int:
    """Run the command; whatever goes wrong becomes one line and a number."""
    try:
        status = cli.main(arguments, prog_name="fultr", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "fultr"
        message = " ".join(error.format_message().split())  # click lists choices on lines of their own
        click.echo(f"{command}: {message} (see {command} --help)", err=True)
        return 2
    except FultrError as error:
        click.echo(f"fultr: {error}", err=True)
        return 2
    except (KeyboardInterrupt, click.Abort) as error:
        text, code = last_words(error.__cause__ if isinstance(error, click.Abort) else error, arguments)
        new_line = "\n" if sys.stderr.isatty() else ""  # after the ^C that the terminal shows
        click.echo(f"{new_line}fultr: {text}", err=True)
        return code
    except MemoryError as error:
        click.echo(f"fultr: not enough memory: {error}", err=True)
        return 1
    except OSError as error:  # the reader of a pipe went away, the disk is full, or a path cannot be one
        if not isinstance(error, BrokenPipeError):
            named = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            click.echo(f"fultr: {named}", err=True)
        if error.errno in _BAD_PATHS:
            return 2
        if sys.stdout is sys.__stdout__:  # what is left to write goes nowhere, rather than failing once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
