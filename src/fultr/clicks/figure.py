"""The figure of `fultr estimate`: examination by rank with intervals, and how well it predicts another log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fultr.clicks.diagnosis import Diagnosis
from fultr.clicks.prediction import Prediction
from fultr.core.arrays import Float64s
from fultr.core.drawing import PALETTE, STYLE

_LOOKS = {  # colour and marker: distinguishable in print and by colour-blind readers
    "all-pairs": ("blue", "o"),
    "adjacent": ("green", "D"),
    "em": ("vermillion", "s"),
    "regression": ("orange", "P"),
    "rank": ("grey", "v"),
    "document": ("purple", "^"),
}
_NAMES = {
    "all-pairs": "harvested, all pairs",
    "adjacent": "harvested, adjacent pairs",
    "em": "EM, one relevance per document",
    "regression": "regression, relevance from features",
}
_WIDE, _HIGH = 3.9, 3.0


def draw_estimate(found: Diagnosis, click_rate: Float64s, predictions: Sequence[Prediction] = ()) -> Figure:
    """Draw examination by rank and, if there are predictions, how much they lower perplexity at each rank.

    Args:
        found: examination and its bootstrap draws.
        click_rate: by rank; it mixes examination with relevance.
        predictions: of a held-out log, the click rate of the rank first.
    """
    panels = 2 if predictions else 1
    with mpl.rc_context({**STYLE, "font.size": 9, "legend.fontsize": 8.5}):
        figure = Figure(figsize=(_WIDE * panels, _HIGH), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0]
        _examination(axes[0], found, click_rate)
        if predictions:
            _perplexity(axes[1], predictions)
    return figure


def _examination(axes: Axes, found: Diagnosis, click_rate: Float64s) -> None:
    ranks = np.arange(1, found.examination.size + 1)
    interval = found.draws.interval()
    colour, marker = _LOOKS[found.method]
    name = _NAMES[found.method]
    axes.plot(ranks, found.examination, color=PALETTE[colour], marker=marker, label=name, zorder=4)
    if interval is not None:
        label = f"95% interval, over {found.draws.over}"
        axes.fill_between(ranks, *interval, color=PALETTE[colour], alpha=0.18, linewidth=0, label=label)
    for other, values in found.others.items():
        colour, marker = _LOOKS[other]
        open_marker: dict[str, Any] = dict(marker=marker, markerfacecolor="white", markersize=5)
        axes.plot(ranks, values, color=PALETTE[colour], linestyle="--", label=_NAMES[other], **open_marker)
    if found.affine is not None and found.trust_bias is not None and found.trust_bias.seen:
        looks: dict[str, Any] = dict(color=PALETTE["green"], linestyle="-.", marker="x", markersize=5)
        axes.plot(ranks, found.affine.alpha, label="affine, by relevance alone (alpha)", **looks)
    if click_rate[0] > 0:
        label = "click rate relative to rank 1"
        axes.plot(ranks, click_rate / click_rate[0], color=PALETTE["grey"], linestyle=":", marker="v", label=label)
    axes.legend(frameon=False)
    axes.set_ylim(0, None)
    axes.set_title("Examination relative to rank 1", loc="left")
    axes.set_title(found.conclusion.answer, loc="right", color=PALETTE["grey"])
    _ranks(axes, ranks.size)


def _perplexity(axes: Axes, predictions: Sequence[Prediction]) -> None:
    """How far perplexity is below that of the first prediction, which uses only the rank."""
    first, *others = predictions
    for one in others[::-1]:
        colour, marker = _LOOKS[one.name]
        baseline = one.name == "document"
        label = "click rate of the document" if baseline else f"position-based, {one.name}"
        style = "-." if baseline else "--" if one.name == "em" else "-"
        fill: dict[str, Any] = dict(markerfacecolor="white", markersize=6) if one.name == "em" else {}
        ranks, gained = np.arange(1, one.perplexity.size + 1), first.perplexity - one.perplexity
        axes.plot(ranks, gained, color=PALETTE[colour], linestyle=style, marker=marker, label=label, **fill)
    axes.axhline(0, color=PALETTE["grey"], linestyle=":", label="click rate of the rank")
    _ranks(axes, first.perplexity.size)
    axes.legend(frameon=False)
    axes.set_title("Gain in held-out perplexity over the rank's click rate", loc="left")


def _ranks(axes: Axes, count: int) -> None:
    axes.set_xlabel("rank")
    axes.set_xlim(0.6, count + 0.4)
    step = max(1, -(-count // 12))
    axes.set_xticks(range(1, count + 1, step))
