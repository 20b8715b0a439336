"""What `fultr estimate` does, once its options are read."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np

from fultr.click_files import read_click_log
from fultr.console import print_json, print_table, progress_bar, say, working
from fultr.diagnostics import Diagnosis, diagnose
from fultr.errors import FultrError
from fultr.files import written_whole
from fultr.impressions import ImpressionLog
from fultr.prediction import Prediction, gain, predict
from fultr.types import Float64s

_KINDS = ("png", "svg", "pdf")
_BASELINES = ("rank", "document")


def estimate_log(
    path: Path,
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
    """`fultr estimate`."""
    if figure is not None and figure.suffix.removeprefix(".").lower() not in _KINDS:
        raise FultrError(f"--figure: expected a file that ends with .png, .svg or .pdf, found {str(figure)!r}")
    with working("Reading"):
        log = read_click_log(path, separator=separator)
        other = None if held_out is None else read_click_log(held_out, separator=separator)
    with progress_bar(2 * draws, "Bootstrap") as done:
        try:
            found = diagnose(
                log, cast(Any, method), over=cast(Any, over), draws=draws, seed=seed, on_draw=lambda: done(None)
            )
        except FultrError as error:
            raise FultrError(f"{path}: {error}") from None
    models: dict[str, Prediction] = {}
    if other is not None:
        curves: dict[str, Float64s] = {found.method: found.examination}
        models = predict(log, other, {**curves, **{str(k): v for k, v in found.others.items()}}, smoothing=smoothing)
    if figure is not None:
        from fultr.estimate_figure import draw_estimate
        from fultr.figures import rendered

        drawn = draw_estimate(found, click_rates(log), list(models.values()))
        kind = cast(Any, figure.suffix.removeprefix(".").lower())
        with written_whole(figure) as temporary:
            temporary.write_bytes(rendered(drawn, kind))
    if as_json:
        told = {"log": {"file": str(path), **_sizes(log)}, **as_dict(found), "click_rate": click_rates(log).tolist()}
        told |= {"bootstrap": draws, "seed": seed, "figure": None if figure is None else str(figure)}
        told["held_out"] = None if other is None else {"file": str(held_out), **_held_out_dict(log, other, models)}
        print_json(told)
        return
    _print_estimate(path, log, found)
    if other is not None:
        _print_held_out(log, other, models, found.method)
    _print_conclusion(found)
    if figure is not None:
        say(f"Figure: {figure}")


def click_rates(log: ImpressionLog) -> Float64s:
    """Clicks over impressions at each rank."""
    shown, clicked = log.cells().by_rank()
    return clicked / np.maximum(shown, 1)


def _sizes(log: ImpressionLog) -> dict[str, int | None]:
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
        "trust_bias": None if found.trust_bias is None else asdict(found.trust_bias),
        "conclusion": asdict(found.conclusion),
    }


def _held_out_dict(log: ImpressionLog, other: ImpressionLog, models: dict[str, Prediction]) -> dict[str, Any]:
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
    interval, rates = found.draws.interval(), click_rates(log)
    heads = ["rank", "click rate", "examination", "95% interval", *found.others, "weight", "of clicks", "of weight"]
    rows = []
    for k, p in enumerate(found.examination):
        span = "" if interval is None else f"{interval[0][k]:.3f} to {interval[1][k]:.3f}"
        others = [f"{values[k]:.3f}" for values in found.others.values()]
        shares = [f"{found.weights.click_share[k]:.1%}", f"{found.weights.weight_share[k]:.1%}"]
        weight = f"{1 / p:.2f}" if p > 0 else "none"
        rows.append([f"{k + 1}", f"{rates[k]:.4f}", f"{p:.3f}", span if k else "", *others, weight, *shares])
    sizes = _sizes(log)
    users = "" if sizes["users"] is None else f"{sizes['users']:,} users, "
    print(
        f"{path}: {log.impressions:,} pages of {'up to ' if not log.shown.all() else ''}{log.ranks} documents, {users}"
        f"{sizes['queries']:,} queries, {log.pairs:,} documents of queries, {sizes['clicks']:,} clicks"
    )
    drawn = f"; bootstrap over {found.draws.over}" if interval is not None else ""
    print_table([heads, *rows], title=f"Examination relative to rank 1, by {found.method}{drawn}")
    weights, known, bias = found.weights, found.identifiability, found.trust_bias
    print(
        f"Interventions  {known.moved:,} of {known.documents:,} documents ({known.moved_share:.0%}) were shown at "
        f"several ranks; they are {known.moved_impressions:.0%} of what was displayed"
    )
    if known.relevance_by_rank is not None:
        print(f"Confounding    rank correlation of a document's relevance with its rank {known.relevance_by_rank:+.2f}")
    print(
        f"Weights        {weights.clicks:,} clicks count as {weights.effective:,.0f}; the largest weight is "
        f"{weights.largest:.2f}, at rank {weights.largest_rank}; the heaviest 1% of clicks have "
        f"{weights.heaviest_share:.1%} of the weight"
    )
    if bias is None:
        print("Trust bias     cannot be seen in this log")
    else:
        low, high = bias.interval
        print(
            f"Trust bias     clicks of less relevant documents fall {bias.more:+.0%} further with rank "
            f"({np.expm1(low):+.0%} to {np.expm1(high):+.0%}); 0% if a position-based model holds"
        )


def _print_held_out(log: ImpressionLog, other: ImpressionLog, models: dict[str, Prediction], method: str) -> None:
    rows = [["model", "log-likelihood a page", "perplexity", *(f"{k + 1}" for k in range(other.ranks))]]
    for name, one in models.items():
        label = f"click rate of the {name}" if name in _BASELINES else f"position-based, {name}"
        ranks = [f"{value:.3f}" for value in one.perplexity]
        rows.append([label, f"{one.log_likelihood:.4f}", f"{one.perplexity.mean():.4f}", *ranks])
    title = f"Prediction of {other.impressions:,} held-out pages ({_unseen(log, other):.1%} of documents unseen)"
    print()
    print_table(rows, title=f"{title}; perplexity: mean, and at each rank")
    for base in _BASELINES:
        found = gain(models[method], models[base], other)
        print(
            f"Gain of {method} over the click rate of the {base}: {found.mean:+.4f} a page, standard error "
            f"{found.by_page:.4f} over pages, {found.by_query:.4f} over queries"
        )


def _print_conclusion(found: Diagnosis) -> None:
    said = found.conclusion
    print(f"\nConclusion: {said.answer}")
    for title, lines in (("", said.reasons), ("What to do", said.advice), ("What no propensity mends", said.limits)):
        if title and lines:
            print(f"{title}:")
        for line in lines:
            print(f"  - {line}")
    if found.examination.min() > 0 and said.answer != "do not trust":
        print(f"As propensities: {','.join(f'{min(p, 1.0):.4g}' for p in found.examination)}")
