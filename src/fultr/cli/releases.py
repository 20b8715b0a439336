"""The commands `fultr deploy rollout`, `promote`, `rollback` and `releases`: which ranker devices use."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fultr.cli.console import print_json, print_table, say, working
from fultr.cli.options import PATH, json_option

if TYPE_CHECKING:
    from fultr.rankers.release import Release

_folder = click.argument("folder", metavar="DIR", type=PATH)


@click.command()
@_folder
@click.argument("version", default="latest")
@click.option("--share", default=0.2, show_default=True, type=click.FloatRange(0, 1, min_open=True),
              help="Share of the devices that use it.")  # fmt: skip
@click.option("--no-comparison", is_flag=True, help="Only release it; the SuperLink need not run.")
def rollout(folder: Path, version: str, share: float, no_comparison: bool) -> None:
    """Try a version on a share of the devices.

    VERSION is its name, its number or latest. The other devices keep the stable version. A hash of their keys decides
    which devices try it: with a larger share the same ones stay in, and others join.

    All connected devices then judge both versions by the same clicks, which they have kept from training. If the
    candidate is worse by more than chance explains (the whole 95% interval is below zero, whichever device is left
    out), it is withdrawn at once, and likewise at the end of every later training while it is the candidate.

    \b
    Examples
      fultr deploy rollout fed               the latest, on a fifth of the devices
      fultr deploy rollout fed v0007 --share 0.5
    """
    from fultr.deploy.release import rollout

    step = rollout(folder, version, share)
    if step.release.candidate is None:
        say(f"{step.release.stable.name} is what all devices use already")
        return
    _tell(step.release, step.changed)
    if not no_comparison:
        _compare(folder)


def _compare(folder: Path) -> None:
    """Have devices judge the candidate and the stable version by the same held-out clicks, and say what they found."""
    from fultr.deploy.training import follow, latest_comparison, submit

    named = shlex.quote(str(folder))
    with working("Devices compare the two versions"):
        run, new = submit(folder, "compare")
        if not new:
            say(f"run {run} is in progress; the versions are compared at its end")
            return
        follow(folder, run, new)
    found = latest_comparison(folder)
    say(found["says"] if found else "no device has judged them")
    if not found or found["verdict"] != "worse":
        say(
            f"Devices take it when they next look. Then: fultr deploy promote {named}, or fultr deploy rollback {named}"
        )


@click.command()
@_folder
@click.argument("version", required=False)
def promote(folder: Path, version: str | None) -> None:
    """Give a version to all devices.

    Without VERSION, the candidate of `fultr deploy rollout`; if nothing has been released yet, the latest version.

    \b
    Examples
      fultr deploy promote fed
      fultr deploy promote fed v0003
    """
    from fultr.deploy.release import promote

    step = promote(folder, version)
    _tell(step.release, step.changed)


@click.command()
@_folder
@click.argument("version", required=False)
def rollback(folder: Path, version: str | None) -> None:
    """Withdraw the candidate, or return to an earlier version.

    Without VERSION, devices that use the candidate return to the stable version. With VERSION, which must have been
    stable before, all devices use that one.

    \b
    Examples
      fultr deploy rollback fed
      fultr deploy rollback fed v0003
    """
    from fultr.deploy.release import read_releases, rollback

    step = rollback(folder, version)
    _tell(step.release, step.changed)
    if not step.changed and version is None:
        stable = step.release.stable.name
        earlier = [release.stable.name for release in read_releases(folder) if release.stable.name != stable]
        if earlier:
            back = shlex.join(["fultr", "deploy", "rollback", str(folder), earlier[-1]])
            say(f"There is no candidate to withdraw. To return to the stable version before: {back}")


@click.command()
@_folder
@json_option
def releases(folder: Path, as_json: bool) -> None:
    """List what was released to the devices, the latest last.

    For each release: the version of all devices (stable), the one under trial (candidate) and the share of devices that
    use it, what led to it, and whether that was automatic.

    \b
    Example
      fultr deploy releases fed
    """
    from fultr.deploy.release import read_releases

    found = read_releases(folder)
    if as_json:
        print_json([asdict(release) for release in found])
        return
    if not found:
        say(f"{folder}: nothing has been released yet: {shlex.join(['fultr', 'deploy', 'promote', str(folder)])}")
        return
    rows = [["release", "made", "action", "stable", "candidate", "share", "why"]]
    for release in found:
        candidate = "" if release.candidate is None else release.candidate.name
        share = f"{release.share:.0%}" if candidate else ""
        action = f"{release.action}, automatic" if release.automatic else release.action
        made = release.made.replace("T", " ")[:16]
        rows.append([str(release.serial), made, action, release.stable.name, candidate, share, release.why])
    print_table(rows, left=len(rows[0]))


def _tell(release: Release, changed: bool) -> None:
    """Say what devices use now."""
    begins = f"release {release.serial}" if changed else f"unchanged since release {release.serial}"
    if release.candidate is None:
        say(f"{begins}: {release.stable.name} for all devices")
    else:
        others = f"{release.stable.name} for the others" if release.share < 1 else "none keep the stable one"
        say(f"{begins}: {release.candidate.name} for {release.share:.0%} of the devices, {others}")
