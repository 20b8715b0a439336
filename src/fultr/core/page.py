"""What all pages share: templates, style, numbers that read well, and plots that show theirs when pointed at.

A page is one file that needs no other. Its template includes `page.css` and `page.js` from this package's templates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from markupsafe import Markup

from fultr.core.arrays import Float64s
from fultr.core.drawing import rendered

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def page_template(package: str, name: str) -> jinja2.Template:
    """A template of a package, which may include those of this one; values are escaped, and `typeset` is a filter."""
    loaders = [jinja2.PackageLoader(package), jinja2.PackageLoader("fultr.core")]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["typeset"] = typeset
    return environment.get_template(name)


def typeset(text: str) -> str:
    r"""Text whose numbers read well: no break within "γ = 1" or "0.5 ± 0.1", minus signs, powers of ten.

    >>> typeset("a - b is -0.1, p = 2e-05")
    'a - b is −0.1, p\xa0=\xa02·10⁻⁵'
    """
    text = re.sub(r" ([=±<]) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", text)
    text = re.sub(
        r"(?<=\d)e-0*(\d+)", lambda m: "·10⁻" + m[1].translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")), text
    )
    return re.sub(r"(?<![^\s(])-(?=\d)", "−", text)


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a plot, as the page's script reads it.

    Attributes:
        name: of the line.
        colour: #rrggbb.
        x: of its points; empty for a level.
        mean: at every x.
        error: what is shown after ±; None: nothing.
    """

    name: str
    colour: str
    x: Float64s
    mean: Float64s
    error: Float64s | None


@dataclass(frozen=True)
class Reading:
    """How the script says where a reader points: the name of x, whether its axis is logarithmic, and named ticks."""

    label: str
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()


def plot(figure: Figure, label: str, reading: Reading, curves: list[Curve], prefix: str) -> dict[str, Any]:
    """A figure with one pair of axes as a page shows it: its drawing, and what the script needs to read it.

    Args:
        figure: drawn with `fultr.core.drawing.STYLE`.
        label: what it shows, for those who do not see it.
        reading: of its horizontal axis.
        curves: what can be read.
        prefix: of the ids in the drawing, which must be unique in the page.
    """
    axes = figure.axes[0]
    box = axes.get_position()
    return {
        "drawing": _inline(rendered(figure, "svg", text=True).decode(), prefix),
        "label": label,
        "data": {
            "box": [round(value, 5) for value in (box.x0, 1 - box.y1, box.width, box.height)],
            "x": axes.get_xlim(),
            "y": axes.get_ylim(),
            "log": reading.log,
            "label": reading.label,
            "ticks": list(reading.ticks),
            "lines": [
                {
                    "name": one.name,
                    "colour": one.colour,
                    "x": [int(x) if x.is_integer() else x for x in one.x.tolist()],
                    "mean": np.round(one.mean, 5).tolist(),
                    "error": [] if one.error is None else np.round(one.error, 5).tolist(),
                }
                for one in curves
            ],
        },
    }


def _inline(svg: str, prefix: str) -> Markup:
    """A drawing for use within a page: as wide as the page allows, with unique ids and short coordinates."""
    svg = re.sub(r"<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', svg, count=1)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'( id="|="#|url\(#)', rf"\g<1>{prefix}", svg)
    shorter = re.compile(r"-?\d+\.\d{3,}")
    return Markup(re.sub(r'(?<= d=")[^"]+', lambda d: shorter.sub(lambda n: f"{float(n[0]):.2f}", d[0]), svg))
