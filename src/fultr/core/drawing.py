"""What all figures share: colours, style, and files with the same bytes for the same figure."""

from __future__ import annotations

import io
from typing import Any, Literal, TypeAlias

import matplotlib as mpl
from matplotlib.figure import Figure

# Okabe and Ito (2008), and greys for reference lines.
PALETTE = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "black": "#000000",
    "yellow": "#F0E442",
    "grey": "#777777",
    "light grey": "#AAAAAA",
}


STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#5c6675",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6eaee",
    "xtick.color": "#3c4654",
    "ytick.color": "#3c4654",
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "legend.fontsize": 8,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "pdf.fonttype": 42,
    "svg.hashsalt": "fultr",  # the same figure gives the same file
}


Kind: TypeAlias = Literal["png", "svg", "pdf"]


def rendered(figure: Figure, kind: Kind, *, text: bool = False) -> bytes:
    """The file of a figure, the same bytes for the same figure.

    Args:
        figure: to be rendered.
        kind: of the file.
        text: keep text as text in SVG, which a page shows in its own font.
    """
    metadata: dict[str, dict[str, None]] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    buffer = io.BytesIO()
    with mpl.rc_context({**STYLE, "svg.fonttype": "none" if text else "path"}):
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata[kind])
    return buffer.getvalue()
