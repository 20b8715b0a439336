"""How good a federation's ranker is, and what it learned of examination, over its rounds: in numbers and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.special import stdtrit

from fultr.core.drawing import PALETTE, STYLE
from fultr.core.page import Curve, Reading, plot
from fultr.deploy.history import History
from fultr.federated.judging import Judgement

MOST_POINTS = 300
"""Of a curve: of more rounds, some are left out."""

_SIZE, _BOX = (4.4, 2.75), (0.14, 0.27, 0.84, 0.69)  # of a plot, in inches; of its axes, as shares


@dataclass(frozen=True)
class Quality:
    """Quality on held-out clicks after some rounds, with half the width of its 95% interval if that is known."""

    rounds: int
    ranked: float
    displayed: float
    ranked_half: float | None
    displayed_half: float | None
    devices: int | None


def half_width(error: float | None, devices: int | None) -> float | None:
    """Half of a 95% interval: by Student's distribution, as the error is estimated from few devices.

    >>> half_width(0.01, 3) > half_width(0.01, 300) > 0.0196
    True
    """
    if error is None or (devices is not None and devices < 2):
        return None
    freedom = np.inf if devices is None else devices - 1
    return float(error * (1.959964 if np.isinf(freedom) else stdtrit(freedom, 0.975)))


def quality_over_rounds(history: History, final: Judgement | None) -> list[Quality]:
    """Held-out quality after each round, or after some up to the last: a round judges the weights before it.

    Args:
        history: of the federation.
        final: what devices found after the last round, if they were asked.
    """
    judged = [(one.number - 1, one.judged) for one in history.completed if one.judged is not None]
    judged += [] if final is None else [(history.done, final)]
    judged = judged[:: -(1 + len(judged) // MOST_POINTS)][::-1]
    return [
        Quality(
            rounds,
            one.ranked,
            one.displayed,
            half_width(one.ranked_error, one.devices or None),
            half_width(one.displayed_error, one.devices or None),
            one.devices or None,
        )
        for rounds, one in judged
    ]


def quality_plot(quality: Sequence[Quality]) -> dict[str, Any]:
    """Held-out quality over the rounds, with its interval."""
    x = np.array([one.rounds for one in quality], float)
    lines = []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=_SIZE)
        axes = figure.add_axes(_BOX)
        for name, colour, dashes, marker in (
            ("ranked", "blue", "-", "o"),
            ("displayed", "grey", (0, (4, 2)), "s"),
        ):
            mean = np.array([getattr(one, name) for one in quality])
            halves = [getattr(one, f"{name}_half") for one in quality]
            half = np.array([np.nan if value is None else value for value in halves])
            words = "the ranker’s order" if name == "ranked" else "the displayed order"
            options: dict[str, Any] = dict(color=PALETTE[colour], linestyle=dashes, marker=marker, markersize=3)
            axes.plot(x, mean, label=words, markevery=max(1, len(x) // 40), **options)
            low, high = np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)
            axes.fill_between(x, low, high, color=PALETTE[colour], alpha=0.18, linewidth=0)
            known = None if any(value is None for value in halves) else half
            lines.append(Curve(words, PALETTE[colour], x, mean, known))
        axes.set_xlim(0, max(1.0, x[-1]))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlabel("rounds done")
        axes.set_ylabel("held-out clicks")
        figure.legend(loc="lower left", bbox_to_anchor=(0.02, 0.005), ncols=2, frameon=False, handlelength=4)
    return plot(figure, "Held-out clicks over the rounds", Reading("rounds done:"), lines, "q-")


def examination_plot(examination: Sequence[float]) -> dict[str, Any]:
    """Examination by rank."""
    x, mean = np.arange(1.0, len(examination) + 1), np.array(examination)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=_SIZE)
        axes = figure.add_axes(_BOX)
        axes.plot(x, mean, color=PALETTE["vermillion"], marker="D")
        axes.set_xlim(0.7, len(x) + 0.3)
        axes.set_ylim(0, max(1.05, 1.05 * float(mean.max())))
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.set_xlabel("rank")
        axes.set_ylabel("examination")
    curve = Curve("examination", PALETTE["vermillion"], x, mean, None)
    return plot(figure, "Examination by rank, after the last round", Reading("rank"), [curve], "e-")
