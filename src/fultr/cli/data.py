"""The commands `fultr data ...`: data sets, inspected and generated."""

from __future__ import annotations

from pathlib import Path

import click

from fultr.cli.console import print_json, print_table, progress_bar, say, working
from fultr.cli.lazy import OrderedGroup
from fultr.cli.options import PATH, json_option, reading_options, threads_option


@click.group(cls=OrderedGroup)
def data() -> None:
    """Inspect data sets, or generate them."""


@data.command()
@click.argument("path", type=PATH)
@reading_options
@threads_option
@json_option
def inspect(path: Path, fold: int, merge: bool, sentinel: tuple[str, ...], threads: int | None, as_json: bool) -> None:
    """Count what a data set holds.

    The numbers are compared with those published, where there are any. PATH is a folder with Yahoo LTRC set 1,
    Istella-S, MSLR-WEB, MQ2007/8 or any train, vali and test files; or one LETOR file. Every line is checked.
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
