"""The figure of `fultr train`: examination by rank, and what held-out clicks said about every choice."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fultr.core.drawing import PALETTE, STYLE
from fultr.learn.whole_log import Trained

_WORDS = {"trees": "trees", "mlp": "epochs", "linear": "ridge"}


def draw_training(trained: Trained) -> Figure:
    """Draw examination by rank, and the gain on held-out clicks by trees, epochs or ridge, a line for each fold."""
    report, fitted = trained.report, trained.fitted
    curves = [] if fitted is None else fitted.curves
    with mpl.rc_context({**STYLE, "font.size": 9, "legend.fontsize": 8.5}):
        figure = Figure(figsize=(7.8, 3.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        ranks = np.arange(1, len(report.examination) + 1)
        left.plot(ranks, report.examination, color=PALETTE["blue"], marker="o")
        left.set_title(f"Examination relative to rank 1, by {report.propensity}", loc="left")
        left.set_xlabel("rank")
        left.set_ylim(0, None)
        left.set_xticks(ranks[:: max(1, -(-ranks.size // 12))])
        chance = 0.0 if fitted is None or fitted.held_out is None else fitted.held_out[1]
        colours = ["blue", "vermillion", "green", "purple", "orange", "sky", "black", "grey"]
        for i, (places, values) in enumerate(curves):
            colour = PALETTE[colours[i % len(colours)]]
            gains = (values - chance) / math.log(2)
            best = int(np.argmax(gains))
            right.plot(places, gains, color=colour, linewidth=1.2)
            right.plot(places[best], gains[best], color=colour, marker="o")
        if report.model == "linear" and curves:
            right.set_xscale("log")
        right.set_title("Gain on held-out clicks, bits per click; dots: chosen", loc="left")
        right.set_xlabel(_WORDS.get(report.model, "") + ("" if report.model == "linear" else ", a line for each fold"))
        if not curves:
            right.text(0.5, 0.5, "no choices to draw", ha="center", transform=right.transAxes)
    return figure
