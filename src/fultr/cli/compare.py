"""The command `fultr compare`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from fultr.cli.console import compiling, print_json, print_table, progress_bar, say, working
from fultr.cli.options import PATH, features_option, json_option, unordered_option
from fultr.cli.writing import FIGURE, check_written, save_figure
from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from fultr.clicks.compare import Comparison
    from fultr.clicks.evaluated import Evaluation
    from fultr.clicks.files import LogFile
    from fultr.rankers.ranker import Ranker

_LOGGED = "logged"
_WORDS = {
    "clicks": "clicks per page",
    "dcg": "DCG per page",
    "reciprocal": "sum of 1 / rank of relevant documents, per page",
    "precision": "precision",
    "rank": "sum of ranks of relevant documents, per page",
}
_NO_INTERVAL = "no interval"
_MORE = {"clicks": "get more clicks than", "rank": "rank relevant documents higher than"}


@click.command()
@click.argument("clicklog", type=PATH)
@click.argument("first")
@click.argument("second")
@click.option("--metric", default="clicks", show_default=True, type=click.Choice(list(_WORDS)),
              help="What is estimated, per page.")  # fmt: skip
@click.option("--estimator", default="ips", show_default=True,
              type=click.Choice(["ips", "self-normalised", "doubly-robust"]),
              help="ips: unbiased; self-normalised: per relevant document; doubly-robust: less variance.")  # fmt: skip
@click.option("--cutoff", type=click.IntRange(min=1), help="Count the first ranks only.  [default: all]")
@click.option("--clip", type=click.FloatRange(min=0, min_open=True), help="Largest weight of a click.  [default: none]")
@click.option("--examination", help="Examination of each rank, such as 1,0.6,0.4.  [default: estimated from the log]")
@click.option("--method", default="auto", show_default=True,
              type=click.Choice(["auto", "all-pairs", "adjacent", "regression", "em"]),
              help="How examination is estimated, see fultr estimate.")  # fmt: skip
@click.option("--most-unseen", default=0.5, show_default=True, type=click.FloatRange(0, 1),
              help="Refuse if a larger share of what a ranker would show was not on the page.")  # fmt: skip
@click.option("--scale", is_flag=True, help="Scale the log's features to [0, 1] within each query.")
@click.option("--bootstrap", "draws", default=500, show_default=True, type=click.IntRange(20, 10**6),
              help="Bootstrap draws for the 95% intervals.")  # fmt: skip
@click.option("--over", type=click.Choice(["users", "queries", "pages"]),
              help="What the bootstrap draws.  [default: users if known, else queries, else pages]")  # fmt: skip
@features_option
@unordered_option
@click.option("--separator", help="What separates documents, and clicks, within a column.  [default: detected]")
@click.option("--seed", default=0, show_default=True, help="Seed of the bootstrap.")
@click.option("--figure", type=PATH, help="Draw both, and their difference: FILE.png, FILE.svg or FILE.pdf.")
@json_option
def compare(
    clicklog: Path,
    first: str,
    second: str,
    metric: str,
    estimator: str,
    cutoff: int | None,
    clip: float | None,
    examination: str | None,
    method: str,
    most_unseen: float,
    scale: bool,
    draws: int,
    over: str | None,
    features: list[str] | None,
    unordered: bool,
    separator: str | None,
    seed: int,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Ask a click log which of two rankers would have got more clicks.

    CLICKLOG is what fultr estimate reads, with the documents' features. FIRST and SECOND are rankers: a file that
    fultr simulate or fultr train wrote, FOLDER@NAME for a version, or the word logged for the order that users saw.

    The documents of every page are put in each ranker's order. A click at a rank with examination p counts 1 / p at its
    new rank, where it is examined with that rank's probability. Examination is estimated from the same log, in every
    draw of the bootstrap anew. Both rankers are judged on the same pages, so their difference is surer than either.

    Where the log cannot tell, the answer is inconclusive and says why: too few clicks or users, examination that cannot
    be estimated, a ranker that would have shown mostly what was not on the page. A ranker that fultr train made from
    this very log looks better than it is, and a line says so: compare on clicks that came after.

    \b
    Examples
      fultr data clicks && fultr simulate --out out/sim
      fultr compare clicks.tsv logged out/sim/ranker.json
      fultr compare clicks.tsv old.json new.json --figure compared.png
      fultr compare clicks.parquet versions@v0003 versions@latest --json
      fultr compare clicks.tsv logged new.json --metric dcg --examination 1,.6,.4
    """
    from fultr.clicks.compare import compare_rankers
    from fultr.clicks.files import LogFile, read_click_log
    from fultr.rankers.click_logs import score_pairs, trained_on
    from fultr.rankers.versions import read_ranker

    check_written({FIGURE: figure}, {"CLICKLOG": clicklog, "FIRST": first, "SECOND": second})
    if metric == "precision" and cutoff is None:
        raise FultrError(
            "--cutoff: expected one with --metric precision; all orders of a page have the same without it"
        )
    if first == second:
        raise FultrError(f"expected two different rankers, found {first} twice")
    loaded = {name: None if name == _LOGGED else read_ranker(name)[0] for name in (first, second)}
    with working("Reading"):
        file = LogFile(clicklog)  # once: it may be a pipe
        log = read_click_log(file, separator=separator, features=features or _known(file, loaded.values()))
    with _naming(clicklog):
        scores = {name: r if r is None else score_pairs(r, log, scale=scale) for name, r in loaded.items()}
    trained = {name: False if r is None else trained_on(r, log) for name, r in loaded.items()}
    known = None if examination is None else _numbers(examination, log.ranks)
    with compiling(2), progress_bar(2 * draws, "Bootstrap") as done, _naming(clicklog):
        found = compare_rankers(
            log,
            cast(Any, scores),
            examination=known,
            method=cast(Any, method),
            metric=cast(Any, metric),
            estimator=cast(Any, estimator),
            cutoff=cutoff,
            clip=clip,
            most_unseen=most_unseen,
            over=cast(Any, over),
            draws=draws,
            seed=seed,
            ordered=not unordered,
            on_draw=done,
        )
    if figure is not None:
        _draw(figure, found, first, second)
    if as_json:
        print_json(_as_dict(found, clicklog, trained, figure))
        return
    _print(found, clicklog, first, second)
    if own := [name for name, known in trained.items() if known]:
        print(_flattered(own))
    if figure is not None:
        say(f"Figure: {figure}")


def _known(file: LogFile, rankers: Iterable[Ranker | None]) -> list[str] | None:
    """The rankers' features by name, if they have names and the log has all of these columns."""
    names = list(dict.fromkeys(name for one in rankers if one is not None and one.named for name in one.feature_names))
    return names if names and set(names) <= set(file.columns()) else None


@contextmanager
def _naming(clicklog: Path) -> Iterator[None]:
    """What is wrong with a log is said with its name."""
    try:
        yield
    except FultrError as error:
        raise FultrError(f"{clicklog}: {error}{_hint(str(error))}") from None


def _hint(said: str) -> str:
    return " (--scale)" if said.endswith("have them scaled") else ""


def _numbers(text: str, ranks: int) -> list[float]:
    try:
        given = [float(part) for part in text.split(",")]
    except ValueError:
        raise FultrError(f"--examination: expected numbers with commas between them, found {text!r}") from None
    if len(given) != ranks or not all(0 < p <= 1 for p in given):
        raise FultrError(f"--examination: expected {ranks} numbers above 0 and at most 1, one per rank; found {text!r}")
    return given


def _called(name: str) -> str:
    from fultr.clicks.compare import LOGGED

    return LOGGED if name == _LOGGED else name


def _relative(found: Comparison, first: str) -> tuple[float, float, float] | None:
    """The difference and its interval as shares of the first's value; None if that is not above 0."""
    base = next(value.mean for value in found.evaluation.values if value.name == _called(first))
    gap = found.difference
    return (gap.mean / base, gap.low / base, gap.high / base) if base > 0 else None


def _print(found: Comparison, path: Path, first: str, second: str) -> None:
    said, gap = found.evaluation, found.difference
    unit = _unit(said)
    rows = [["ranker", unit, "95% interval"]]
    for name in (first, second):
        value = next(value for value in said.values if value.name == _called(name))
        span = f"{value.low:.4f} to {value.high:.4f}" if value.low == value.low else _NO_INTERVAL
        rows.append([name, f"{value.mean:.4f}", span])
    rows.append([f"{second} - {first}", f"{_signed(said) * gap.mean:+.4f}", _span(said, gap.low, gap.high)])
    print_table(rows, title=f"{path}, by {said.estimator}")
    print(f"Clicks       {said.clicks:,}, which weighted count as {said.effective:,.0f}")
    print(f"Intervals    bootstrap over {said.units:,} {said.over}")
    print(f"Examination  {', '.join(f'{p:.3f}' for p in found.examination)}" + _trusted(found))
    for name, unseen in zip([value.name for value in said.values], said.unseen, strict=True):
        if unseen:
            print(f"Unseen       {unseen:.0%} of what {name} would have shown was not on the page")
    more = _MORE.get(said.metric, "be better than")
    share = _relative(found, first)
    answer = {"yes": "Yes", "no": "No", "inconclusive": "Inconclusive"}[gap.answer]
    relative = "" if share is None else f" ({share[0]:+.1%}; {_percent(share[1], share[2])})"
    print(f"\nWould {second} {more} {first}? {answer}{relative}.")
    if said.refusal:
        print(f"The log cannot tell: {said.refusal}")
    elif gap.low != gap.low:
        print("No draw of the bootstrap gave an answer, so nothing says how sure this one is.")
    elif gap.low == gap.high == 0:
        print("Both give the same ranks to what was clicked: by this metric they cannot be told apart.")
    elif gap.answer == "inconclusive":
        print("The interval of the difference includes 0; a longer log would narrow it.")


def _flattered(names: list[str]) -> str:
    """What to think of rankers on the log that they were trained on."""
    was, looks, it = ("was", "it looks", "it") if len(names) == 1 else ("were", "they look", "they")
    return (
        f"{' and '.join(names)} {was} trained on this log, so {looks} better here than {it} would on new clicks; "
        "compare on clicks that came after."
    )


def _trusted(found: Comparison) -> str:
    return ", as given" if found.trust is None else f", by {found.method}: {found.trust} (see fultr estimate)"


def _unit(said: Evaluation) -> str:
    unit = _WORDS[said.metric]
    if said.estimator == "self-normalised":
        unit = unit.replace("per page", "per relevant document")
    return unit if said.cutoff is None else f"{unit}, first {said.cutoff} ranks"


def _signed(said: Evaluation) -> float:
    return -1.0 if said.metric == "rank" else 1.0


def _percent(low: float, high: float) -> str:
    return f"95% interval {low:+.1%} to {high:+.1%}" if low == low else _NO_INTERVAL


def _span(said: Evaluation, low: float, high: float) -> str:
    if low != low:
        return _NO_INTERVAL
    ends = sorted((_signed(said) * low, _signed(said) * high))
    return f"{ends[0]:+.4f} to {ends[1]:+.4f}"


def _as_dict(found: Comparison, path: Path, trained: dict[str, bool | None], figure: Path | None) -> dict[str, Any]:
    """A comparison as plain values; `trained`: by ranker, in order, whether it was trained on this log."""
    said, (first, second) = found.evaluation, trained
    share = _relative(found, first)
    values = {value.name: value for value in said.values}
    unseen = dict(zip(values, said.unseen, strict=True))
    return {
        "log": str(path),
        "metric": said.metric,
        "estimator": said.estimator,
        "cutoff": said.cutoff,
        "clip": said.clip,
        "rankers": {
            name: {
                **asdict(values[_called(name)]),
                "name": name,
                "unseen": unseen[_called(name)],
                "trained_on_this_log": known,
            }
            for name, known in trained.items()
        },
        "difference": {**asdict(found.difference), "better": second, "than": first},
        "relative": None if share is None else dict(zip(("mean", "low", "high"), share, strict=True)),
        "answer": found.difference.answer,
        "refusal": said.refusal,
        "over": said.over,
        "units": said.units,
        "clicks": said.clicks,
        "effective_clicks": said.effective,
        "examination": found.examination.tolist(),
        "method": found.method,
        "trust": found.trust,
        "figure": None if figure is None else str(figure),
    }


def _draw(path: Path, found: Comparison, first: str, second: str) -> None:
    from fultr.clicks.compare_figure import draw_comparison

    names = {_called(name): name for name in (first, second)}
    save_figure(path, draw_comparison(found, names, _unit(found.evaluation)))
