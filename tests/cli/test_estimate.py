"""Prediction of held-out clicks, the command `fultr estimate`, and what it finds in real clicks."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from help.click_logs import BAD_LOGS, simulated_log

from fultr.cli.main import main
from fultr.clicks.bootstrap import bootstrap
from fultr.clicks.examination.methods import examination_by
from fultr.clicks.files import read_click_log
from fultr.clicks.frames import pages_of
from fultr.clicks.impressions import ImpressionLog
from fultr.clicks.prediction import gain, predict
from fultr.core.errors import FultrError

METHODS = ("all-pairs", "em", "adjacent")  # that need no features
TRUTH = 1 / np.arange(1.0, 6)


def write_log(log: ImpressionLog, path) -> None:
    lines = []
    for i, (query, pairs, clicks) in enumerate(zip(log.queries, log.documents, log.clicks, strict=True)):
        shown = pairs >= 0
        names = ",".join(str(log.document_names[pair]) for pair in pairs[shown])
        user = "" if log.users is None else f"u{log.users[i]}\t"
        lines.append(f"q{log.query_names[query]}\t{user}{names}\t{','.join(map(str, clicks[shown]))}\n")
    path.write_text("".join(lines))


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A log and another of the same search engine."""
    folder = tmp_path_factory.mktemp("logs")
    whole = simulated_log(0, examination=TRUTH, queries=60, pages=12_000, versions=3, users=900)
    write_log(whole.take(np.arange(8_000)), folder / "log.tsv")
    write_log(whole.take(np.arange(8_000, 12_000)), folder / "held-out.tsv")
    return folder


def test_prediction_by_hand():
    """Smoothing 1. The log: a at rank 1, clicked; b at rank 2, not; then b at rank 1, not. Rate 1 / 3."""
    log = ImpressionLog.from_arrays([1, 1], [[1, 2], [2, -1]], [[1, 0], [0, 0]])
    held_out = ImpressionLog.from_arrays([1, 9], [[2, 1], [3, -1]], [[0, 1], [1, 0]])
    found = predict(log, held_out, {"half": np.array([1.0, 0.5])})
    first, second = (1 + 1 / 3) / (2 + 1), (0 + 1 / 3) / (1 + 1)
    assert found["rank"].by_impression == pytest.approx([math.log((1 - first) * second), math.log(first)])
    query = (1 + 1 / 3) / (3 + 1)
    a, b = (1 + query) / (1 + 1), (0 + query) / (2 + 1)
    assert found["document"].by_impression == pytest.approx([math.log((1 - b) * a), math.log(1 / 3)])
    overall = 1 / 2.5  # examined impressions: a 1, b 0.5 + 1
    query = (1 + overall) / (2.5 + 1)
    a, b = (1 + query) / (1 + 1), (0 + query) / (1.5 + 1)
    assert found["half"].by_impression == pytest.approx([math.log((1 - b) * 0.5 * a), math.log(overall)])
    assert found["half"].perplexity == pytest.approx([((1 - b) * overall) ** -0.5, 1 / (0.5 * a)])
    assert found["half"].log_likelihood == pytest.approx(found["half"].by_impression.mean())


def test_gain_by_hand():
    log = ImpressionLog.from_arrays([1, 1, 2], [[1], [1], [2]], [[1], [0], [1]])
    found = predict(log, log, {})
    difference = found["document"].by_impression - found["rank"].by_impression
    centred = difference - difference.mean()
    gained = gain(found["document"], found["rank"], log)
    assert gained.mean == pytest.approx(difference.mean())
    assert gained.by_page == pytest.approx(math.sqrt((centred**2).sum()) / 3)
    assert gained.by_query == pytest.approx(math.hypot(centred[0] + centred[1], centred[2]) / 3)


def test_the_truth_predicts_best():
    whole = simulated_log(0, examination=TRUTH, queries=60, pages=40_000, versions=3)
    log, held_out = whole.take(np.arange(20_000)), whole.take(np.arange(20_000, 40_000))
    found = predict(log, held_out, {"truth": TRUTH, "flat": np.ones(5), "steep": TRUTH**2})
    assert found["flat"].log_likelihood == found["document"].log_likelihood
    for name in ("rank", "document", "steep"):
        gained = gain(found["truth"], found[name], held_out)
        assert gained.mean > 4 * gained.by_page
        assert gained.mean > 3 * gained.by_query


def test_a_page_that_repeats_a_document_says_nothing_of_it_elsewhere():
    """The second place of a document is another document; held-out pages show the first."""
    rows = {"query": ["q"] * 4, "rank": [1, 2, 1, 2], "document": ["x", "y", "y", "x"]}
    held_out = pages_of(None, [1, 0, 0, 1], **rows).log
    log = pages_of(None, [1, 0, 0, 1] * 50, **{name: values * 50 for name, values in rows.items()}).log
    twice = {"query": [*rows["query"] * 50, "q", "q"], "rank": [*rows["rank"] * 50, 1, 2]}
    repeating = pages_of(None, [1, 0] * 101, **twice, document=[*rows["document"] * 50, "x", "x"]).log
    assert repeating.pairs == 3
    assert held_out.numbers_in(repeating)[1].tolist() == held_out.numbers_in(log)[1].tolist() == [0, 1]


def test_documents_without_ids_are_found_in_the_other_log_by_their_features(tmp_path, capsys):
    rng = np.random.default_rng(0)
    features = rng.random((30, 4)).round(3)  # by query and document
    for name in ("log.csv", "other.csv"):
        lines = ["query,rank,click,f1"]
        for query in rng.integers(30, size=300):
            for k, d in enumerate(rng.permutation(4)[:3]):
                lines.append(f"q{query},{k + 1},{int(rng.random() < features[query, d])},{features[query, d]}")
        (tmp_path / name).write_text("\n".join(lines))
    _, said, _ = run(capsys, "estimate", tmp_path / "log.csv", "--held-out", tmp_path / "other.csv", "--json")
    assert json.loads(said)["held_out"]["unseen"] == 0


def test_ranks_that_were_not_seen_are_refused():
    log = ImpressionLog.from_arrays([1], [[1, 2]], [[1, 0]])
    longer = ImpressionLog.from_arrays([1], [[1, 2, 3]], [[1, 0, 0]])
    with pytest.raises(FultrError, match="nothing is known about rank 3"):
        predict(log, longer, {})
    assert set(predict(longer, log, {})) == {"rank", "document"}
    with pytest.raises(FultrError, match="expected 2 numbers, one per rank; found 3"):
        predict(log, log, {"x": np.ones(3)})


@pytest.mark.parametrize("name", BAD_LOGS)
def test_bad_logs_are_predicted_without_nan(name):
    log = BAD_LOGS[name]
    flat, none = np.ones(log.ranks), np.r_[1.0, np.zeros(log.ranks - 1)]
    for one in predict(log, log, {"flat": flat, "none": none}).values():
        assert np.isfinite(one.by_impression).all()
        assert np.all(one.perplexity >= 1)


def test_the_command_prints_curve_diagnostics_and_conclusion(files, capsys):
    code, out, err = run(capsys, "estimate", files / "log.tsv", "--bootstrap", "40")
    assert code == 0
    assert err == ""
    assert "8,000 pages of 5 documents, 900 users, 60 queries" in out
    assert "by all-pairs; bootstrap over users" in out
    for word in ("Interventions", "Weights", "Trust bias", "Conclusion: trust", "What no propensity corrects"):
        assert word in out
    shown = next(line for line in out.splitlines() if line.startswith("As propensities: 1,"))
    np.testing.assert_allclose([float(p) for p in shown.split(": ")[1].split(",")], TRUTH, rtol=0.2)


@pytest.mark.parametrize("method", METHODS)
def test_json_is_one_object_and_nothing_else(files, capsys, method):
    options = ("--method", method, "--bootstrap", 40, "--over", "pages", "--json", "--seed", 5)
    held_out = files / "held-out.tsv"
    code, out, err = run(capsys, "estimate", files / "log.tsv", "--held-out", held_out, *options)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["method"], told["over"], told["seed"], told["bootstrap"]) == (method, "pages", 5, 40)
    np.testing.assert_allclose(told["examination"], TRUTH, rtol=0.25)
    assert np.all(np.array(told["interval"]["low"]) <= told["examination"])
    assert np.all(np.array(told["interval"]["high"]) >= told["examination"])
    assert told["log"]["impressions"] == 8_000
    assert told["held_out"]["models"][method]["gains"]["rank"]["mean"] > 0
    assert told["held_out"]["models"][method]["gains"]["document"]["mean"] > 0
    assert sum(told["weights"]["weight_share"]) == pytest.approx(1)
    assert run(capsys, "estimate", files / "log.tsv", "--held-out", held_out, *options)[1] == out


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figures(files, capsys, tmp_path, kind, magic):
    path = tmp_path / f"curve.{kind}"
    held_out = ("--held-out", files / "held-out.tsv") if kind == "png" else ()
    code, out, err = run(capsys, "estimate", files / "log.tsv", "--bootstrap", 20, "--figure", path, *held_out)
    assert code == 0
    assert "Conclusion" in out
    assert err == f"Figure: {path}\n"
    assert path.read_bytes().startswith(magic)


def test_held_out_prediction_is_printed(files, capsys):
    _, out, _ = run(capsys, "estimate", files / "log.tsv", "--held-out", files / "held-out.tsv", "--bootstrap", 0)
    assert "Prediction of 4,000 held-out pages (0.0% of documents unseen)" in out
    assert "position-based, all-pairs" in out
    assert "Gain of all-pairs over the click rate of the document: +" in out
    assert "There are no intervals" in out


def test_bad_input_is_one_line_and_exit_code_2(files, capsys, tmp_path):
    single = tmp_path / "single.tsv"
    write_log(simulated_log(0, examination=TRUTH, versions=1, pages=300), single)
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\tx,y\t0,7\n")
    for arguments, message in (
        ((bad,), "bad.tsv, line 1: expected clicks of 0 or 1, found '0,7'"),
        ((tmp_path / "none.tsv",), "cannot be read"),
        ((single, "--method", "all-pairs"), "single.tsv: no document was shown at more than one rank"),
        ((single, "--over", "users"), "does not say who searched"),
        ((files / "log.tsv", "--figure", tmp_path / "x.gif"), "expected a file that ends with .png, .svg or .pdf"),
        ((files / "log.tsv", "--figure", tmp_path / "no" / "x.png", "--bootstrap", 0), "cannot be written"),
        ((files / "log.tsv", "--held-out", bad), "bad.tsv, line 1"),
        ((files / "log.tsv", "--bootstrap", "-1"), "--bootstrap"),
        ((files / "log.tsv", "--seed", "-1"), "seed: expected"),
        ((files / "log.tsv", "--smoothing", "0", "--held-out", single, "--bootstrap", 0), "smoothing: expected"),
        ((files / "log.tsv", "--separator", ""), "separator"),
    ):
        code, out, err = run(capsys, "estimate", *arguments)
        assert code == 2, arguments
        assert message in err
        assert err.count("\n") == 1
        assert out == ""


def test_one_ranking_gets_advice_not_an_error(capsys, tmp_path):
    write_log(simulated_log(0, examination=TRUTH, versions=1, pages=300), tmp_path / "single.tsv")
    code, out, _ = run(capsys, "estimate", tmp_path / "single.tsv", "--figure", tmp_path / "x.png")
    assert code == 0
    assert "Conclusion: do not trust" in out
    assert "Randomise a little" in out
    assert "As propensities" not in out


@pytest.mark.parametrize("name", [name for name, log in BAD_LOGS.items() if log.clicks.any()])
def test_bad_logs_are_drawn_and_printed(name, capsys, tmp_path):
    write_log(BAD_LOGS[name], tmp_path / "log.tsv")
    options = ("--bootstrap", 25, "--figure", tmp_path / "x.svg", "--held-out", tmp_path / "log.tsv")
    code, out, _ = run(capsys, "estimate", tmp_path / "log.tsv", *options)
    assert code == 0
    assert "nan" not in out.lower().replace("examination", "")
    assert "Conclusion: do not trust" in out


@pytest.fixture(scope="module")
def yandex(real_data):
    folder = real_data("yandex-clicks")
    return read_click_log(folder / "train.tsv.xz"), read_click_log(folder / "test.tsv.xz")


def test_examination_falls_with_rank_in_real_clicks(yandex):
    """From rank 1 to 8 every estimate falls; ranks 8 to 10 are level within 3 bootstrap standard errors."""
    for log in yandex:
        for method in METHODS:
            found = examination_by(method, log.cells())
            assert np.all(np.diff(found)[:7] < 0), method
        drawn = bootstrap(log, lambda cells: examination_by("all-pairs", cells), over="pages", draws=100).values
        found = examination_by("all-pairs", log.cells())
        rise = np.diff(found)[7:] / np.diff(drawn, axis=1)[:, 7:].std(axis=0, ddof=1)
        assert np.all(rise < 3)
        assert np.all(np.percentile(np.diff(drawn, axis=1)[:, :4], 99, axis=0) < 0)  # ranks 1 to 5, beyond chance


def test_harvested_and_document_level_estimates_agree_in_real_clicks(yandex):
    """EM lies above harvesting by less than a tenth, as it does with some tens of clicks a document."""
    for log in yandex:
        harvested, fitted = (examination_by(method, log.cells()) for method in ("all-pairs", "em"))
        gap = fitted[1:] / harvested[1:] - 1
        assert np.all((gap > -0.02) & (gap < 0.1))


def test_examination_predicts_real_clicks(yandex):
    """Each way between the two logs: better than either simpler model, by 4 standard errors over pages or more.

    Over queries, of which there are 20, by 2.
    """
    for log, held_out in (yandex, yandex[::-1]):
        curves = {method: examination_by(method, log.cells()) for method in METHODS}
        found = predict(log, held_out, curves)
        for method in METHODS:
            for base in ("rank", "document"):
                gained = gain(found[method], found[base], held_out)
                assert gained.mean > 4 * gained.by_page
                assert gained.mean > 2 * gained.by_query
                assert np.all(found[method].perplexity < found[base].perplexity)
