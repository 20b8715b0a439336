"""The commands `fultr data ...`: data sets and click logs, inspected and generated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fultr.cli.console import print_json, print_table, progress_bar, say, working
from fultr.cli.lazy import OrderedGroup
from fultr.cli.options import (
    DATA_HELP,
    PATH,
    SEED_HELP,
    given_settings,
    json_option,
    reading_options,
    settings_options,
    threads_option,
)
from fultr.cli.writing import check_written
from fultr.clicks.settings import ClickModel
from fultr.core.settings import leaves
from fultr.study.settings import PolicySettings


@click.group(cls=OrderedGroup)
def data() -> None:
    """Inspect data sets, or generate them, or a click log."""


@data.command()
@click.argument("path", type=PATH)
@reading_options
@threads_option
@json_option
def inspect(path: Path, fold: int, merge: bool, sentinel: tuple[str, ...], threads: int | None, as_json: bool) -> None:
    """Count what a data set holds.

    The numbers are compared with those published, where there are any. PATH is a folder with Yahoo LTRC set 1,
    Istella-S, MSLR-WEB, MQ2007/8, AOL4FOLTR or any train, vali and test files; or one LETOR file. Every line is
    checked.

    \b
    Example
      fultr data inspect ~/data/MSLR-WEB10K
    """
    from fultr.data.inspection import inspect

    found = inspect(path, fold=fold, merge=merge, sentinel=sentinel or "auto", threads=threads)
    if as_json:
        print_json(found.as_dict())
        return
    print_table(found.counts_table(), title=str(path))
    if found.comparisons:
        print_table(found.comparison_table(), title=f"Compared with {found.compared_with}")
    print(found.verdict())


@data.command()
@click.argument("name", type=click.Choice(["synthetic", "synthetic-yahoo", "synthetic-istella"]))
@click.option("--out", type=PATH, help="Folder to write to.  [default: the name of the data set]")
@click.option("--seed", default=0, show_default=True, help="Seed of the data.")
@click.option("--compress", type=click.Choice(["gz", "xz", "bz2", "zst"]), help="Compress the files.")
@threads_option
def make(name: str, out: Path | None, seed: int, compress: str | None, threads: int | None) -> None:
    """Write a generated data set as LETOR files.

    The files are train.txt, vali.txt and test.txt. Read back, they give the same numbers to the last bit. synthetic
    takes 0.04 GB, synthetic-yahoo about 2.4 GB and synthetic-istella 4.7 GB.
    """
    from fultr.core.files import make_folder
    from fultr.data.letor.writer import write_letor
    from fultr.data.synthetic import generate

    folder, suffix = out or Path(name), f".{compress}" if compress else ""
    with working("Generating"):
        splits = generate(name, seed=seed, threads=threads)
    make_folder(folder)
    with progress_bar(3, "Writing") as done:
        for part, file in zip(splits, ("train", "vali", "test"), strict=True):
            write_letor(part, folder / f"{file}.txt{suffix}", threads=threads)
            done()
    say(f"Wrote {folder}/train.txt{suffix}, vali.txt{suffix} and test.txt{suffix}: {splits.train.describe()}")


@data.command()
@click.argument("out", type=PATH, default="clicks.tsv")
@click.option("--data", "source", default="synthetic", show_default=True, help=DATA_HELP)
@reading_options
@click.option("--clicks", default=10_000, show_default=True, type=click.IntRange(1, 10**9), help="Clicks, in all.")
@click.option("--users", default=1000, show_default=True, type=click.IntRange(1, 10**7), help="Users who make them.")
@click.option("--queries", default=10, show_default=True, type=click.IntRange(1, 10**6), help="Queries of a user.")
@click.option("--policies", default=2, show_default=True, type=click.IntRange(1, 1000),
              help="Logging policies, one of which, at random, makes each page.")  # fmt: skip
@click.option("--displayed", default=5, show_default=True, type=click.IntRange(1, 1000), help="Documents on a page.")
@settings_options(ClickModel, leaves(ClickModel))
@settings_options(PolicySettings, ("policy_fraction",))
@click.option("--layout", default="pages", show_default=True, type=click.Choice(["pages", "rows"]),
              help="A row for each page, with lists; or for each displayed document, with its rank.")  # fmt: skip
@click.option("--no-features", is_flag=True, help="Leave out the documents' features, most of the file.")
@click.option("--seed", default=0, show_default=True, help=SEED_HELP)
@json_option
def clicks(
    out: Path,
    source: str,
    fold: int,
    merge: bool,
    sentinel: tuple[str, ...],
    clicks: int,
    users: int,
    queries: int,
    policies: int,
    displayed: int,
    layout: str,
    no_features: bool,
    seed: int,
    as_json: bool,
    **settings: Any,
) -> None:
    """Write a sample click log, from simulated users.

    The users ask queries of a judged data set. What they are shown is ranked by one of several logging policies
    (rankers trained on few queries), chosen at random for each page. They examine a rank with a probability that falls
    with it, and click what is relevant, or, now and then, what is not.

    OUT ends with .tsv, .csv or .parquet (text also with .gz, .xz, .bz2 or .zst). The truth behind the log goes into a
    file beside it, such as clicks.truth.json: how likely each rank was examined, each user's bias severity, and the
    relevance grade of every displayed document.

    \b
    Examples
      fultr data clicks                         clicks.tsv and clicks.truth.json
      fultr estimate clicks.tsv                 compare with the truth
      fultr data clicks long.csv --layout rows  a row for each displayed document
      fultr data clicks clicks.parquet --clicks 1000000 --users 50000
      fultr data clicks --policies 1            rank and relevance inseparable
      fultr data clicks --click-model trust --trust 0.3 --gamma 2
      fultr data clicks mq.csv.gz --data ~/data/MQ2007 --displayed 10
    """
    from fultr.core.settings import build
    from fultr.data.load import load
    from fultr.study.sample_log import sample_clicks, truth_beside

    check_written({"OUT": out, "the truth beside OUT": truth_beside(out)}, {"--data": source})
    given = given_settings(settings)
    model = build(ClickModel, {name: value for name, value in given.items() if name in leaves(ClickModel)})
    policy = build(PolicySettings, {name: value for name, value in given.items() if name in leaves(PolicySettings)})
    with working("Loading the data"):
        splits = load(source, fold=fold, merge=merge, sentinel=sentinel or "auto")
    with working("Simulating users"):
        made = sample_clicks(
            splits,
            clicks=clicks,
            users=users,
            queries=queries,
            policies=policies,
            displayed=displayed,
            click_model=model,
            policy=policy,
            seed=seed,
        )
    with working("Writing"):
        truth = made.save(out, layout, features=not no_features)
    sizes = {
        "pages": made.log.impressions,
        "clicks": int(made.log.clicks.sum()),
        "users": users,
        "queries": made.log.query_names.size,
        "documents": made.log.pairs,
    }
    if as_json:
        told = {"file": str(out), "truth": str(truth), **sizes, "examination": made.examination.tolist()}
        print_json({**told, "settings": made.settings})
        return
    say(f"Wrote {out}: " + ", ".join(f"{count:,} {name}" for name, count in sizes.items()))
    say(f"Wrote {truth}: the truth behind it. Examination: " + ", ".join(f"{p:.3f}" for p in made.examination))
