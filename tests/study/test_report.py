"""What experiments leave behind, from made-up curves with known numbers."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.colors import rgb_to_hsv, to_rgb

from fultr.cli.outcomes import tally
from fultr.core.drawing import rendered
from fultr.core.errors import FultrError
from fultr.study.claims import Claim
from fultr.study.experiment import Experiment, Line, Outcome, Panel, best_of, choose
from fultr.study.experiment_files import packaged
from fultr.study.figures import draw, draw_panel, hues, limits, panels_of, series, shades
from fultr.study.missing import missing_parts
from fultr.study.origins import Origin, machine, versions
from fultr.study.report import results, write_report
from fultr.study.settings import RunSettings
from fultr.study.statistics import Measured
from fultr.study.summary import markdown, table
from fultr.study.tuning import beyond

GAMMAS = (0.5, 2.0)
ROUNDS = np.arange(0, 201, 10)
GRID = (("client_rate", (0.001, 0.01, 0.1)), ("server_rate", (0.5, 1.0, 2.0)))


def bias(repeats: int = 4, name: str = "bias", best: int = 4, steps: int = 0) -> list[Outcome]:
    """Two data sets; FedIPS surely above FedAvg, surely below λLinear, and about where "rival" is.

    Of the nine pairs of rates the one in the middle is the best, or another.
    """
    lines = [Line(f"FedIPS, γ = {g:g}", RunSettings.of({"gamma": g}), GRID) for g in GAMMAS]
    lines += [Line(f"FedAvg, γ = {g:g}", RunSettings.of({"gamma": g, "propensity": "none"}), GRID) for g in GAMMAS]
    lines += [
        Line("λLinear", RunSettings(algorithm="lambda-linear"), (("lambda_rate", (0.1, 0.3, 0.5)),)),
        Line("rival", RunSettings()),
    ]
    names = tuple(line.name for line in lines)
    panels = (
        Panel("γ = 2", (names[1], names[3], "λLinear", "rival")),
        Panel("FedIPS", names[:2]),
        Panel("after the last round", names[:5], "gamma"),
    )
    claims = (
        Claim("FedIPS is better than FedAvg", "ends-above", (names[1],), (names[3],)),
        Claim("FedIPS is better than λLinear", "ends-above", (names[1],), ("λLinear",)),
        Claim("FedIPS is better than its rival", "ends-above", (names[1],), ("rival",)),
    )
    experiment = Experiment(
        name, "Bias", "What bias does.", "1", ("A", "B"), tuple(lines), panels, claims, repeats, tuning_steps=steps
    )
    return [made_up(experiment, data, base, best) for data, base in (("A", 0.7), ("B", 0.5))]


def made_up(experiment: Experiment, data: str, base: float, best: int) -> Outcome:
    rng = np.random.default_rng(0)
    ends = dict(zip((line.name for line in experiment.lines), (0.0, -0.01, -0.04, -0.10, 0.02, -0.01), strict=True))
    noise = {name: 0.0005 * rng.standard_normal((experiment.repeats, 1)) for name in ends}
    noise["rival"] = 0.02 * rng.standard_normal((experiment.repeats, 1))
    lines = {
        name: Measured(ROUNDS, base + end - 0.3 * np.exp(-ROUNDS / 20) + noise[name]) for name, end in ends.items()
    }
    lines["λLinear"] = Measured(np.zeros(1, np.int64), base + ends["λLinear"] + noise["λLinear"])
    choices = {
        line.name: choose(line, [0.5 - abs(i - (best if tried == 9 else 1)) / 100 for i in range(tried)])
        for line in experiment.lines
        if (tried := len(line.candidates()) if line.grid else 0)
    }
    return Outcome(experiment, data, ("a", "b", "c"), lines, choices)


def clients() -> list[Outcome]:
    """One data set, a logarithmic axis."""
    lines = tuple(Line(f"|U| = {u:,}", RunSettings(clients=u), colour="FedIPS") for u in (100, 500, 2500))
    names = tuple(line.name for line in lines)
    experiment = Experiment("clients", "Clients", "", "", ("A",), lines, (Panel("", names, "clients"),), repeats=3)
    final = (0.4, 0.5, 0.55)
    curves = {n: Measured(ROUNDS, end + np.zeros((3, ROUNDS.size))) for n, end in zip(names, final, strict=True)}
    return [Outcome(experiment, "A", ("a", "b", "c"), curves)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    write_report([*bias(), *clients()], folder, took="3 min")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_page_and_the_summary_say_how_many_verdicts_would_be_holds_by_chance(report, tmp_path):
    """Three claims on two data sets; one claim on two; and one on one, of which nothing is said."""
    outcomes = bias()
    assert "about 0.2 of these 6 verdicts would still be" in (report / "report.html").read_text(encoding="utf-8")
    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts()]
    assert tally(verdicts).endswith(f"If none of them were true, about {6 * 0.025:.1g} would be said to hold.")
    one = replace(outcomes[0].experiment, claims=outcomes[0].experiment.claims[:1])
    for number, said in ((2, "about 0.05 of these 2 verdicts"), (1, "")):
        write_report([replace(outcome, experiment=one) for outcome in outcomes[:number]], tmp_path, took="")
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert (said in page) if said else "If none of the claims were true" not in page
    assert "If none" not in tally(verdicts[:1])


# Tables.


def test_all_files_are_there_and_the_page_is_named_first(report, tmp_path):
    figures = {f"figures/{name}.{kind}" for name in ("bias", "clients") for kind in ("png", "svg", "pdf")}
    found = files(report)
    assert set(found) == figures | {
        "curves.csv",
        "curves.parquet",
        "tuning.csv",
        "results.json",
        "report.html",
        "summary.md",
    }
    assert found["report.html"].endswith(b"</html>")
    assert found["figures/bias.png"].endswith(b"IEND\xaeB`\x82")
    assert found["figures/bias.svg"].rstrip().endswith(b"</svg>")
    assert found["figures/bias.pdf"].rstrip().endswith(b"%%EOF")
    written = write_report(clients(), tmp_path, took="")
    assert written[0] == tmp_path / "report.html"
    assert sorted(written) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


def test_csv_and_parquet_hold_every_digit(report):
    rows = list(csv.DictReader((report / "curves.csv").read_text(encoding="utf-8").splitlines()))
    stored = pq.read_table(report / "curves.parquet").to_pylist()
    assert list(rows[0]) == list(stored[0]) == ["experiment", "data", "line", "repeat", "round", "ndcg"]
    outcomes = {(o.experiment.name, o.data): o for o in (*bias(), *clients())}
    expected = sum(measured.ndcg.size for o in outcomes.values() for measured in o.lines.values())
    assert len(rows) == len(stored) == expected
    for row, other in zip(rows, stored, strict=True):
        assert {**row, "repeat": int(row["repeat"]), "round": int(row["round"]), "ndcg": float(row["ndcg"])} == other
        measured = outcomes[row["experiment"], row["data"]].lines[row["line"]]
        assert other["ndcg"] == measured.ndcg[other["repeat"], measured.rounds.tolist().index(other["round"])]


def test_tuning_lists_the_whole_grid_and_what_was_chosen(report):
    rows = list(csv.DictReader((report / "tuning.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * (4 * 9 + 3)
    chosen = [row for row in rows if row["chosen"] == "true"]
    assert len(chosen) == 2 * 5
    assert chosen[0] == {
        "experiment": "bias", "data": "A", "line": "FedIPS, γ = 0.5", "client_rate": "0.01", "server_rate": "1.0",
        "lambda_rate": "", "validation_ndcg": "0.5", "chosen": "true",
    }  # fmt: skip
    assert chosen[4]["lambda_rate"] == "0.3"


def test_results_hold_means_errors_settings_and_verdicts(report):
    stored = json.loads((report / "results.json").read_text(encoding="utf-8"))
    assert stored["judged_with"] == versions()
    assert {"python", "fultr", "numpy", "numba", "scipy", "joblib", "pyarrow"} == set(stored["judged_with"])
    assert [(r["experiment"], r["data"]) for r in stored["results"]] == [("bias", "A"), ("bias", "B"), ("clients", "A")]
    final = bias()[1].lines["rival"].final
    line = stored["results"][1]["lines"]["rival"]
    assert line["final"] == final.tolist()
    assert line["mean"] == pytest.approx(sum(final) / 4)
    assert line["standard_error"] == pytest.approx((sum((final - final.mean()) ** 2) / 3 / 4) ** 0.5)
    tuned = stored["results"][0]["lines"]["FedIPS, γ = 0.5"]
    assert (tuned["settings"]["gamma"], tuned["settings"]["server_rate"]) == (0.5, 1.0)
    assert (tuned["choice"]["at_edge"], tuned["wider"]) == ([], None)
    answers = [verdict["answer"] for verdict in stored["results"][0]["verdicts"]]
    assert answers == ["holds", "does not hold", "inconclusive"]
    assert stored["asked"][0]["fingerprints"] == ["a", "b", "c"]
    assert stored == json.loads(json.dumps(results([*bias(), *clients()])))


def test_table_has_a_row_a_line_and_a_column_a_data_set():
    rows = table(bias())
    assert rows[0] == ["NDCG@5, test queries", "A", "B"]
    assert [row[0] for row in rows[1:]] == [line.name for line in bias()[0].experiment.lines]
    final = bias()[1].lines["rival"].final
    assert rows[-1][2] == f"{final.mean():.4f} ± {final.std(ddof=1) / 4**0.5:.4f}"


def test_a_single_repeat_has_no_errors(tmp_path):
    write_report(bias(repeats=1), tmp_path, took="")
    line = json.loads((tmp_path / "results.json").read_text())["results"][0]["lines"]["rival"]
    assert line["standard_error"] is None
    assert line["mean"] == line["final"][0]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "0 hold" not in page
    assert "6 inconclusive" in page
    assert "±" not in page[page.index("After the last round") : page.index("Learning rates</h3>")]


OTHER_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_report import bias, clients
from fultr.study.report import write_report
while True:
    write_report([*bias(), *clients()], Path(sys.argv[2]), took="3 min")
    print("written", flush=True)
    if sys.argv[3] == "once":
        break
"""


def other_process(folder: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OTHER_PROCESS, str(Path(__file__).parent), str(folder), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": "1"})


@pytest.mark.process
def test_the_same_outcomes_give_the_same_bytes(report, tmp_path):
    with other_process(tmp_path, "once") as child:
        child.communicate(timeout=120)
    assert child.returncode == 0
    ours, theirs = files(report), files(tmp_path)
    assert [name for name in ours if ours[name] != theirs.get(name)] == []


@pytest.mark.process
def test_killing_it_while_it_writes_leaves_whole_files_only(tmp_path):
    for delay in (0.0, 0.6, 1.7):
        with other_process(tmp_path, "on and on") as child:
            assert child.stdout is not None
            child.stdout.readline()  # one report is there; it is at work on the next
            time.sleep(delay)
            os.kill(child.pid, signal.SIGKILL)
        assert (tmp_path / "report.html").read_text(encoding="utf-8").endswith("</html>")
        json.loads((tmp_path / "results.json").read_text())
        assert (tmp_path / "figures" / "bias.png").read_bytes().endswith(b"IEND\xaeB`\x82")
        pq.read_table(tmp_path / "curves.parquet")
    write_report([*bias(), *clients()], tmp_path, took="3 min")
    assert len(files(tmp_path)) == 6 + 2 * 3  # what was left unfinished is gone


def test_the_summary_says_what_every_line_reached_and_what_became_of_every_claim():
    """A column for each data set; of a column's cells the first word is the verdict, then effect and interval."""
    outcomes = bias()
    gap = outcomes[0].lines["FedIPS, γ = 2"].final - outcomes[0].lines["FedAvg, γ = 2"].final
    lines = markdown([outcomes, clients()]).splitlines()
    assert [line for line in lines if line.startswith("#")] == ["## Bias", "## Clients"]
    assert "`fultr reproduce bias`" in lines
    (levels,) = (line for line in lines if line.startswith("| FedAvg, γ = 2 |"))
    ends = [f"{outcome.lines['FedAvg, γ = 2'].final.mean():.4f}" for outcome in outcomes]
    assert [cell.split(" ± ")[0].strip() for cell in levels.split("|")[2:4]] == ends
    (claim,) = (line for line in lines if line.startswith("| FedIPS is better than FedAvg |"))
    assert claim.split("|")[2].startswith(f" **holds**: {gap.mean():+.4f} NDCG (+")
    assert r"| \|U\| = 2,500 | 0.5500" in "\n".join(lines)  # a bar would end a cell
    assert lines[-1].startswith(f"If none of the claims were true, about {6 * 0.025:.1g} of these 6 verdicts")


def test_what_computed_the_runs_is_told_apart_from_what_judged_them(tmp_path):
    outcomes = bias()
    outcomes[0].origins.update({Origin("0.1.0", "another processor"): 1200, Origin("0.2.0"): 3})
    outcomes[1].origins.update({Origin("0.2.0"): 4})
    write_report(outcomes, tmp_path, took="")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for said in ("1,200 runs by fultr 0.1.0 on another processor", "7 runs by fultr 0.2.0 on a platform that was not"):
        assert f"Computed: {said}" in page
    assert page.index("1,200 runs by") < page.index("Judged and drawn with") < page.index(machine()["processor"])
    told = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert told["judged_with"] == versions()
    assert told["results"][1]["computed_by"] == [{"fultr": "0.2.0", "platform": "", "runs": 4}]


def test_the_machine_is_not_named():
    described = machine()
    assert list(described) == ["processor", "cores", "memory", "system"]
    assert all(described.values())
    assert socket.gethostname() not in " ".join(described.values())


# The page.


@pytest.fixture
def page(report: Path) -> str:
    return (report / "report.html").read_text(encoding="utf-8")


def test_the_page_begins_with_the_claims(page):
    assert page.index("2 hold<") < page.index("2 do not hold<") < page.index("2 inconclusive<")
    assert (
        page.index("FedIPS is better than FedAvg") < page.index('id="experiment-1"') < page.index('id="experiment-2"')
    )
    for style, symbol, answer in (
        ("yes", "✓", "holds"), ("no", "✗", "does not hold"), ("unsure", "?", "inconclusive"),
    ):  # fmt: skip
        badge = f'<span class="badge {style}"><span aria-hidden="true">{symbol}</span> {answer}</span>'
        assert page.count(badge) == 2  # one a data set
    assert re.search(r"<strong>\+0\.0\d{3} NDCG</strong> <span class=\"interval\">95% interval \+0\.0\d{3} to", page)
    assert "paired t test over 4 repeats" in page


def test_the_page_needs_nothing_but_itself(page):
    assert re.findall(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)) == []
    assert re.findall(r"<(?:link|img|iframe|object|embed)\b|\bsrc=|@import|\burl\((?!#)", page) == []
    assert "3 min" in page
    assert all(number in page for number in versions().values())


def test_the_page_flags_rates_at_the_edge(page, tmp_path):
    assert '<span class="edge">edge</span>' not in page
    assert page.count('class="chosen"') == 2 * 5
    write_report(bias(best=8), tmp_path, took="")
    flagged = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert flagged.count('<span class="edge">edge</span>') == 2 * 4 * 2
    for answer in ("hold", "do not hold", "inconclusive"):
        assert f"2 {answer} at the grid&#39;s edge" in flagged
    assert "Tuned to its edge: FedIPS, γ\xa0=\xa02, FedAvg, γ\xa0=\xa02. Better rates may" in flagged
    assert '</span> holds</span> <span class="data">' not in flagged  # no badge says more than is known


def with_a_wider_grid(rival_lift: float, repeats: int = 4) -> Outcome:
    """All rates are at the edge at first; a wider grid chooses larger ones, which lift FedAvg at γ = 2."""
    first = bias(best=8, steps=6)[0]
    outcome = replace(first, wider={}, wider_lines={})
    for name, choice in first.choices.items():
        if choice.at_edge:
            more = [(rates, 0.6 if rates["client_rate"] == 0.1 else 0.4) for rates in beyond(choice)]
            tried = [*choice.grid, *more]
            outcome.wider[name] = best_of([rates for rates, _ in tried], [score for _, score in tried])
            lift = rival_lift if name == "FedAvg, γ = 2" else 0.0
            outcome.wider_lines[name] = Measured(ROUNDS, first.lines[name].ndcg[:repeats] + lift)
    return outcome


@pytest.mark.parametrize(
    ("lift", "answer", "conclusion"),
    [
        (0.0, "holds", "holds, on a wider grid too"),
        (0.2, "does not hold", "depends on the grid"),
        (np.array([[-0.4], [0.6], [-0.4], [0.6]]), "inconclusive", "holds; inconclusive on a wider grid"),
    ],
)
def test_both_answers_stand_side_by_side(lift, answer, conclusion, tmp_path):
    outcome = with_a_wider_grid(lift)
    widest = outcome.wider["FedAvg, γ = 2"]
    assert (widest.rates, widest.at_edge) == ({"client_rate": 0.1, "server_rate": 4.0}, ("server_rate",))
    inside = replace(widest, at_edge=())
    outcome = replace(outcome, wider={name: replace(choice, at_edge=()) for name, choice in outcome.wider.items()})
    assert outcome.wider["FedAvg, γ = 2"] == inside
    verdict = outcome.verdicts()[0]
    assert (verdict.answer, verdict.edges, verdict.conclusion) == (
        "holds", ("FedIPS, γ = 2", "FedAvg, γ = 2"), conclusion,
    )  # fmt: skip
    assert verdict.wider is not None
    assert "over 4 repeats; rates chosen on one other repeat" in verdict.wider.test
    write_report([outcome], tmp_path, took="")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f'</span> {conclusion}</span> <span class="data">A</span>' in page
    assert f'</span> {answer}</span> <span class="data">with a wider grid</span>' in page
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert f"| **{conclusion}**; as the grid stands holds: +0.0" in summary
    assert f"; wider grid {answer}: " in summary
    told = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["results"][0]
    assert told["verdicts"][0]["conclusion"] == conclusion
    assert told["verdicts"][0]["wider"]["answer"] == answer
    assert told["lines"]["FedAvg, γ = 2"]["wider"]["choice"]["rates"]["server_rate"] == 4.0
    assert table([outcome])[0] == ["NDCG@5, test queries", "A", "A, wider grid"]
    assert table([outcome])[6][2] == "–"  # not tuned


@pytest.mark.parametrize(("tried", "repeats"), [(False, 4), (True, 3)])
def test_a_wider_grid_whose_runs_are_not_all_finished_says_so(tried, repeats, tmp_path):
    """Its rates are not chosen yet, or are chosen and measured in 3 of 4 repeats, in which the answer is another."""
    outcome = with_a_wider_grid(0.2, repeats)
    if not tried:
        outcome = replace(outcome, wider={}, wider_lines={})
    verdict = outcome.verdicts()[0]
    assert (verdict.conclusion, verdict.unfinished) == ("holds; wider grid unfinished", verdict.edges)
    assert missing_parts(outcome) == ["the wider grids of 4 lines are unfinished"]
    write_report([outcome], tmp_path, took="")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The runs of a wider grid are not all finished: FedIPS, γ" in page


def test_a_wider_grid_that_ends_at_its_edge_too_settles_nothing():
    verdict = with_a_wider_grid(0.0).verdicts()[0]
    assert verdict.conclusion == "holds at the grid's edge"
    assert verdict.wider is not None
    assert verdict.wider.edges == ("FedIPS, γ = 2", "FedAvg, γ = 2")
    assert with_a_wider_grid(0.2).verdicts()[0].conclusion == "depends on the grid"


def test_a_choice_that_a_wider_grid_confirms_is_at_no_edge():
    first = bias(best=8, steps=6)[0]
    wider = {name: replace(choice, at_edge=()) for name, choice in first.choices.items()}
    assert [verdict.conclusion for verdict in replace(first, wider=wider).verdicts()] == [
        "holds", "does not hold", "inconclusive",
    ]  # fmt: skip


def test_lines_that_were_not_run_are_left_out_and_claims_about_them_say_so(tmp_path):
    first, second = bias()
    for name in ("rival", "FedIPS, γ = 0.5"):
        del first.lines[name]
    second.lines["λLinear"] = second.lines["λLinear"].only([0, 2, 3])
    answers = [verdict.answer for verdict in first.verdicts()]
    assert answers == ["holds", "does not hold", "not run"]
    assert first.verdicts()[2].detail == "rival was not run."
    assert "over 3 repeats" in second.verdicts()[1].test
    first, second = (replace(one, experiment=replace(one.experiment, repeats=100)) for one in (first, second))
    write_report([first, second], tmp_path, took="", notes=["Not run yet: bias [A]: 2 of 6 lines are missing"])
    page, summary = ((tmp_path / name).read_text(encoding="utf-8") for name in ("report.html", "summary.md"))
    for text in (page, summary):
        assert "Not run yet: bias [A]: 2 of 6 lines are missing." in text
        assert "100 repeats" not in text
    assert "means over 3 to 4 repeats" in page
    assert "Means ± standard errors over 3 to 4 repeats. Rates were chosen on the validation queries of one" in summary
    first, second = (replace(one, experiment=replace(one.experiment, repeats=4)) for one in (first, second))
    rows = table([first, second])
    assert [row[1] for row in rows if row[0] == "rival"] == ["–"]
    assert [row[2].endswith("(3 repeats)") for row in rows[1:]] == [False, False, False, False, True, False]
    repeats = {
        int(row["repeat"])
        for row in csv.DictReader((tmp_path / "curves.csv").read_text(encoding="utf-8").splitlines())
        if (row["data"], row["line"]) == ("B", "λLinear")
    }
    assert repeats == {0, 2, 3}


def test_parts_of_drawings_are_found_by_names_of_their_own(page):
    named = re.findall(r' id="([^"]+)"', page)
    assert len(named) == len(set(named))
    assert set(re.findall(r'(?:="#|url\(#)([^")]+)', page)) <= set(named)


def test_names_are_not_markup(tmp_path):
    original = bias()[0]
    name, title = '<b>"FedIPS"</b> & $x$ </script>', "<i>Title</i> -->"
    lines = [replace(line, name=name) if line.name == "rival" else line for line in original.experiment.lines]
    panels = (Panel(title, (name, "λLinear")),)
    experiment = replace(original.experiment, title=title, lines=tuple(lines), panels=panels, claims=())
    curves = {name if key == "rival" else key: measured for key, measured in original.lines.items()}
    write_report([Outcome(experiment, "<u>A</u>", ("a",), curves)], tmp_path, took="<s>1</s>")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for part in ("<b>", "<i>Title", "<u>A", "<s>1"):
        assert part not in page
    assert page.count("</script>") == 2  # of the one panel's numbers and of the script
    assert "&lt;b&gt;" in page
    assert "&lt;i&gt;Title&lt;/i&gt; --&gt;" in page
    read = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', page)[0])
    assert [line["name"] for line in read["lines"]] == [name, "λLinear"]


# Figures.


def test_an_algorithm_has_the_same_colour_everywhere():
    for outcome in bias():
        shown = {one.name: one.colour.upper() for one in series(outcome, outcome.experiment.panels[0])[1]}
        assert shown == {
            "FedIPS, γ = 2": "#0072B2", "FedAvg, γ = 2": "#D55E00", "λLinear": "#009E73", "rival": "#CC79A7",
        }  # fmt: skip
        against = {one.name: one.colour.upper() for one in series(outcome, outcome.experiment.panels[2])[1]}
        assert against == {"FedIPS": "#0072B2", "FedAvg": "#D55E00", "λLinear": "#009E73"}
    assert set(hues(clients()[0].experiment).values()) == {"#0072B2"}


def test_lines_of_a_panel_are_told_apart_without_colour():
    for outcome in (bias()[0], *clients()):
        for panel in outcome.experiment.panels:
            marks = [(one.marker, str(one.dashes)) for one in series(outcome, panel)[1]]
            assert len(set(marks)) == len(marks)


@pytest.mark.parametrize("count", [2, 4, 5])
def test_shades_go_from_light_to_dark(count):
    made = shades("#D55E00", count)
    brightness = [sum(to_rgb(colour)) for colour in made]
    assert brightness == sorted(brightness, reverse=True)
    assert len(set(made)) == count
    assert np.ptp([rgb_to_hsv(to_rgb(colour))[0] for colour in made]) < 0.01  # of one hue


def test_an_unknown_colour_is_refused():
    experiment = clients()[0].experiment
    with pytest.raises(FultrError, match=r"colour of '\|U\| = 100': expected one of blue, .*; found 'mauve'"):
        hues(replace(experiment, lines=(replace(experiment.lines[0], colour="mauve"),)))


def test_curves_are_means_with_standard_errors_and_levels_are_level():
    outcome = bias()[0]
    figure = draw(bias())
    assert len(figure.axes) == 2 * 3
    curve, _, level, rival = figure.axes[0].lines
    ndcg = outcome.lines["rival"].ndcg
    np.testing.assert_allclose(rival.get_ydata(), ndcg.mean(axis=0))
    np.testing.assert_allclose(curve.get_xdata(), ROUNDS)
    assert set(np.asarray(level.get_ydata())) == {outcome.lines["λLinear"].final.mean()}
    (error,) = {round(float(e), 12) for e in series(outcome, outcome.experiment.panels[0])[1][3].error}
    assert error == pytest.approx(ndcg[:, -1].std(ddof=1) / 4**0.5)
    assert figure.axes[0].get_ylabel() == "NDCG@5, test queries"
    assert figure.axes[0].get_xlabel() == "round"


def test_against_a_setting():
    outcome = bias()[0]
    axis, (fedips, _, level) = series(outcome, outcome.experiment.panels[2])
    assert axis.label == "bias severity γ"
    assert (axis.log, axis.names) == (False, ("0.5", "2"))
    assert fedips.x.tolist() == list(GAMMAS)
    np.testing.assert_allclose(fedips.mean, [outcome.lines[f"FedIPS, γ = {g:g}"].final.mean() for g in GAMMAS])
    assert level.x.size == 0
    axis, (only,) = series(clients()[0], clients()[0].experiment.panels[0])
    assert (axis.log, axis.names, only.name) == (True, ("100", "500", "2,500"), "FedIPS")


def test_against_a_setting_lines_that_differ_otherwise_too_stay_apart():
    lines = [
        Line(f"FedIPS, {q} queries, m = {m}", RunSettings.of({"clicks": m, "queries": q}))
        for q in (1, 5)
        for m in (5, 10)
    ]
    panel = Panel("", tuple(line.name for line in lines), "clicks")
    experiment = Experiment("e", "E", "", "", ("A",), tuple(lines), (panel,), repeats=1)
    curves = {line.name: Measured(ROUNDS[:2], np.full((1, 2), 0.1 * i)) for i, line in enumerate(lines)}
    _, entries = series(Outcome(experiment, "A", (), curves), panel)
    assert [(one.name, one.mean.tolist()) for one in entries] == [
        ("FedIPS, 1 queries", [0.0, 0.1]), ("FedIPS, 5 queries", [0.2, pytest.approx(0.3)]),
    ]  # fmt: skip


def test_how_learning_starts_does_not_set_the_limits():
    outcome = bias()[0]
    low, high = limits(outcome, against=False)
    late = [m.ndcg.mean(axis=0)[m.rounds >= 20] for m in outcome.lines.values() if m.rounds.size > 1]
    assert outcome.lines["rival"].ndcg[:, 0].max() < low < min(values.min() for values in late)
    assert high > outcome.lines["λLinear"].ndcg.max()
    kinds = [bool(panel.against) for panel in outcome.experiment.panels]
    drawn = [axes.get_ylim() for axes in draw([outcome]).axes]
    assert drawn == [limits(outcome, against=kind) for kind in kinds]
    assert set(kinds) == {True, False}
    numbered = [axes.yaxis.get_tick_params()["labelleft"] for axes in draw([outcome]).axes]
    assert numbered == [i == 0 or kinds[i] != kinds[i - 1] for i in range(len(kinds))]  # wherever limits change
    assert draw_panel(outcome, outcome.experiment.panels[1]).axes[0].get_ylim() == limits(outcome, against=False)


def test_legends_cover_no_curve():
    for outcomes in (bias(), clients()):
        figure = draw(outcomes)
        rendered(figure, "png")  # lays it out
        lowest = min(axes.get_tightbbox().y0 for axes in figure.axes)  # type: ignore[union-attr]
        boxes = [legend.get_window_extent() for legend in figure.legends]
        assert len(boxes) == len(outcomes[0].experiment.panels)
        assert all(box.y1 <= lowest and box.y0 >= 0 for box in boxes)
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("experiment", packaged(), ids=lambda experiment: experiment.name)
def test_every_packaged_experiment_can_be_drawn(experiment):
    curve, level = (
        Measured(ROUNDS, np.full((2, ROUNDS.size), 0.5)),
        Measured(np.zeros(1, np.int64), np.full((2, 1), 0.6)),
    )
    lines = {line.name: curve if line.settings.algorithm == "federated" else level for line in experiment.lines}
    figure = draw([Outcome(experiment, data, ("a",), lines) for data in experiment.data])
    assert len(figure.axes) == len(experiment.data) * len(panels_of(experiment))
