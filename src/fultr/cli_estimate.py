"""The command `fultr estimate`."""

from __future__ import annotations

from pathlib import Path

import click

from fultr.cli_options import json_option


@click.command()
@click.argument("clicklog", type=click.Path(path_type=Path))
@click.option("--method", default="auto", show_default=True,
              type=click.Choice(["auto", "all-pairs", "adjacent", "regression", "em"]),
              help="How examination is estimated; auto takes all-pairs, else regression, else em.")  # fmt: skip
@click.option("--held-out", type=click.Path(path_type=Path), help="Another click log, whose clicks are predicted.")
@click.option("--bootstrap", "draws", default=200, show_default=True, type=click.IntRange(min=0),
              help="Draws for 95% intervals; 0 for none.")  # fmt: skip
@click.option("--over", type=click.Choice(["users", "queries", "pages"]),
              help="What is drawn.  [default: users if the log has them, else queries, else pages]")  # fmt: skip
@click.option("--separator", help="Between documents, and between clicks, of one cell.  [default: found out]")
@click.option("--smoothing", default=1.0, show_default=True,
              help="With --held-out: impressions at its query's rate that every document gets besides.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="The bootstrap's draws follow from it.")
@click.option("--figure", type=click.Path(path_type=Path), help="Draw the curve: FILE.png, FILE.svg or FILE.pdf.")
@json_option
def estimate(
    clicklog: Path,
    method: str,
    held_out: Path | None,
    draws: int,
    over: str | None,
    separator: str | None,
    smoothing: float,
    seed: int,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Estimate from a click log that you have how likely users are to look at each rank, and whether to trust that.

    CLICKLOG is a tab-separated, CSV or Parquet file, plain or compressed (gz, xz, bz2, zst). A line is a page: its
    query, its user if known, the displayed documents from rank 1 and their clicks (0 or 1), both joined by commas or
    another separator. A first line may name the columns query, user, documents, clicks; without it, three columns are
    query, documents, clicks and four are query, user, documents, clicks. A column features may hold the documents'
    features: numbers joined by spaces, documents by commas.

    \b
      cats    d17,d4,d23    0,1,0
      cats    d4,d17        1,0

    Examination is relative to rank 1. A click at a rank with examination p weighs 1 / p in training. Rank and relevance
    can be told apart best where a query's documents were shown at more than one rank: all-pairs and adjacent compare
    the clicks of such documents at two ranks. regression takes relevance to follow from features, and needs no document
    twice. em fits a relevance to each document and overstates low ranks where documents have few clicks. The conclusion
    says whether to trust the estimate, why, and what to do.

    \b
    Examples
      fultr estimate clicks.tsv
      fultr estimate clicks.parquet --figure examination.png
      fultr estimate monday.csv.gz --held-out tuesday.csv.gz    does it predict clicks?
      fultr estimate clicks.tsv --over pages --bootstrap 1000
      fultr estimate clicks.tsv --json | jq .examination
    """
    from fultr.estimate_commands import estimate_log

    estimate_log(clicklog, method, held_out, draws, over, separator, smoothing, seed, figure, as_json)
