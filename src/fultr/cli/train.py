"""The command `fultr train`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fultr.cli.console import compiling, print_json, say, working
from fultr.cli.options import PATH, features_option, json_option, threads_option, unordered_option
from fultr.cli.writing import FIGURE, check_written, save_figure
from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from fultr.learn.whole_log import Trained


@click.command()
@click.argument("clicklog", type=PATH)
@click.option("-o", "--out", type=PATH, default=Path("ranker.json"), show_default=True,
              help="The ranker's file; an existing one is replaced.")  # fmt: skip
@click.option("--model", default="trees", show_default=True, type=click.Choice(["trees", "linear", "mlp"]),
              help="trees: boosted trees, mostly the best; mlp: a small neural network.")  # fmt: skip
@click.option("--propensity", default="auto", show_default=True, metavar="METHOD|none|P1,P2,...",
              help="How examination is found: auto, a method of fultr estimate, none, or numbers by rank.")  # fmt: skip
@features_option
@unordered_option
@click.option("--normalised", is_flag=True,
              help="The features are scaled to [0, 1] within each query; fultr rank then scales others.")  # fmt: skip
@click.option("--folds", default=5, show_default=True, type=click.IntRange(2, 100),
              help="Parts of the queries, each held out in turn to make choices.")  # fmt: skip
@click.option("--separator", help="What separates documents, and clicks, within a column.  [default: detected]")
@click.option("--seed", default=0, show_default=True, help="Seed of folds, and of whatever is drawn.")
@click.option("--figure", type=PATH, help="Draw examination and held-out gains: FILE.png, FILE.svg or FILE.pdf.")
@threads_option
@json_option
def train(
    clicklog: Path,
    out: Path,
    model: str,
    propensity: str,
    features: list[str] | None,
    unordered: bool,
    normalised: bool,
    folds: int,
    separator: str | None,
    seed: int,
    figure: Path | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Train a ranker on a click log you have.

    CLICKLOG is what fultr estimate reads, with the documents' features. How often each rank is examined is estimated
    from it; all impressions of a document for a query are added up; and the ranker is the one that makes the clicks
    most likely, given how often documents were examined. Choices are made on held-out clicks. No judged documents are
    needed.

    The file is a ranker like any other: for fultr rank, evaluate, compare, export and fultr.Search.

    \b
    Examples
      fultr data clicks                          a sample click log, clicks.tsv
      fultr train clicks.tsv --normalised        ranker.json
      fultr evaluate ranker.json synthetic       on judged queries
      fultr compare clicks.tsv logged ranker.json
      fultr train log.parquet --features title_match,age -o new.json
      fultr train clicks.tsv --propensity 1,.6,.4,.3,.2 --figure train.png
    """
    from fultr.clicks.files import read_click_log
    from fultr.learn.whole_log import train_on_log

    check_written({"--out": out, FIGURE: figure}, {"CLICKLOG": clicklog})
    given = _propensity(propensity)
    with compiling(5):
        with working("Reading"):
            log = read_click_log(clicklog, separator=separator, features=features)
        try:
            with working("Training"):
                trained = train_on_log(
                    log,
                    model=model,
                    propensity=given,
                    normalised=normalised,
                    folds=folds,
                    seed=seed,
                    threads=threads,
                    ordered=not unordered,
                )
        except FultrError as error:
            raise FultrError(f"{clicklog}: {error}") from None
    if figure is not None:
        _draw(figure, trained)
    trained.ranker.save(out)
    if as_json:
        told = {"log": str(clicklog), "ranker": str(out), "figure": None if figure is None else str(figure)}
        print_json({**told, **asdict(trained.report)})
        return
    print(trained.report)
    say(f"Ranker: {out}")
    if figure is not None:
        say(f"Figure: {figure}")


def _propensity(text: str) -> Any:
    """A name, or numbers."""
    if not any(sign.isdigit() for sign in text):
        return text
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        said = "expected a method, none, or numbers with commas between them"
        raise FultrError(f"--propensity: {said}; found {text!r}") from None


def _draw(path: Path, trained: Trained) -> None:
    from fultr.learn.figure import draw_training

    save_figure(path, draw_training(trained))
