"""The commands `fultr evaluate` and `fultr rank`: what a ranker is worth, and its scores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fultr.cli.console import print_json, print_table, say, working
from fultr.cli.options import PATH, json_option, numbers, reading_options, sentinel_option
from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from fultr.core.arrays import Float32s
    from fultr.data.layouts import Sentinel
    from fultr.data.ranking import RankingData
    from fultr.rankers.metrics import Summary
    from fultr.rankers.ranker import Ranker


@click.command()
@click.argument("ranker", type=PATH)
@click.argument("data")
@click.option("--split", default="test", show_default=True, type=click.Choice(["train", "valid", "test"]),
              help="Queries of a data set to measure on; a single file is used as a whole.")  # fmt: skip
@click.option("--k", "cutoffs", default="1,5,10", show_default=True, callback=numbers(int),
              help="Cutoffs, with commas between them.")  # fmt: skip
@click.option("--relevant-grade", type=int,
              help="Lowest relevant grade.  [default: the one it was trained with]")  # fmt: skip
@reading_options
@json_option
def evaluate(
    ranker: Path,
    data: str,
    split: str,
    cutoffs: tuple[int, ...],
    relevant_grade: int | None,
    fold: int,
    merge: bool,
    sentinel: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure a RANKER on DATA: NDCG, MRR, precision, relevant position.

    RANKER is a file that `fultr simulate --out` wrote, a version's file, or FOLDER@NAME: a version in a folder of
    versions, given by its name, by its number or as latest.

    DATA is a data set (synthetic, or a folder) or a single LETOR file. In a data set, queries whose documents all have
    the same grade are left out; in a single file, every query with a relevant document counts.

    \b
    Examples
      fultr evaluate out/sim/ranker.json synthetic
      fultr evaluate out/sim/ranker.json my-judgements.txt --k 3,10
      fultr evaluate versions@latest my-judgements.txt
    """
    from dataclasses import asdict

    from fultr.core.checks import MAX_GRADE, check_number
    from fultr.data.load import load
    from fultr.rankers.metrics import default_relevant_grade
    from fultr.rankers.versions import read_ranker

    loaded, version = read_ranker(ranker)
    if Path(data).exists() and not Path(data).is_dir():
        queries, where = _read_for(loaded, Path(data), merge, sentinel or None), data
    else:
        with working("Loading the data"):
            queries = getattr(load(data, fold=fold, merge=merge, sentinel=sentinel or "auto"), split)
        where = f"{data}, {split} queries"
    users = loaded.training.get("click_model")
    trained_with = users.get("relevant_grade") if isinstance(users, dict) else None
    grade = relevant_grade if relevant_grade is not None else trained_with or default_relevant_grade(queries)
    check_number("relevant grade", grade, least=1, most=MAX_GRADE, whole=True)
    measured = _measured(loaded.score(queries), queries, cutoffs, grade)
    if as_json:
        plain = {n: asdict(s) for n, s in measured.items()}
        name = None if version is None else version.name
        content = {"ranker": str(ranker), "version": name, "data": where, "relevant_grade": grade, "metrics": plain}
        print_json(content)
        return
    rows = [[n, f"{s.mean:.4f}", f"{s.standard_error:.4f}", f"{s.queries:,}"] for n, s in measured.items()]
    print_table([["metric", "mean", "standard error", "queries"], *rows], title=where)
    say(
        f"In all metrics but NDCG, grades from {grade} up are relevant, and queries without a relevant document are "
        "left out."
    )


def _measured(scores: Float32s, data: RankingData, cutoffs: tuple[int, ...], grade: int) -> dict[str, Summary]:
    from fultr.rankers.metrics import average_relevant_position, mrr, ndcg, precision, summarise

    values = {
        **{f"NDCG@{k}": ndcg(scores, data, k=k) for k in cutoffs},
        **{f"precision@{k}": precision(scores, data, k=k, relevant_grade=grade) for k in cutoffs},
        "MRR": mrr(scores, data, relevant_grade=grade),
        "average relevant position": average_relevant_position(scores, data, relevant_grade=grade),
    }
    return {name: summarise(v) for name, v in values.items()}


@click.command()
@click.argument("ranker", type=PATH)
@click.argument("file", type=PATH)
@click.option("--format", "layout", default="scores", show_default=True, type=click.Choice(["scores", "trec"]),
              help="scores: one per document, in the order of the file. trec: lines of query, Q0, document, rank, "
              "score and tag, in the order of the ranking.")  # fmt: skip
@click.option("--tag", default="fultr", show_default=True, help="Name of the run: the last column of the TREC format.")
@sentinel_option
@click.option("-o", "--output", type=PATH, help="File to write to.  [default: stdout]")
def rank(ranker: Path, file: Path, layout: str, tag: str, sentinel: tuple[str, ...], output: Path | None) -> None:
    """Score or rank the documents of a LETOR FILE with a RANKER.

    RANKER is a file that `fultr simulate --out` wrote, a version's file, or FOLDER@NAME: a version in a folder of
    versions, given by its name, by its number or as latest.

    In TREC format a document is named by the `docid = NAME` in the comment of its line, or else by its query and its
    position there, such as 17.3.

    \b
    Examples
      fultr rank out/sim/ranker.json test.txt > scores.txt
      fultr rank out/sim/ranker.json test.txt.gz --format trec -o run.trec
      fultr rank versions@v0003 test.txt
    """
    from fultr.core.files import written_whole
    from fultr.rankers.versions import read_ranker

    loaded, _ = read_ranker(ranker)
    if layout == "trec" and file.exists() and not file.is_file():
        raise FultrError(f"{file}: in TREC format a file is read twice, which a pipe does not allow; save it first")
    data = _read_for(loaded, file, sentinel=sentinel or None)
    scores = loaded.score(data)
    if layout == "scores":
        text = "".join(f"{s}\n" for s in scores)
    else:
        text = _trec_run(loaded, data, scores, _document_names(file, data), tag)
    if output is None:
        sys.stdout.write(text)
        return
    with written_whole(output) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _read_for(ranker: Ranker, file: Path, merge: bool = False, sentinel: Sentinel = None) -> RankingData:
    """A LETOR file with the ranker's columns, normalised as its training data were."""
    import numpy as np

    from fultr.data.letor.reader import LetorFile

    ranker.check_ids()
    letor = LetorFile(file, merge=merge, sentinel=sentinel)
    missing = np.setdiff1d(ranker.feature_ids, letor.feature_ids).size
    if missing == ranker.feature_ids.size:
        raise FultrError(f"{file}: has none of the {missing} features that the ranker was trained on")
    if missing:
        say(f"{file}: {missing} of the ranker's {ranker.feature_ids.size} features do not occur; they count as 0")
    data = letor.read(ranker.feature_ids)
    return data.normalise(overwrite=True) if ranker.normalised else data


def _trec_run(ranker: Ranker, data: RankingData, scores: Any, names: list[str], tag: str) -> str:
    import re

    import numpy as np

    if not re.fullmatch(r"\S+", tag):
        raise FultrError(f"tag: expected a word without spaces, found {tag!r}")
    order = ranker.rank(data)
    query = np.repeat(np.arange(data.queries), np.diff(data.offsets))[order]
    places = np.arange(data.documents) - data.offsets[query] + 1
    return "".join(
        f"{data.query_ids[q]} Q0 {names[row]} {place} {scores[row]} {tag}\n"
        for q, row, place in zip(query, order, places, strict=True)
    )


def _document_names(file: Path, data: RankingData) -> list[str]:
    """The `docid = NAME` of each line's comment; where there is none, query id and place in the query."""
    import re

    import numpy as np

    from fultr.core.compressed import map_text

    named = re.compile(rb"#.*?docid\s*=\s*(\S+)")
    text = map_text(file)
    lines = (line for line in iter(text.readline, b"") if line.split(b"#")[0].strip())
    places = [f"{q}.{i + 1}" for q, n in zip(data.query_ids, np.diff(data.offsets), strict=True) for i in range(n)]
    found = (named.search(line) for line in lines)
    return [match[1].decode(errors="replace") if match else place for match, place in zip(found, places, strict=True)]
