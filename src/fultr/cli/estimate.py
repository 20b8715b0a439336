"""The command `fultr estimate`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from fultr.cli.console import compiling, print_json, print_table, progress_bar, say, working
from fultr.cli.options import PATH, features_option, json_option, unordered_option
from fultr.cli.writing import FIGURE, check_written, save_figure
from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from fultr.clicks.diagnosis import Diagnosis
    from fultr.clicks.impressions import ImpressionLog
    from fultr.clicks.prediction import Prediction
    from fultr.clicks.trust_check import TrustBias
    from fultr.core.arrays import Float64s

_BASELINES = ("rank", "document")


@click.command()
@click.argument("clicklog", type=PATH)
@click.option("--method", default="auto", show_default=True,
              type=click.Choice(["auto", "all-pairs", "adjacent", "regression", "em"]),
              help="How to estimate; auto: all-pairs if the log allows it, else regression, else em.")  # fmt: skip
@click.option("--held-out", type=PATH, help="Another click log; measure how well the estimate predicts its clicks.")
@click.option("--bootstrap", "draws", default=200, show_default=True, type=click.IntRange(min=0),
              help="Bootstrap draws for the 95% intervals; 0: no intervals.")  # fmt: skip
@click.option("--over", type=click.Choice(["users", "queries", "pages"]),
              help="What the bootstrap draws.  [default: users if known, else queries, else pages]")  # fmt: skip
@features_option
@click.option("--separator", help="What separates documents, and clicks, within a column.  [default: detected]")
@click.option("--smoothing", default=1.0, show_default=True,
              help="With --held-out: extra impressions per document, clicked at the rate of its query.")  # fmt: skip
@unordered_option
@click.option("--seed", default=0, show_default=True, help="Seed of the bootstrap.")
@click.option("--figure", type=PATH, help="Draw the curve: FILE.png, FILE.svg or FILE.pdf.")
@json_option
def estimate(
    clicklog: Path,
    method: str,
    held_out: Path | None,
    draws: int,
    over: str | None,
    features: list[str] | None,
    separator: str | None,
    smoothing: float,
    unordered: bool,
    seed: int,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Estimate the position bias of a click log you have.

    The estimate is the examination of each rank: how likely users are to look at it, relative to rank 1. In training, a
    click at a rank with examination p weighs 1 / p. The conclusion says whether to trust the estimate, why, and what to
    do.

    CLICKLOG is a tab-separated, CSV or Parquet file, plain or compressed (gz, xz, bz2, zst). A line is a page: its
    query, its user if known, the displayed documents from rank 1 and their clicks (0 or 1), both joined by commas or
    another separator. The first line may name the columns query, user, documents, clicks; without it, three columns are
    query, documents, clicks and four are query, user, documents, clicks. A column named features may hold the
    documents' features: numbers joined by spaces, documents by commas.

    \b
      cats    d17,d4,d23    0,1,0
      cats    d4,d17        1,0

    Lines are taken to be in the order of time, at least those of the same query: a ranker that learnt from these very
    clicks moves documents up after lucky ones, which makes low ranks seem examined too often, and only the order shows
    it. If the lines have no order, say --unordered; the answer is then "trust with care" at best.

    A document is clicked if it is examined and relevant. The methods differ in how they tell the two apart:

    \b
      all-pairs   compares the clicks of a document at two ranks, for all pairs
                  of ranks; needs documents that were shown at several ranks
      adjacent    the same for pairs of neighbouring ranks only
      regression  takes relevance to be a function of the documents' features
      em          fits a relevance to each document (expectation maximisation);
                  overestimates low ranks where documents have few clicks

    \b
    Examples
      fultr estimate clicks.tsv
      fultr estimate clicks.parquet --figure examination.png
      fultr estimate monday.csv.gz --held-out tuesday.csv.gz
      fultr estimate clicks.tsv --over pages --bootstrap 1000
      fultr estimate clicks.tsv --json | jq .examination
    """
    from fultr.clicks.diagnosis import diagnose
    from fultr.clicks.files import read_click_log
    from fultr.clicks.prediction import predict

    check_written({FIGURE: figure}, {"CLICKLOG": clicklog, "--held-out": held_out})
    options: dict[str, Any] = {"over": over, "draws": draws, "seed": seed, "ordered": not unordered}
    with compiling(2):
        with working("Reading"):
            log = read_click_log(clicklog, separator=separator, features=features)
            other = None if held_out is None else read_click_log(held_out, separator=separator, features=features)
        with progress_bar(draws, "Bootstrap") as done:
            try:
                found = diagnose(log, cast(Any, method), **options, on_draw=done)
            except FultrError as error:
                raise FultrError(f"{clicklog}: {error}") from None
    models: dict[str, Prediction] = {}
    if other is not None:
        curves: dict[str, Float64s] = {found.method: found.examination}
        models = predict(log, other, {**curves, **{str(k): v for k, v in found.others.items()}}, smoothing=smoothing)
    if figure is not None:
        _draw(figure, found, log, models)
    if as_json:
        told = {"log": {"file": str(clicklog), **_sizes(log)}, **as_dict(found), "click_rate": _rates(log).tolist()}
        told |= {"bootstrap": draws, "seed": seed, "figure": None if figure is None else str(figure)}
        told["held_out"] = None if other is None else {"file": str(held_out), **_held_out_dict(log, other, models)}
        print_json(told)
        return
    _print_estimate(clicklog, log, found)
    if other is not None:
        _print_held_out(log, other, models, found.method)
    _print_conclusion(found)
    if figure is not None:
        say(f"Figure: {figure}")


def _draw(path: Path, found: Diagnosis, log: ImpressionLog, models: dict[str, Prediction]) -> None:
    from fultr.clicks.figure import draw_estimate

    save_figure(path, draw_estimate(found, _rates(log), list(models.values())))


def _rates(log: ImpressionLog) -> Float64s:
    """Clicks over impressions at each rank."""
    import numpy as np

    shown, clicked = log.cells().by_rank()
    return clicked / np.maximum(shown, 1)


def _sizes(log: ImpressionLog) -> dict[str, int | None]:
    import numpy as np

    return {
        "impressions": log.impressions,
        "queries": int(np.unique(log.queries).size),
        "users": None if log.users is None else int(np.unique(log.users).size),
        "documents": log.pairs,
        "ranks": log.ranks,
        "clicks": int(log.clicks.sum()),
    }


def as_dict(found: Diagnosis) -> dict[str, Any]:
    """A diagnosis as plain values."""
    interval = found.draws.interval()
    return {
        "method": found.method,
        "examination": found.examination.tolist(),
        "interval": None if interval is None else {"low": interval[0].tolist(), "high": interval[1].tolist()},
        "over": found.draws.over,
        "failed_draws": found.draws.failed,
        "effective_units": found.draws.effective_units,
        "others": {
            name: {
                "examination": values.tolist(),
                "difference": {"low": found.gaps[name][0].tolist(), "high": found.gaps[name][1].tolist()}
                if name in found.gaps
                else None,
            }
            for name, values in found.others.items()
        },
        "weights": asdict(found.weights),
        "identifiability": {**asdict(found.identifiability), "moved_share": found.identifiability.moved_share},
        "ordered": found.ordered,
        "feedback": None if found.feedback is None else {**asdict(found.feedback), "seen": found.feedback.seen},
        "trust_bias": None if found.trust_bias is None else _trust_dict(found.trust_bias),
        "stopping": None if found.stopping is None else {**asdict(found.stopping), "seen": found.stopping.seen},
        "affine": None
        if found.affine is None
        else {
            "alpha": found.affine.alpha.tolist(),
            "beta": found.affine.beta.tolist(),
            "share": found.affine.share.tolist(),
        },
        "conclusion": asdict(found.conclusion),
    }


def _trust_dict(found: TrustBias) -> dict[str, Any]:
    return {**asdict(found), "seen": found.seen, "reversed": found.reversed}


def _held_out_dict(log: ImpressionLog, other: ImpressionLog, models: dict[str, Prediction]) -> dict[str, Any]:
    from fultr.clicks.prediction import gain

    return {
        **_sizes(other),
        "unseen": _unseen(log, other),
        "models": {
            name: {
                "log_likelihood": one.log_likelihood,
                "perplexity": one.perplexity.tolist(),
                "mean_perplexity": float(one.perplexity.mean()),
                "gains": {base: asdict(gain(one, models[base], other)) for base in _BASELINES if base != name},
            }
            for name, one in models.items()
        },
    }


def _unseen(log: ImpressionLog, other: ImpressionLog) -> float:
    """Share of the displayed documents of another log that the log does not have."""
    known = other.numbers_in(log)[1][other.documents[other.shown]]
    return float((known < 0).mean())


def _print_estimate(path: Path, log: ImpressionLog, found: Diagnosis) -> None:
    interval, rates, affine = found.draws.interval(), _rates(log), found.affine
    heads = ["rank", "clicked", "examined", "95% interval", *found.others, *(("alpha", "beta") if affine else ())]
    rows = []
    for k, p in enumerate(found.examination):
        span = "" if interval is None else f"{interval[0][k]:.3f} to {interval[1][k]:.3f}"
        others = [f"{values[k]:.3f}" for values in found.others.values()]
        others += [f"{affine.alpha[k]:.3f}", f"{affine.beta[k]:.3f}"] if affine else []
        weight = f"{1 / p:.2f}" if p > 0 else "none"
        rows.append([f"{k + 1}", f"{rates[k]:.3f}", f"{p:.3f}", span if k else "", *others, weight])
    sizes = _sizes(log)
    users = "" if sizes["users"] is None else f"{sizes['users']:,} users, "
    _tell(
        f"{path}: {log.impressions:,} pages of {'up to ' if not log.shown.all() else ''}{log.ranks} documents, {users}"
        f"{sizes['queries']:,} queries, {log.pairs:,} query-document pairs, {sizes['clicks']:,} clicks"
    )
    drawn = f"; bootstrap over {found.draws.over}" if interval is not None else ""
    print(f"\nExamination relative to rank 1, by {found.method}{drawn}")
    print_table([[*heads, "weight"], *rows])
    weights, known = found.weights, found.identifiability
    _tell(
        f"{known.moved:,} of {known.documents:,} documents ({known.moved_share:.0%}) were shown at "
        f"several ranks; they make up {known.moved_impressions:.0%} of what was displayed",
        "Interventions",
    )
    if known.relevance_by_rank is not None:
        _tell(f"rank correlation of a document's relevance with its rank {known.relevance_by_rank:+.2f}", "Confounding")
    shares = ", ".join(f"{100 * share:.0f}" for share in weights.weight_share)
    _tell(
        f"{weights.clicks:,} clicks count as {weights.effective:,.0f}; the largest weight is {weights.largest:.2f}, at "
        f"rank {weights.largest_rank}; the heaviest 1% of clicks carry {weights.heaviest_share:.1%} of the weight; "
        f"each rank's share of it, in per cent: {shares}",
        "Weights",
    )
    _print_checks(found)


def _print_checks(found: Diagnosis) -> None:
    """What was measured of how rankers and users behave."""
    import numpy as np

    moved, bias, stops, affine = found.feedback, found.trust_bias, found.stopping, found.affine
    if moved is None:
        _tell("cannot be measured in this log" if found.ordered else "cannot be measured without order", "Feedback")
    else:
        told = "" if moved.seen else "do not "
        chance = "" if moved.compared else f" (so do {moved.chance:.0%} of logs without feedback)"
        times = ""
        if moved.ratio is not None:
            times = f"; at the same rank, documents that rise have {moved.ratio:.2f} times the clicks of others{chance}"
        _tell(f"rank changes {told}follow clicks{times}; {moved.once:.0%} of what is compared moved once", "Feedback")
    if bias is None:
        _tell("cannot be measured in this log", "Trust bias")
    else:
        low, high = bias.interval
        shown = "none at all" if bias.hidden is None else f"one that puts the curve off by {bias.hidden:.0%} or more"
        _tell(
            f"clicks of less relevant documents fall {bias.more:+.1%} further with rank ({np.expm1(low):+.1%} to "
            f"{np.expm1(high):+.1%}); 0% if a position-based model holds; this log would show {shown}",
            "Trust bias",
        )
    if stops is None:
        _tell("cannot be measured in this log", "Cascade")
    else:
        _tell(
            f"after a click, users look at what is below {stops.continues:.2f} times as often as without it "
            f"({stops.interval[0]:.2f} to {stops.interval[1]:.2f}); 1 if a position-based model holds",
            "Cascade",
        )
    if affine is not None:
        _tell(
            f"with alpha and beta, clicks are alpha times relevance plus beta, which would be {affine.share[0]:.0%} of "
            f"the clicks at rank 1; beta is 0 if a position-based model holds",
            "Affine",
        )


def _tell(text: str, title: str = "", bullet: str = "") -> None:
    """Print a paragraph, on a terminal wrapped to its width, with a title or a bullet in front of it."""
    import shutil
    import sys
    from textwrap import fill

    start = f"{title:15}" if title else bullet
    if not sys.stdout.isatty():
        print(start + text)
        return
    width = shutil.get_terminal_size().columns
    print(fill(text, width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False))


def _print_held_out(log: ImpressionLog, other: ImpressionLog, models: dict[str, Prediction], method: str) -> None:
    from fultr.clicks.prediction import gain

    rows = [["model", "log-likelihood per page", "perplexity", *(f"{k + 1}" for k in range(other.ranks))]]
    for name, one in models.items():
        label = f"click rate of the {name}" if name in _BASELINES else f"position-based, {name}"
        ranks = [f"{value:.3f}" for value in one.perplexity]
        rows.append([label, f"{one.log_likelihood:.4f}", f"{one.perplexity.mean():.4f}", *ranks])
    title = f"Prediction of {other.impressions:,} held-out pages ({_unseen(log, other):.1%} of documents unseen)"
    print()
    print_table(rows, title=f"{title}; perplexity: mean, and at each rank")
    for base in _BASELINES:
        found = gain(models[method], models[base], other)
        _tell(
            f"Gain of {method} over the click rate of the {base}: {found.mean:+.4f} per page, standard error "
            f"{found.by_page:.4f} over pages, {found.by_query:.4f} over queries"
        )


def _print_conclusion(found: Diagnosis) -> None:
    said = found.conclusion
    print(f"\nConclusion: {said.answer}")
    for title, lines in (("", said.reasons), ("What to do", said.advice), ("What no propensity corrects", said.limits)):
        if title and lines:
            print(f"{title}:")
        for line in lines:
            _tell(line, bullet="  - ")
    if found.examination.min() > 0 and said.answer != "do not trust":
        print(f"As propensities: {','.join(f'{min(p, 1.0):.4g}' for p in found.examination)}")
