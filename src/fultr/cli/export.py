"""The commands `fultr export` and `fultr versions`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from fultr.cli.console import print_json, print_table, say
from fultr.cli.options import PATH, json_option
from fultr.core.errors import FultrError


@click.command()
@click.argument("ranker", type=PATH)
@click.option("--to", required=True, type=click.Choice(["onnx", "json"]), help="Format to write.")
@click.option("-o", "--out", type=PATH, help="File to write to.  [default: stdout]")
def export(ranker: Path, to: str, out: Path | None) -> None:
    """Write a RANKER in a form that an application can use.

    RANKER is a file that `fultr simulate --out` wrote, a version's file, or FOLDER@NAME: a version in a folder of
    versions, given by its name, by its number or as latest.

    onnx: a graph from the features of one query's documents (float32 [documents, features], in the ranker's order) to
    their scores. Before it is written, onnxruntime runs it and its scores are compared with fultr's. Needs
    pip install 'fultr[export]'.

    json: the weights, the feature names, how to score in words, and an example with its scores, against which a
    program can check itself.

    Both take the features as they are, not normalised: if the ranker was trained on features normalised within each
    query, the normalisation is part of the scoring.

    \b
    Examples
      fultr export out/sim/ranker.json --to json --out ranker-phone.json
      fultr export versions@latest --to onnx --out ranker.onnx
      fultr export versions@v0003 --to json | jq .weights
    """
    from fultr.core.files import written_whole
    from fultr.rankers.export import check_onnx, to_json, to_onnx
    from fultr.rankers.versions import read_ranker

    loaded, version = read_ranker(ranker)
    if to == "onnx" and out is None and sys.stdout.isatty():
        raise FultrError("an ONNX file is not for a terminal: give --out FILE")
    if to == "json":
        content = to_json(version or loaded).encode()
    else:
        content = to_onnx(version or loaded)
        agreement = check_onnx(content, loaded)
        say(f"Checked with onnxruntime: its scores and fultr's differ by at most {agreement:.1e}.")
    if out is None:
        sys.stdout.buffer.write(content)
        return
    with written_whole(out) as temporary:
        temporary.write_bytes(content)


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@json_option
def versions(folder: Path, as_json: bool) -> None:
    """List the versions of a ranker in DIR, the latest last.

    For each: its name, when it was made, the version that its training started from (parent), the number of rounds,
    and how good it is. For versions trained by a federation, "held-out clicks" measures how high they rank the clicked
    documents of impressions that the devices kept out of training; "as displayed" is the same for the order that the
    users saw.

    `fultr deploy train` keeps its versions in DIR/state/versions; fultr.Versions writes others. Every command that
    takes a ranker takes DIR@NAME, DIR@v0003 or DIR@latest.

    \b
    Examples
      fultr versions fed/state/versions
      fultr versions fed/state/versions --json | jq '.[-1].configuration'
      fultr evaluate fed/state/versions@latest synthetic
    """
    from fultr.rankers.versions import Versions

    names = Versions(folder).list()
    if not names:
        inside = [place for place in (folder / "versions", folder / "state" / "versions") if Versions(place).list()]
        hint = f"; there are some in {inside[0]}" if inside else "" if folder.is_dir() else ": there is no such folder"
        raise FultrError(f"{folder}: expected a folder of versions, found none{hint}")
    found = [Versions(folder).read(name) for name in names]
    if as_json:
        told = ("name", "made", "parent", "metrics", "note", "configuration", "fultr", "digest")
        print_json([{name: getattr(version, name) for name in told} for version in found])
        return
    metrics = list(dict.fromkeys(name for version in found for name in version.metrics))
    notes = ["note"] if any(version.note for version in found) else []
    rows = [["version", "made", "parent", *notes, "rounds", *metrics]]
    for version in found:
        said = [version.note] if notes else []
        measured = [_measured(version.metrics.get(name)) for name in metrics]
        made = version.made.replace("T", " ")[:16]
        rounds = str(version.configuration.get("rounds", ""))
        rows.append([version.name, made, version.parent or "", *said, rounds, *measured])
    print_table(rows, left=3 + len(notes))
    say(f"Times are UTC; ± is the standard error. To use one: fultr rank {folder}@{names[-1].partition('-')[0]} FILE")


def _measured(metric: dict[str, Any] | None) -> str:
    """A metric for people; empty where it is not known."""
    if metric is None or metric["mean"] is None:
        return ""
    error = metric["standard_error"]
    return f"{metric['mean']:.4f}" if error is None else f"{metric['mean']:.4f} ± {error:.4f}"
