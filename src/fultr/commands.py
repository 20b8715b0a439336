"""What the commands do, once their options are read."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np

from fultr.checks import check_number
from fultr.console import print_json, print_table, progress_bar, say, working
from fultr.data import MAX_GRADE, RankingData
from fultr.datasets import load
from fultr.errors import FultrError
from fultr.estimation import KINDS, Kind
from fultr.export import check_onnx, to_json, to_onnx
from fultr.files import make_folder, written_whole
from fultr.layouts import Sentinel, inspect
from fultr.letor import LetorFile
from fultr.letor_files import map_text
from fultr.letor_write import write_letor
from fultr.metrics import average_relevant_position, default_relevant_grade, mrr, ndcg, precision, summarise
from fultr.propensity import Propensity, given_propensity
from fultr.rankers import LinearRanker
from fultr.report import versions
from fultr.runs import RunSettings, train
from fultr.simulation import Simulation
from fultr.synthetic import generate
from fultr.versions import Versions, read_ranker


def simulate_once(
    settings: RunSettings,
    *,
    data: str,
    reading: dict[str, Any],
    seed: int,
    out: Path | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """`fultr simulate`."""
    with working("Loading the data"):
        splits = load(data, **reading, threads=threads)
    if out is not None:
        make_folder(out)
    with progress_bar(settings.rounds, "Training") as done:
        run = train(
            settings,
            splits,
            seed=seed,
            checkpoint=None if out is None else out / "checkpoint.npz",
            threads=threads,
            on_round=lambda _: done(None),
        )
    if out is not None:
        _write_simulation(run, out)
    curve = {"round": run.curve.rounds.tolist(), **{name: v.tolist() for name, v in run.curve.ndcg.items()}}
    last = {name: values[-1].tolist() for name, values in vars(run.weighing).items() if name != "rounds"}
    if as_json:
        where = None if out is None else str(out)
        print_json({"settings": run.settings, "ndcg@5": curve, "weighing": last, "out": where})
        return
    shown = np.unique(np.linspace(0, len(curve["round"]) - 1, 11).astype(int))
    rows = [[f"{curve['round'][i]}", f"{curve['valid'][i]:.4f}", f"{curve['test'][i]:.4f}"] for i in shown]
    print_table([["round", "NDCG@5 valid", "NDCG@5 test"], *rows])
    if settings.propensity in KINDS:
        weighed = zip(last["used"], last["true"], last["mass"], strict=True)
        ranks = [[f"{k}", f"{u:.3f}", f"{t:.3f}", f"{m:.2f}"] for k, (u, t, m) in enumerate(weighed, 1)]
        head = ["rank", "estimated", "true examination", "weight, of its due"]
        print_table([head, *ranks], title="In the last round")
    if out is not None:
        say(f"Ranker: {out / 'ranker.json'}  (with curve.csv, settings.json and checkpoint.npz beside it)")


def parse_propensity(text: str) -> Propensity | Kind:
    """What clicks are divided by, as it is written on the command line."""
    named = ("known", "none", *KINDS)
    return cast(Propensity | Kind, text) if text in named else given_propensity(text, named)


def _write_simulation(run: Simulation, out: Path) -> None:
    run.ranker.save(out / "ranker.json")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["round", *(f"ndcg@5 {split}" for split in run.curve.ndcg)])
    for i, round_ in enumerate(run.curve.rounds):
        writer.writerow([round_, *(repr(float(values[i])) for values in run.curve.ndcg.values())])
    with written_whole(out / "curve.csv") as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")
    with written_whole(out / "settings.json") as temporary:
        content = {**run.settings, "versions": versions()}
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _read_for(ranker: LinearRanker, file: Path, merge: bool = False, sentinel: Sentinel = None) -> RankingData:
    """A LETOR file with the ranker's columns, normalised as its training data were."""
    letor = LetorFile(file, merge=merge, sentinel=sentinel)
    missing = np.setdiff1d(ranker.feature_ids, letor.feature_ids).size
    if missing == ranker.feature_ids.size:
        raise FultrError(f"{file}: has none of the {missing} features that the ranker was trained on")
    if missing:
        say(f"{file}: {missing} of the ranker's {ranker.feature_ids.size} features do not occur; they count as 0")
    data = letor.read(ranker.feature_ids)
    return data.normalise(overwrite=True) if ranker.normalised else data


def evaluate_ranker(
    ranker: Path,
    data: str,
    split: str,
    cutoffs: tuple[int, ...],
    relevant_grade: int | None,
    reading: dict[str, Any],
    as_json: bool,
) -> None:
    """`fultr evaluate`."""
    loaded, version = read_ranker(ranker)
    if Path(data).exists() and not Path(data).is_dir():
        sentinel = None if reading["sentinel"] == "auto" else reading["sentinel"]
        queries, where = _read_for(loaded, Path(data), reading["merge"], sentinel), data
    else:
        with working("Loading the data"):
            queries = getattr(load(data, **reading), split)
        where = f"{data}, {split} queries"
    scores = loaded.score(queries)
    trained_with = loaded.training.get("click_model", {}).get("relevant_grade")
    grade = relevant_grade or trained_with or default_relevant_grade(queries)
    check_number("relevant grade", grade, least=1, most=MAX_GRADE, whole=True)
    values = {
        **{f"NDCG@{k}": ndcg(scores, queries, k=k) for k in cutoffs},
        **{f"precision@{k}": precision(scores, queries, k=k, relevant_grade=grade) for k in cutoffs},
        "MRR": mrr(scores, queries, relevant_grade=grade),
        "average relevant position": average_relevant_position(scores, queries, relevant_grade=grade),
    }
    summaries = {name: summarise(v) for name, v in values.items()}
    if as_json:
        numbers = {n: {k: None if v != v else v for k, v in asdict(s).items()} for n, s in summaries.items()}
        name = None if version is None else version.name
        content = {"ranker": str(ranker), "version": name, "data": where, "relevant_grade": grade, "metrics": numbers}
        print_json(content)
        return
    rows = [[n, f"{s.mean:.4f}", f"{s.standard_error:.4f}", f"{s.queries:,}"] for n, s in summaries.items()]
    print_table([["metric", "mean", "standard error", "queries"], *rows], title=where)
    say(f"Grades from {grade} count as relevant in all but NDCG; queries without a relevant document are left out.")


def rank_file(ranker: Path, file: Path, layout: str, tag: str, sentinel: tuple[str, ...], output: Path | None) -> None:
    """`fultr rank`."""
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


def export_ranker(ranker: Path, to: str, out: Path | None) -> None:
    """`fultr export`."""
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


def list_versions(folder: Path, as_json: bool) -> None:
    """`fultr versions`."""
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


def _trec_run(ranker: LinearRanker, data: RankingData, scores: Any, names: list[str], tag: str) -> str:
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
    named = re.compile(rb"#.*?docid\s*=\s*(\S+)")
    text = map_text(file)
    lines = (line for line in iter(text.readline, b"") if line.split(b"#")[0].strip())
    places = [f"{q}.{i + 1}" for q, n in zip(data.query_ids, np.diff(data.offsets), strict=True) for i in range(n)]
    found = (named.search(line) for line in lines)
    return [match[1].decode(errors="replace") if match else place for match, place in zip(found, places, strict=True)]


def inspect_path(
    path: Path, fold: int, merge: bool, sentinel: tuple[str, ...], threads: int | None, as_json: bool
) -> None:
    """`fultr data inspect`."""
    found = inspect(path, fold=fold, merge=merge, sentinel=sentinel or "auto", threads=threads)
    if as_json:
        print_json(found.as_dict())
        return
    print_table(found.counts_table(), title=str(path))
    if found.comparisons:
        print_table(found.comparison_table(), title=f"Compared with {found.compared_with}")
    print(found.verdict())


def make_files(name: str, out: Path, seed: int, compress: str | None, threads: int | None) -> None:
    """`fultr data make`."""
    with working("Generating"):
        splits = generate(name, seed=seed, threads=threads)
    make_folder(out)
    suffix = f".{compress}" if compress else ""
    with progress_bar(3, "Writing") as done:
        for part, file in zip(splits, ("train", "vali", "test"), strict=True):
            write_letor(part, out / f"{file}.txt{suffix}", threads=threads)
            done(None)
    say(f"Wrote {out}/train.txt{suffix}, vali.txt{suffix} and test.txt{suffix}: {splits.train.describe()}")
