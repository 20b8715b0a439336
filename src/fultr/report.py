"""What a comparison leaves behind: a figure, the curves as a table, the configuration, and one self-contained page."""

from __future__ import annotations

import csv
import io
import json
import platform
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fultr.experiments import Outcome
from fultr.files import make_folder, written_whole
from fultr.findings import sentences, table

# Okabe and Ito's palette: told apart by colour-blind readers; dashes tell them apart in print.
COLOURS = {"FedIPS": "#0072B2", "FedAvg": "#D55E00", "λLinear": "#009E73", "logging policy": "#777777"}
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e8ec",
    "svg.fonttype": "path",
    "svg.hashsalt": "fultr",  # the same figure gives the same file
}


def draw(outcome: Outcome) -> Figure:
    """NDCG@k over the rounds, a panel a gamma; shaded standard error."""
    gammas = outcome.settings.gammas
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(3.4 * len(gammas) + 0.8, 3.6), layout="constrained")
        panels = figure.subplots(1, len(gammas), sharey=True, squeeze=False)[0]
        last = outcome.rounds[-1]
        for panel, gamma in zip(panels, gammas, strict=True):
            levels = {"λLinear": outcome.lambda_linear, "logging policy": outcome.policy}
            for name, values in levels.items():
                dashes = (0, (6, 2)) if name == "λLinear" else (0, (1, 1.5))
                panel.axhline(values.mean(), color=COLOURS[name], linestyle=dashes, label=name, linewidth=1.5)
                panel.axhspan(*_band(values), color=COLOURS[name], alpha=0.15, linewidth=0)
            for name, style in (("FedIPS", "-"), ("FedAvg", (0, (4, 1.2, 1, 1.2)))):
                curves = outcome.curves[name, gamma]
                panel.plot(outcome.rounds, curves.mean(axis=0), color=COLOURS[name], linestyle=style, label=name)
                panel.fill_between(outcome.rounds, *_band(curves), color=COLOURS[name], alpha=0.2, linewidth=0)
            panel.set_title(f"γ = {gamma:g}")
            panel.set_xlabel("round")
            panel.set_xlim(0, last)
        panels[0].set_ylabel(f"NDCG@{outcome.settings.k}, test queries")
        panels[0].set_ylim(*_limits(outcome))
        order = ["λLinear", "FedIPS", "FedAvg", "logging policy"]
        handles = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
        figure.legend(
            [handles[name] for name in order], order, loc="outside lower center", ncols=len(order), frameon=False
        )
    return figure


def _band(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[Any, Any]:
    """Mean minus and plus one standard error over repeats (the first axis)."""
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.zeros_like(mean)
    return mean - error, mean + error


def _limits(outcome: Outcome) -> tuple[float, float]:
    """Room for everything after the first tenth of the rounds: how learning starts matters less than how it ends."""
    skip = max(1, len(outcome.rounds) // 10)
    shown = [curves.mean(axis=0)[skip:] for curves in outcome.curves.values()]
    values = np.concatenate([*shown, [outcome.policy.mean(), outcome.lambda_linear.mean()]])
    margin = 0.06 * (values.max() - values.min()) + 0.002
    return values.min() - margin, values.max() + margin


def write_report(outcome: Outcome, folder: Path, *, seconds: float) -> list[Path]:
    """Write figure.png, curves.csv, results.json and report.html to a folder; each appears whole or not at all.

    Args:
        outcome: what to report.
        folder: made if it is not there; files of the same names are replaced.
        seconds: how long the comparison took.

    Returns:
        The files, the page first.
    """
    make_folder(folder)
    figure = draw(outcome)
    contents: dict[str, bytes] = {
        "figure.png": _rendered(figure, "png"),
        "curves.csv": _curves(outcome).encode(),
        "results.json": (json.dumps(_results(outcome), indent=1) + "\n").encode(),
        "report.html": _page(outcome, _rendered(figure, "svg").decode(), seconds).encode(),
    }
    for name, content in contents.items():
        with written_whole(folder / name) as temporary:
            temporary.write_bytes(content)
    return [folder / name for name in reversed(contents)]


def _rendered(figure: Figure, kind: str) -> bytes:
    with mpl.rc_context(_STYLE):
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()


def _curves(outcome: Outcome) -> str:
    """One row a point: algorithm, gamma, repeat, round, NDCG@k on test, with all its digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["algorithm", "gamma", "repeat", "round", f"ndcg@{outcome.settings.k}"])
    for (name, gamma), curves in outcome.curves.items():
        for repeat, curve in enumerate(curves):
            for round_, value in zip(outcome.rounds, curve, strict=True):
                writer.writerow([name, gamma, repeat, round_, repr(float(value))])
    return text.getvalue()


def _results(outcome: Outcome) -> dict[str, Any]:
    return {**outcome.as_dict(), "findings": sentences(outcome), "versions": versions()}


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    packages = ("fultr", "numpy", "numba", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _page(outcome: Outcome, svg: str, seconds: float) -> str:
    settings = outcome.settings
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        files("fultr").joinpath("templates/report.html").read_text(encoding="utf-8")
    )
    made_with = ", ".join(f"{name} {number}" for name, number in versions().items())
    lead = (
        f"{outcome.data}: {settings.clients:,} clients a round, {settings.rounds:,} rounds, {settings.displayed} "
        f"documents displayed, {settings.sessions.queries} queries and {settings.sessions.clicks} clicks a client, "
        f"{settings.repeats} repeats. Took {seconds:.0f} s with {made_with}."
    )
    choices = [
        (
            c.algorithm,
            f"{c.gamma:g}",
            f"{c.client_rate:g}" + (" (edge)" if "client" in c.at_edge else ""),
            f"{c.server_rate:g}" + (" (edge)" if "server" in c.at_edge else ""),
            f"{max(score for _, _, score in c.grid):.4f}",
        )
        for c in outcome.choices
    ]
    return template.render(
        title="FedIPS, FedAvg and λLinear across bias severities",
        lead=lead,
        sentences=sentences(outcome),
        table=table(outcome),
        gammas=[f"{gamma:g}" for gamma in settings.gammas],
        k=settings.k,
        repeats=settings.repeats,
        figure=svg[svg.index("<svg") :],
        choices=[*choices, ("λLinear", "any", "–", f"{outcome.lambda_rate:g}", "–")],
        configuration=json.dumps(_results(outcome)["settings"], indent=1),
    )
