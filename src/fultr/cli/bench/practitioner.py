"""`fultr bench practitioner`: `UnbiasedRanker` against LightGBM and XGBoost on the same click logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fultr.cli.console import print_json, print_table, say, working
from fultr.core.drawing import rendered
from fultr.core.errors import FultrError
from fultr.core.files import make_folder, written_whole
from fultr.data.load import load
from fultr.study.practitioner import cases, measure
from fultr.study.practitioner_methods import METHODS
from fultr.study.practitioner_report import draw, kinds, markdown, rows


def practitioner(
    data: Sequence[str],
    clicks: Sequence[int],
    gammas: Sequence[float],
    policies: Sequence[int],
    repeats: int,
    tuned: bool,
    lines: Path,
    report: Path | None,
    as_json: bool,
) -> None:
    """Measure what is missing, and print the means.

    Args:
        data: names of data sets, or NAME=FOLDER.
        clicks: sizes of logs.
        gammas: bias severities of the users.
        policies: how many logging policies made a log.
        repeats: logs of each kind.
        tuned: also other software whose settings are chosen.
        lines: file of measurements, added to.
        report: folder for a table and a figure of all that is in this file.
        as_json: print the means as JSON.
    """
    places = {one.partition("=")[0]: one.partition("=")[2] or one for one in data}
    with working("Loading"):
        loaded = {name: load(place) for name, place in places.items()}
    methods = [name for name in METHODS if tuned or not name.endswith("tuned")]
    for module, word in (("lightgbm", "LightGBM"), ("xgboost", "XGBoost")):
        if find_spec(module) is None:
            if module == "lightgbm":
                raise FultrError("lightgbm: not installed; pip install lightgbm")
            say(f"{word} is not installed, and left out")
            methods = [name for name in methods if not name.startswith(word)]
    wanted = list(cases(list(places), list(gammas), list(policies), list(clicks), repeats))
    found = measure(loaded, wanted, methods, lines, say)
    kept = {(case.repeat, case.clicks, case.data, case.gamma, case.policies) for case in wanted}
    if report is not None:
        write_report(found, report)
    measured = kinds(line for line in found if _key(line) in kept)
    if as_json:
        print_json({"lines": str(lines), "means": [row for kind in measured for row in rows(kind)]})
        return
    for kind in measured:
        heads = ["method", "logs", "NDCG@5", "ahead", "95% interval", "seconds"]
        print_table([heads, *map(_told, rows(kind))], title=f"{kind.data}, {kind.about}")


def write_report(lines: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write practitioner.md, a table with a row for each kind of log, and practitioner.png."""
    measured = kinds(lines)
    make_folder(folder)
    written = {"md": (markdown(measured) + "\n").encode(), "png": rendered(draw(measured), "png")}
    for kind, content in written.items():
        with written_whole(folder / f"practitioner.{kind}") as temporary:
            temporary.write_bytes(content)
    say(f"Wrote {folder / 'practitioner.md'} and practitioner.png")


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("repeat", "clicks", "data", "gamma", "policies"))


def _told(row: Mapping[str, Any]) -> list[str]:
    ahead = "" if row["ahead"] is None else f"{row['ahead']:+.3f}"
    interval = "" if row["ahead_low"] is None else f"{row['ahead_low']:+.3f} to {row['ahead_high']:+.3f}"
    return [row["method"], str(row["logs"]), f"{row['ndcg']:.3f}", ahead, interval, f"{row['cpu']:.1f}"]
