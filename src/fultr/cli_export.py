"""The commands `fultr export` and `fultr versions`."""

from __future__ import annotations

from pathlib import Path

import click

from fultr.cli_options import json_option


@click.command()
@click.argument("ranker", type=click.Path(path_type=Path))
@click.option("--to", required=True, type=click.Choice(["onnx", "json"]), help="What to write.")
@click.option("-o", "--out", type=click.Path(path_type=Path),
              help="Where to write.  [default: stdout]")  # fmt: skip
def export(ranker: Path, to: str, out: Path | None) -> None:
    """Write a RANKER in a form that an application on a phone can use.

    RANKER is a file that `fultr simulate --out` wrote, a version's file, or FOLDER@NAME: a version in a folder of
    versions, by its name, its number or as latest.

    onnx: a graph from the features of one query's documents (float32 [documents, features], in the ranker's order) to
    their scores; it is run by onnxruntime and compared with fultr's scores before it is written. Needs
    pip install 'fultr[export]'.

    json: weights, feature names, how to score in words, and an example with its scores that a program can check itself
    with.

    Both take features as they are, not normalised: if the ranker was trained on features normalised within each query,
    that is part of the scoring.

    \b
    Examples
      fultr export out/sim/ranker.json --to json --out ranker-phone.json
      fultr export versions@latest --to onnx --out ranker.onnx
      fultr export versions@v0003 --to json | jq .weights
    """
    from fultr.commands import export_ranker

    export_ranker(ranker, to, out)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
def versions(folder: Path, as_json: bool) -> None:
    """List the versions of a ranker in DIR, the latest last.

    Of each: its name, when it was made, the version that its training started from (parent), its rounds, and how good
    it is. Of a federation, "held-out clicks" says how high clicked documents stand that devices kept from the
    training, and "as displayed" the same for the order in which users saw them.

    `fultr deploy train` keeps its versions in DIR/state/versions; fultr.Versions writes others. Every command that
    takes a ranker takes DIR@NAME, DIR@v0003 or DIR@latest.

    \b
    Examples
      fultr versions fed/state/versions
      fultr versions fed/state/versions --json | jq '.[-1].configuration'
      fultr evaluate fed/state/versions@latest synthetic
    """
    from fultr.commands import list_versions

    list_versions(folder, as_json)
