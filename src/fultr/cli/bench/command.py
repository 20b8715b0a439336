"""The command `fultr bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fultr.cli.console import print_json, print_table
from fultr.cli.options import PATH, json_option, numbers

if TYPE_CHECKING:
    from fultr.cli.bench.speed import Figure

_USUAL = ("round", "beside", "estimate", "refresh", "evaluate", "read", "device")


@click.command()
@click.argument(
    "what",
    nargs=-1,
    metavar="[BENCHMARK]...",
    type=click.Choice([*_USUAL, "models", "search", "privacy", "flower", "deployment", "scale", "practitioner"]),
)
@click.option("--data", multiple=True, metavar="NAME[=FOLDER]",
              help="practitioner: a data set; several times for several.  [default: synthetic]")  # fmt: skip
@click.option("--clicks", default="10000,100000", show_default=True, callback=numbers(int),
              help="practitioner: sizes of click logs.")  # fmt: skip
@click.option("--gamma", "gammas", default="1,2", show_default=True, callback=numbers(float),
              help="practitioner: bias severities of the users.")  # fmt: skip
@click.option("--policies", default="1,3", show_default=True, callback=numbers(int),
              help="practitioner: how many logging policies made a log.")  # fmt: skip
@click.option(
    "--repeats", default=5, show_default=True, type=click.IntRange(min=1), help="practitioner: logs of each kind."
)
@click.option("--tuned", is_flag=True, help="practitioner: also tune the other software.")
@click.option("--lines", type=PATH, default=Path("practitioner.jsonl"), show_default=True,
              help="practitioner: measurements so far; the same command resumes.")  # fmt: skip
@click.option("--report", type=PATH, metavar="FOLDER",
              help="practitioner: also write a table and a figure of all of these measurements.")  # fmt: skip
@json_option
def bench(
    what: tuple[str, ...],
    data: tuple[str, ...],
    clicks: tuple[int, ...],
    gammas: tuple[float, ...],
    policies: tuple[int, ...],
    repeats: int,
    tuned: bool,
    lines: Path,
    report: Path | None,
    as_json: bool,
) -> None:
    """Measure speed, as ratios to the machine's limits.

    Each benchmark is measured against a limit of the machine or other software, in the same run. Without an argument,
    the first seven are run; they take about 3 GB of memory and 1 GB of disk.

    \b
      round       a round of federated training, against reading the same
                  features from memory
      beside      rounds of several runs whose users click the same, against one
                  by one
      estimate    the estimation of propensities, against training
      refresh     a ranker that becomes the logging policy, and exploration,
                  against a round
      evaluate    NDCG of 32 rankers, against one
      read        reading a LETOR file, against scikit-learn
      device      the log of a device, against appending to a file
      models      a round with each model of rankers, against linear ones; neural
                  rankers against NumPy, and JAX if it is installed
      search      an index of 100,000 generated files, and answers from it;
                  needs pip install 'fultr[app]'
      privacy     secure sums of 10, 100 and 1,000 devices: milliseconds of a
                  device and seconds of the server; rounds of 5 and 10 nodes
                  with them and without; takes 5 minutes, and needs
                  pip install 'fultr[flower]'
      flower      a round, against the same in Flower's simulation engine;
                  needs pip install 'fultr[flower,ray]'
      deployment  rounds of 3 to 30 nodes over TLS on this machine, against
                  Flower's own nodes and one process; takes 20 minutes
      scale       rounds of 100, 300 and 1,000 nodes with one SuperLink, all on
                  this machine; takes 20 minutes
      practitioner
                  UnbiasedRanker against LightGBM and XGBoost on the same click
                  logs: NDCG@5 and time to fit; takes hours; needs
                  pip install 'fultr[learn]' lightgbm xgboost
    """
    if "practitioner" in what:
        from fultr.cli.bench.practitioner import practitioner

        practitioner(data or ("synthetic",), clicks, gammas, policies, repeats, tuned, lines, report, as_json)
        what = tuple(name for name in what if name != "practitioner")
        if not what:
            return
    figures = [figure for name in what or _USUAL for figure in _measured(name)]
    if as_json:
        print_json({"figures": [figure.__dict__ for figure in figures]})
        return
    print_table([["measured", "value", "wanted"], *(figure.row() for figure in figures)])


def _measured(name: str) -> list[Figure]:
    """The figures of one benchmark; those that need Flower are imported only if they are asked for."""
    from fultr.cli.bench import speed

    match name:
        case "device":
            from fultr.cli.bench.device import device_log

            return [speed.Figure(*row) for row in device_log()]
        case "models":
            from fultr.cli.bench.models import models

            return [speed.Figure(*row) for row in models()]
        case "search":
            from fultr.cli.bench.search import search

            return [speed.Figure(*row) for row in search()]
        case "privacy":
            from fultr.cli.bench.privacy import secure_sums
            from fultr.cli.bench.summed_rounds import flower_rounds

            return [speed.Figure(*row) for row in (*secure_sums(), *flower_rounds())]
        case "flower":
            from fultr.cli.bench.flower import flower_round

            return [speed.Figure(*row) for row in flower_round()]
        case "deployment":
            from fultr.cli.bench.deployment import deployment_rounds

            return [speed.Figure(*row) for row in deployment_rounds()]
        case "scale":
            from fultr.cli.bench.scale import scale

            return [speed.Figure(*row) for row in scale()]
        case _:
            return speed.BENCHMARKS[name]()
