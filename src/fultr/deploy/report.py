"""A page about a federation: its quality, its devices, what went wrong, what was released. From its files alone."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fultr.core.errors import FultrError
from fultr.core.files import written_whole
from fultr.core.page import page_template
from fultr.deploy.folder import Deployment, load_deployment
from fultr.deploy.history import REASONS, DeviceHistory, History, Round, read_history, reason_class, spoken_devices
from fultr.deploy.keys import days_left
from fultr.deploy.quality import Quality, examination_plot, half_width, quality_over_rounds, quality_plot
from fultr.deploy.training import read_settings, state_folder
from fultr.federated.judging import Judgement
from fultr.rankers.release import read_release
from fultr.rankers.versions import Versions

MOST_ROUNDS, MOST_DEVICES = 120, 60
"""Columns and rows of the strip: the latest rounds, and the devices with most trouble."""

_MOST_ROWS = 20  # of versions, releases and failed attempts
_WARN_DAYS = 30
_FAILING = 3  # times in a row that a device was of no use, before it counts as one that does not answer
_OUTCOMES = {  # style and symbol, and words
    "answered": ("a", "•", "answered"),
    "refused": ("r", "R", "refused to answer"),
    "bad": ("b", "×", "no usable answer"),
    "silent": ("s", "–", "no answer"),
}


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the page about a federation; returns where.

    Args:
        folder: the deployment's.
        out: the page; DIR/report.html if None.
    """
    deployment = load_deployment(folder)
    page = _page(deployment, state_folder(deployment))
    path = out if out is not None else folder / "report.html"
    with written_whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def _page(deployment: Deployment, state: Path) -> str:
    history, planned = read_history(state), 0
    with suppress(FultrError):
        planned = read_settings(deployment)[0].rounds
    versions = _versions(state)
    quality = quality_over_rounds(history, _final(history, versions))
    devices = history.devices(node.device for node in deployment.nodes)
    certificates = _certificates(deployment)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    examination = next((one.examination for one in reversed(history.completed) if one.examination), ())
    return page_template("fultr.deploy", "report.html").render(
        title=f"The federation {deployment.name}",
        made=made,
        facts=_facts(history, planned, devices, deployment, quality, certificates),
        plots=[
            *([quality_plot(quality)] if quality else []),
            *([examination_plot(examination)] if examination else []),
        ],
        quality=quality,
        examination=list(enumerate(examination, 1)),
        strip=_strip(history, devices),
        legend=list(_OUTCOMES.values()),
        devices=[_device(one) for one in devices if one.asked],
        reasons=_reasons(history),
        attempts=_attempts(history),
        versions=versions[-_MOST_ROWS:][::-1],
        older=max(0, len(versions) - _MOST_ROWS),
        releases=_releases(state),
        certificates=certificates,
        damaged=history.damaged,
        software=_software(),
    )


def _facts(
    history: History,
    planned: int,
    devices: Sequence[DeviceHistory],
    deployment: Deployment,
    quality: Sequence[Quality],
    certificates: Sequence[dict[str, Any]],
) -> list[dict[str, str]]:
    """What is said first."""
    done = history.done
    registered = len(deployment.nodes)
    facts = [
        {
            "name": "Rounds done",
            "value": f"{done:,} of {planned:,}" if planned else f"{done:,}",
            "note": "" if history.completed else "No round is done yet.",
        }
    ]
    here = {node.device for node in deployment.nodes}
    bad = [one.device for one in devices if one.device in here and one.failing >= _FAILING]
    last = history.completed[-1] if history.completed else None
    facts.append(
        {
            "name": "Devices",
            "value": f"{registered:,}",
            "note": f"{len(last.accepted)} of {len(last.outcomes())} answered in the last round." if last else "",
        }
    )
    if quality:
        now = quality[-1]
        when = f"After {now.rounds:,} rounds" if now.rounds else "Before the first round"
        of = f"; {now.devices} devices judged" if now.devices else ""
        note = f"In the displayed order {_with_interval(now.displayed, now.displayed_half)}. {when}{of}."
        if now.ranked_half is not None:
            note = f"95% interval {_interval(now.ranked, now.ranked_half)}. {note}"
        facts.append({"name": "Held-out clicks", "value": f"{now.ranked:.3f}", "note": note})
    if bad:
        note = f"No usable answer from {spoken_devices(bad)} to the last {_FAILING} questions or more."
        facts.append({"name": "Need attention", "value": _counted(len(bad), "device"), "note": note, "style": "no"})
    elif history.rounds:
        facts.append(
            {
                "name": "Need attention",
                "value": "none",
                "note": f"No device failed to answer {_FAILING} times in a row.",
                "style": "yes",
            }
        )
    for one in certificates:
        if one["style"]:
            facts.append({"name": one["name"], "value": one["left"], "note": "README.md says how to renew it."} | one)
    return [{"style": "", **fact} for fact in facts]


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _with_interval(mean: float, half: float | None) -> str:
    """A mean with its 95% interval.

    >>> _with_interval(0.5, 0.25), _with_interval(0.5, None)
    ('0.500 (0.250 to 0.750)', '0.500')
    """
    return f"{mean:.3f}" if half is None else f"{mean:.3f} ({_interval(mean, half)})"


def _interval(mean: float, half: float) -> str:
    return f"{max(0.0, mean - half):.3f} to {min(1.0, mean + half):.3f}"


def _strip(history: History, devices: Sequence[DeviceHistory]) -> dict[str, Any]:
    """Devices by rounds: a column per round or failed attempt, the latest; a row per device, those in trouble first."""
    columns = history.rounds[-MOST_ROUNDS:]
    outcomes = [one.outcomes() for one in columns]
    asked = [one for one in devices if one.asked]
    chosen = sorted(asked, key=lambda one: -(one.refused + one.silent))[:MOST_DEVICES]
    rows = []
    for one in sorted(chosen, key=lambda one: one.device):
        cells = [_cell(one.device, column, found) for column, found in zip(columns, outcomes, strict=True)]
        rows.append((one.device, cells))
    step = next(step for step in (1, 2, 5, 10, 20, 50) if len(columns) <= 30 * step or step == 50)
    heads = [(one.number if one.completed and one.number % step == 0 else "", one.completed) for one in columns]
    return {
        "heads": heads,
        "rows": rows,
        "failed": any(not one.completed for one in columns),
        "earlier": len(history.rounds) - len(columns),
        "others": len(asked) - len(chosen),
    }


def _cell(device: int, column: Round, outcomes: dict[int, Any]) -> tuple[str, str, str]:
    """Style, symbol and words of what a device did in a round."""
    where = f"device {device}, round {column.number}"
    if not column.completed:
        where += f", attempt {column.attempt}, which failed"
    if device not in outcomes:
        return "", "", f"{where}: not asked"
    style, symbol, words = _OUTCOMES[outcomes[device]]
    why = f": {column.refused[device]}" if outcomes[device] == "bad" else ""
    took = f" ({column.answered[device]:.1f} s)" if device in column.answered else ""
    return style, symbol, f"{where}: {words}{why}{took}"


def _device(one: DeviceHistory) -> dict[str, Any]:
    last = f"round {one.last_answered:,}" if one.last_answered else "never"
    return {
        "device": one.device,
        "counts": (one.asked, one.answered, one.refused, one.silent),
        "seconds": "" if one.seconds is None else f"{one.seconds:.1f}",
        "last": last,
        "bad": one.failing >= _FAILING,
    }


def _reasons(history: History) -> list[dict[str, Any]]:
    """Refusals by class of reason, the most frequent first."""
    found: dict[str, dict[str, Any]] = {}
    for one in history.rounds:
        for device, why in one.refused.items():
            name = reason_class(why)
            row = found.setdefault(name, {"name": name, "means": REASONS[name], "count": 0, "devices": set()})
            row["count"] += 1
            row["devices"].add(device)
            row["latest"] = "" if name == "refused" else f"round {one.number}, device {device}: {why}"
    rows = sorted(found.values(), key=lambda row: -row["count"])
    return [{**row, "devices": ", ".join(map(str, sorted(row["devices"])[:12]))
             + (" …" if len(row["devices"]) > 12 else "")} for row in rows]  # fmt: skip


def _attempts(history: History) -> list[tuple[str, str]]:
    failed = [one for one in history.rounds if not one.completed][-_MOST_ROWS:]
    return [(f"round {one.number:,}", "; ".join(one.trouble())) for one in reversed(failed)]


def _versions(state: Path) -> list[dict[str, Any]]:
    """The versions of the ranker, oldest first; one that cannot be read says why."""
    versions = Versions(state / "versions")
    try:
        names = versions.list()
    except FultrError as error:
        return [_version(str(error))]
    rows = []
    for name in names:
        try:
            found = versions.read(name)
        except FultrError as error:
            rows.append(_version(name, note=str(error)))
            continue
        training = found.ranker.training if isinstance(found.ranker.training, dict) else {}
        judged = _judged(found.metrics)
        half = None if judged is None else half_width(judged.ranked_error, judged.devices or None)
        text = "" if judged is None else _with_interval(judged.ranked, half)
        rows.append(_version(name, found.made, training.get("rounds"), text, found.parent or "", found.note, judged))
    return rows


def _version(
    name: str,
    made: str = "",
    rounds: int | None = None,
    quality: str = "",
    parent: str = "",
    note: str = "",
    judged: Judgement | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "made": _when(made),
        "rounds": rounds,
        "quality": quality,
        "parent": parent,
        "note": note,
        "judged": judged,
    }


def _final(history: History, versions: Sequence[dict[str, Any]]) -> Judgement | None:
    """What devices found after the last round, if the latest version is from there."""
    if not versions or versions[-1]["rounds"] != history.done:
        return None
    found: Judgement | None = versions[-1]["judged"]
    return found


def _judged(metrics: dict[str, dict[str, Any]]) -> Judgement | None:
    """What the server app noted with a version, see `write_version`."""
    try:
        ours, theirs = metrics["held-out clicks"], metrics["held-out clicks, as displayed"]
        devices = int(ours.get("devices") or 0)
        return Judgement(
            float(ours["mean"]), float(theirs["mean"]), ours["standard_error"], theirs["standard_error"], devices
        )
    except (KeyError, TypeError, ValueError):
        return None


def _releases(state: Path) -> list[dict[str, str]]:
    """What was released to devices, the newest first."""
    found = []
    for path in (state / "releases").glob("*.json"):
        with suppress(OSError, FultrError):
            found.append(read_release(path.read_bytes()))
    return [
        {
            "serial": str(one.serial),
            "made": _when(one.made),
            "stable": one.stable.name,
            "candidate": one.candidate.name if one.candidate else "",
            "share": f"{one.share:.0%}" if one.candidate else "",
            "what": f"{one.action}{', by itself' if one.automatic else ''}{f': {one.why}' if one.why else ''}",
        }
        for one in sorted(found, key=lambda one: -one.serial)[:_MOST_ROWS]
    ]


def _when(made: str) -> str:
    return made.replace("T", " ").replace("Z", " UTC")


def _certificates(deployment: Deployment) -> list[dict[str, Any]]:
    rows = []
    for name, file in (("Server’s certificate", "server.crt"), ("Certificate authority", "ca.crt")):
        try:
            days = days_left(deployment.superlink / file)
        except FultrError as error:
            rows.append({"name": name, "left": "not readable", "note": str(error), "style": "no"})
            continue
        left = _counted(int(days), "day") if days > 0 else "has expired"
        rows.append({"name": name, "left": left, "note": "", "style": "no" if days < _WARN_DAYS else ""})
    return rows


def _software() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("fultr", "flwr"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
