"""Figures of an experiment: a row of panels for each data set, a column for each panel of the experiment.

An algorithm has the same colour in every figure. Lines of one hue in a panel differ in shade and dashes, hues differ in
markers too, so that colour-blind readers and readers of print can tell lines apart.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from fultr.core.arrays import Float64s
from fultr.core.drawing import PALETTE, STYLE
from fultr.core.errors import FultrError
from fultr.study.experiment import Experiment, Line, Outcome, Panel
from fultr.study.statistics import Measured

FAMILIES = {
    "FedIPS": "blue",
    "FedAvg": "vermillion",
    "λLinear": "green",
    "LightGBM": "yellow",
    "logging policy": "grey",
    "random ranking": "light grey",
    "mean": "black",
    "clipped": "blue",
    "trimmed": "orange",
    "grouped": "purple",
}
"""The colours of lines whose names begin like this."""

_SPARE = ("purple", "orange", "sky", "black", "yellow")  # for other names; yellow last, as it is faint on white
_MARKERS = dict(zip(PALETTE.values(), ("o", "s", "D", "^", "v", "P", "X", "p", "<", ">"), strict=True))
_DASHES: tuple[Any, ...] = ("-", (0, (4.5, 1.5)), (0, (5, 1.3, 1, 1.3)), (0, (1, 1.1)), (0, (4, 1.2, 1, 1.2, 1, 1.2)))
_LEVEL_DASHES = {"green": (0, (7, 2)), "grey": (0, (2, 1.5)), "light grey": (0, (1, 2))}
_AXES = {
    "gamma": "bias severity γ",
    "gamma_sd": "spread of γ between users",
    "clients": "clients per round, |U|",
    "users": "users in total",
    "queries": "queries per client and round",
    "clicks": "clicks per client and round, m",
    "displayed": "documents displayed, K",
    "policy_rate": "logging policy's learning rate",
    "policy_fraction": "logging policy's share of queries",
    "other_click": "P(click | irrelevant, examined)",
    "epsilon": "ε per device, for all rounds",
}
# Inches: a panel's width and height; the room around it.
_WIDE, _HIGH = 2.45, 1.95
_LEFT, _GAP, _NUMBERS, _RIGHT, _FOOT, _ENTRY, _TITLE = 0.72, 0.3, 0.28, 0.22, 0.52, 0.155, 0.17
_LARGER = 1.17  # type size of a single panel


@dataclass(frozen=True, eq=False)
class Series:
    """One entry of a panel: a curve, the points of a family of lines, or a constant level.

    Attributes:
        name: for the legend.
        colour: #rrggbb.
        dashes: as in matplotlib.
        marker: likewise.
        x: of its points; empty for a level.
        mean: over repeats, at every x.
        error: standard error of the mean; 0 if there is one repeat only.
    """

    name: str
    colour: str
    dashes: Any
    marker: str
    x: Float64s
    mean: Float64s
    error: Float64s


@dataclass(frozen=True)
class Horizontal:
    """The horizontal axis of a panel: its name, whether it is logarithmic, and its ticks and their names if given."""

    label: str
    log: bool = False
    ticks: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


def hues(experiment: Experiment) -> dict[str, str]:
    """The base colour of each line of an experiment: the one it asks for, else its family's, else a spare one."""
    given = {line.name: _given_hue(line) for line in experiment.lines}
    spare = [PALETTE[name] for name in _SPARE if PALETTE[name] not in given.values()]
    others = itertools.cycle(spare or [PALETTE[name] for name in _SPARE])
    return {name: hue or next(others) for name, hue in given.items()}


def _given_hue(line: Line) -> str:
    if line.colour:
        name = FAMILIES.get(line.colour, line.colour)
        if name not in PALETTE:
            expected = ", ".join((*PALETTE, *FAMILIES))
            raise FultrError(f"colour of {line.name!r}: expected one of {expected}; found {line.colour!r}")
        return PALETTE[name]
    return next((PALETTE[colour] for family, colour in FAMILIES.items() if line.name.startswith(family)), "")


def shades(hue: str, count: int) -> list[str]:
    """Shades of a colour, light to dark.

    >>> shades("#0072B2", 1), shades("#0072B2", 3)[1]
    (['#0072b2'], '#0072b2')
    """
    mixed = [1.0] if count == 1 else np.linspace(0.0, 2.0, count).tolist()
    ends = np.array(
        [0.5 * np.array(to_rgb(hue)) + 0.5, to_rgb(hue), 0.45 * np.array(to_rgb(hue))]
    )  # white, none, black
    red, green, blue = (np.interp(mixed, [0, 1, 2], channel).tolist() for channel in ends.T)
    return [to_hex(colour) for colour in zip(red, green, blue, strict=True)]


def series(outcome: Outcome, panel: Panel) -> tuple[Horizontal, list[Series]]:
    """What a panel shows, in the order of its lines; those that were not run are left out."""
    hue_of = hues(outcome.experiment)
    families: dict[str, list[str]] = {}  # the lines of each hue
    names_shown = [name for name in panel.lines if name in outcome.lines]
    for name in names_shown:
        families.setdefault(hue_of[name], []).append(name)
    if panel.against:
        return _against(outcome, panel.against, families)
    shown: dict[str, Series] = {}
    for start, (hue, names) in enumerate(families.items()):
        for i, (name, colour) in enumerate(zip(names, shades(hue, len(names)), strict=True)):
            measured = outcome.lines[name]
            if measured.rounds.size == 1:
                shown[name] = _level(name, hue, measured, colour, i)
            else:
                dashes = _DASHES[(start + i if len(names) == 1 else i) % len(_DASHES)]
                x = measured.rounds.astype(np.float64)
                shown[name] = Series(name, colour, dashes, _MARKERS[hue], x, *_mean_and_error(measured.ndcg))
    return Horizontal("round"), [shown[name] for name in names_shown]


def _level(name: str, hue: str, measured: Measured, colour: str, index: int = 0) -> Series:
    word = next(word for word, value in PALETTE.items() if value == hue)
    dashes = _LEVEL_DASHES.get(word, _DASHES[1]) if index == 0 else _DASHES[(1 + index) % len(_DASHES)]
    return Series(name, colour, dashes, "", np.empty(0), *_mean_and_error(measured.final[:, np.newaxis]))


def _against(outcome: Outcome, setting: str, families: dict[str, list[str]]) -> tuple[Horizontal, list[Series]]:
    """NDCG after the last round against a setting: a series for the lines of each hue."""
    settings = {line.name: line.settings.relevant() for line in outcome.experiment.lines}
    every = [name for names in families.values() for name in names]
    moving = [name for name in every if settings[name].get(setting) is not None]
    axis, place = _scale(setting, list(dict.fromkeys(settings[name][setting] for name in moving)))
    at = {name: place[settings[name][setting]] for name in moving}
    shown: list[Series] = []
    for hue, members in families.items():
        levels = [name for name in members if name not in at]
        shown += [_level(name, hue, outcome.lines[name], to_hex(hue), i) for i, name in enumerate(levels)]
        points = [name for name in members if name in at]
        groups: dict[str, list[str]] = {}
        for name in sorted(points, key=at.__getitem__):
            others = {key: value for key, value in settings[name].items() if key != setting}
            apart = len({at[point] for point in points}) < len(
                points
            )  # two at one place: they differ in something else
            groups.setdefault(repr(others) if apart else "", []).append(name)
        for group, colour in zip(groups.values(), shades(hue, len(groups)), strict=True):
            name = _common_name(group) or next((f for f, c in FAMILIES.items() if PALETTE[c] == hue), group[0])
            finals = [_mean_and_error(outcome.lines[member].final) for member in group]
            mean, error = (np.array(values) for values in zip(*finals, strict=True))
            x = np.array([at[member] for member in group])
            shown.append(Series(name, colour, _DASHES[len(shown) % len(_DASHES)], _MARKERS[hue], x, mean, error))
    return axis, shown


def _scale(setting: str, values: list[Any]) -> tuple[Horizontal, dict[Any, float]]:
    """The axis of a setting, and where on it its values are: numbers at themselves, words one after the other."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    place = {value: float(value if numbers else i) for i, value in enumerate(values)}
    ordered = sorted(place, key=place.__getitem__)
    ticks = tuple(place[value] for value in ordered)
    log = numbers and bool(ticks) and ticks[0] > 0 and (setting in ("clients", "users") or ticks[-1] >= 10 * ticks[0])
    names = tuple(f"{v:,}" if isinstance(v, int) else f"{v:g}" if isinstance(v, float) else f"{v}" for v in ordered)
    return Horizontal(_AXES.get(setting, setting.replace("_", " ")), log, ticks, names), place


def _common_name(names: Sequence[str]) -> str:
    """What names that differ in a setting's value have in common: whole clauses, else words.

    >>> _common_name(["FedIPS, rate 0.5", "FedIPS, rate 1"]), _common_name(["My |U| = 1", "My |U| = 5"])
    ('FedIPS', 'My')
    """
    if len(names) == 1:
        return names[0]
    for separator in (", ", " "):
        parts = zip(*(name.split(separator) for name in names), strict=False)
        common = separator.join(part[0] for part in itertools.takewhile(lambda part: len(set(part)) == 1, parts))
        if common:
            return re.sub(r"\s*\S+ =$", "", common)
    return ""


def _mean_and_error(values: Float64s) -> tuple[Float64s, Float64s]:
    """Mean and standard error over repeats (the first axis)."""
    mean = values.mean(axis=0)
    return mean, values.std(axis=0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.zeros_like(mean)


def limits(outcome: Outcome, *, against: bool) -> tuple[float, float]:
    """Vertical limits of a row's panels of one kind: curves, or what is drawn against a setting.

    Curves have room for all but the first tenth of the rounds: how learning ends matters more than how it starts.
    """
    values = []
    for panel in panels_of(outcome.experiment):
        if bool(panel.against) != against:
            continue
        for one in series(outcome, panel)[1]:
            late = slice(None) if against or not one.x.size else one.x >= one.x[-1] / 10
            values += [(one.mean - one.error)[late], (one.mean + one.error)[late]]
    all_values = np.concatenate(values) if values else np.array([0.0, 1.0])
    margin = 0.05 * float(np.ptp(all_values)) + 0.002
    return float(all_values.min()) - margin, float(all_values.max()) + margin


def panels_of(experiment: Experiment) -> tuple[Panel, ...]:
    """The panels of an experiment; one with all its lines if it has none."""
    return experiment.panels or (Panel("", tuple(line.name for line in experiment.lines)),)


def metric(experiment: Experiment) -> str:
    """The name of what is measured, for axes and tables."""
    cutoffs = sorted({line.settings.k for line in experiment.lines})
    return f"NDCG@{' or '.join(map(str, cutoffs))}, test queries"


def draw(outcomes: Sequence[Outcome]) -> Figure:
    """The figure of one experiment: one row of panels per data set."""
    panels, rows = panels_of(outcomes[0].experiment), len(outcomes)
    shown = [max((series(outcome, panel)[1] for outcome in outcomes), key=len) for panel in panels]
    head = 0.12 + _TITLE * max(_title(panel).count("\n") + 1 for panel in panels)
    legend = 0.1 + _ENTRY * max(1, *(_legend_columns(entries)[1] for entries in shown))
    named = [i == 0 or bool(panel.against) != bool(panels[i - 1].against) for i, panel in enumerate(panels)]
    gaps = [_LEFT + 0.22, *(_GAP + (_NUMBERS if other else 0) for other in named[1:])]  # first the data set's name
    lefts = [sum(gaps[: i + 1]) + i * _WIDE for i in range(len(panels))]
    wide = lefts[-1] + _WIDE + _RIGHT
    high = head + rows * (_HIGH + _FOOT) + legend
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(wide, high))
        for row, outcome in enumerate(outcomes):
            bottom = high - head - row * (_HIGH + _FOOT) - _HIGH
            figure.text(0.1 / wide, (bottom + _HIGH / 2) / high, outcome.data, rotation=90, va="center", weight="bold")
            for column, panel in enumerate(panels):
                at = lefts[column] / wide
                axes = figure.add_axes((at, bottom / high, _WIDE / wide, _HIGH / high))
                _fill(axes, outcome, panel, title=row == 0, numbers=named[column], label=column == 0)
                if row == rows - 1:
                    _legend(figure, shown[column], (at, (bottom - _FOOT) / high))
    return figure


def draw_panel(outcome: Outcome, panel: Panel) -> Figure:
    """One panel on its own, in larger type, with the vertical limits and the title height of the figure."""
    entries = series(outcome, panel)[1]
    left, right, foot = _LARGER * _LEFT, _LARGER * _RIGHT, _LARGER * _FOOT
    head = 0.12 + _LARGER * _TITLE * max(_title(one).count("\n") + 1 for one in panels_of(outcome.experiment))
    bottom = foot + 0.1 + _LARGER * _ENTRY * _legend_columns(entries)[1]
    wide, high = left + _WIDE + right, head + _HIGH + bottom
    with mpl.rc_context({**STYLE, **{name: _LARGER * STYLE[name] for name in STYLE if name.endswith("size")}}):
        figure = Figure(figsize=(wide, high))
        axes = figure.add_axes((left / wide, bottom / high, _WIDE / wide, _HIGH / high))
        _fill(axes, outcome, panel, title=True, numbers=True, label=True)
        _legend(figure, entries, (left / wide, (bottom - foot) / high))
    return figure


def _title(panel: Panel) -> str:
    title = panel.title
    if panel.against and "last round" not in title.lower():
        title = f"{title}, after the last round".removeprefix(", ")
    return _wrapped(title, 36)


def _fill(axes: Axes, outcome: Outcome, panel: Panel, *, title: bool, numbers: bool, label: bool) -> None:
    """Draw a panel, with or without a title, and numbers and a label at its vertical axis."""
    horizontal, entries = series(outcome, panel)
    for i, one in enumerate(entries):
        low, high = one.mean - one.error, one.mean + one.error
        if not one.x.size:
            axes.axhline(one.mean[0], color=one.colour, linestyle=one.dashes, linewidth=1.4)
            axes.axhspan(low[0], high[0], color=one.colour, alpha=0.16, linewidth=0)
        elif panel.against:
            axes.errorbar(
                one.x, one.mean, one.error, color=one.colour, linestyle=one.dashes, marker=one.marker, capsize=2.5
            )
        else:
            step = max(1, one.x.size // 6)
            every = ((step + i * step // max(1, len(entries))) % one.x.size, step)  # side by side, not on each other
            axes.fill_between(one.x, low, high, color=one.colour, alpha=0.2, linewidth=0)
            axes.plot(one.x, one.mean, color=one.colour, linestyle=one.dashes, marker=one.marker, markevery=every)
    last = max((one.x[-1] for one in entries if one.x.size), default=1.0)
    if horizontal.log:
        axes.set_xscale("log")
        axes.set_xlim(horizontal.ticks[0] / 1.35, horizontal.ticks[-1] * 1.35)
    elif horizontal.ticks:
        room = 0.06 * (horizontal.ticks[-1] - horizontal.ticks[0]) or 1.0
        axes.set_xlim(horizontal.ticks[0] - room, horizontal.ticks[-1] + room)
    else:
        axes.set_xlim(0, last)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
    if horizontal.ticks:
        axes.xaxis.set_major_locator(FixedLocator(horizontal.ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_ticklabels(horizontal.names)
    axes.set_ylim(*limits(outcome, against=bool(panel.against)))
    axes.set_xlabel(horizontal.label)
    if title:
        axes.set_title(_title(panel), loc="left")
    if label:
        axes.set_ylabel(metric(outcome.experiment))
    axes.tick_params(labelleft=numbers)


def _legend_columns(entries: Sequence[Series]) -> tuple[int, int]:
    """Columns of a legend, two if its entries are many and fit side by side, and lines of text in the longer one."""
    half = (len(entries) + 1) // 2
    if len(entries) > 4 and sum(max(len(one.name) for one in part) for part in (entries[:half], entries[half:])) <= 24:
        return 2, half
    return 1, sum(_entry(one).count("\n") + 1 for one in entries)


def _entry(one: Series) -> str:
    return _wrapped(one.name, 28)


def _wrapped(text: str, width: int) -> str:
    """In lines of a width; a letter stays beside its value."""
    return textwrap.fill(text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"), width)


def _legend(figure: Figure, entries: Sequence[Series], at: tuple[float, float]) -> None:
    """Put a legend below a panel, where there is no curve."""
    handles = [
        Line2D([], [], color=one.colour, linestyle=one.dashes, marker=one.marker or None, label=_entry(one))
        for one in entries
    ]
    options = dict(handlelength=4.2, borderaxespad=0, borderpad=0, labelspacing=0.35, columnspacing=1.2, frameon=False)
    columns = _legend_columns(entries)[0]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=at, ncols=columns, **options)
