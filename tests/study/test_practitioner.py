"""Other software and ours on the same click logs: what is measured is the same again, and only once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fultr
from fultr.core.errors import FultrError
from fultr.data.ranking import Splits
from fultr.study.practitioner import cases, measure, read_lines
from fultr.study.practitioner_logs import DISPLAYED, Case, divided, made_log
from fultr.study.practitioner_report import draw, kinds, markdown, rows

pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def small() -> Splits:
    train, valid, test = (part.take(np.arange(150)) for part in fultr.load("synthetic"))
    return Splits(train, valid, test, "small")


def test_a_log_is_made_of_whole_pages_of_the_policies(small: Splits) -> None:
    table, policies = made_log(small.train, Case(0, 500, "synthetic", 1.0, 3))
    assert policies.shape == (3, small.train.width)
    assert table.clicks.sum() >= 500  # sessions are finished
    assert table.groups.sum() == table.rank.size
    firsts = np.cumsum(table.groups) - table.groups
    assert (table.rank[firsts] == 1).all()
    assert table.rank.max() == DISPLAYED
    assert (np.diff(table.page) >= 0).all()


def test_dividing_anew_keeps_every_query_once(small: Splits) -> None:
    again = divided(small, seed=1)
    ids = np.concatenate([part.query_ids for part in again])
    before = np.concatenate([part.query_ids for part in small])
    assert np.array_equal(np.sort(ids), np.sort(before))
    one = int(again.test.query_ids[0])
    old = next(part for part in small if one in part.query_ids)
    at, now = int(np.flatnonzero(old.query_ids == one)[0]), slice(*again.test.offsets[:2])
    assert np.array_equal(again.test.features[now], old.features[slice(*old.offsets[at : at + 2])])


def test_what_is_measured_is_not_measured_again(small: Splits, tmp_path: Path) -> None:
    wanted = list(cases(["synthetic"], [1.0], [1], [500], repeats=1))
    methods, file, told = ["fultr linear", "LightGBM position"], tmp_path / "lines.jsonl", list[str]()
    first = measure({"synthetic": small}, wanted, methods, file, told.append)
    assert [line["method"] for line in first] == ["policy", "grades", *methods]
    assert len(told) == 4
    whole = file.read_text()
    file.write_text(whole[:-20])  # killed while the last line was written
    second = measure({"synthetic": small}, wanted, methods, file, told.append)
    assert len(told) == 5
    assert [line["ndcg"] for line in first] == [line["ndcg"] for line in second]
    (kind,) = kinds(second)
    assert all(0 < row["ndcg"] < 1 and row["logs"] == 1 for row in rows(kind))


def test_settings_are_chosen_on_the_first_log_of_a_kind(small: Splits, tmp_path: Path) -> None:
    wanted = list(cases(["synthetic"], [1.0], [1], [300, 500], repeats=2))
    lines = measure({"synthetic": small}, wanted, ["LightGBM tuned"], tmp_path / "lines.jsonl")
    tuned = {(line["clicks"], line["repeat"]): line for line in lines if line["method"] == "LightGBM tuned"}
    assert len(tuned) == 4
    for clicks in (300, 500):
        first, second = tuned[clicks, 0], tuned[clicks, 1]
        assert set(first["candidate"]) == {"num_leaves", "min_data_in_leaf"}
        assert second["candidate"] == first["candidate"]
    kinds = {line["method"] for line in lines if "candidate" in line}
    assert kinds == {"LightGBM tuned"}  # nothing else has any


def test_what_is_no_measurement_is_named_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    for text in ("notes\nmore", '{"repeat": 0}\nmore', "[1]\n"):
        file.write_text(text)
        with pytest.raises(FultrError, match=r"mine\.txt, line 1: expected a measurement"):
            read_lines(file)
        assert file.read_text() == text


@pytest.mark.parametrize(
    ("wrong", "what"), [((0, "a", 1.0, 1), "clicks"), ((1, "a", -1.0, 1), "gamma"), ((1, "a", 1.0, 0), "policies")]
)
def test_logs_that_cannot_be_made_are_refused(wrong: tuple[int, str, float, int], what: str) -> None:
    with pytest.raises(FultrError, match=what):
        Case(0, *wrong)


def line(method: str, repeat: int, ndcg: float, **other: object) -> dict[str, object]:
    case = {"repeat": repeat, "clicks": 10_000, "data": "synthetic", "gamma": 2.0, "policies": 3}
    return {**case, "method": method, "ndcg": ndcg, "cpu": 1.5, **other}


def test_differences_are_paired_over_the_logs_that_both_trained_on() -> None:
    ours = [line("fultr", 0, 0.60), line("fultr", 1, 0.62), line("fultr", 2, 0.70)]
    (kind,) = kinds([*ours, line("LightGBM", 1, 0.58), line("LightGBM", 2, 0.60)])
    gap = kind.ahead("LightGBM")
    assert gap is not None
    assert gap.mean == pytest.approx((0.04 + 0.10) / 2)
    assert gap.standard_error == pytest.approx(0.06 / np.sqrt(2) / np.sqrt(2))  # the deviation of two numbers
    row = next(row for row in rows(kind) if row["method"] == "LightGBM")
    assert row["ahead_low"] == pytest.approx(0.07 - 12.7062 * 0.03, abs=1e-5)  # Student's t, 1 degree of freedom


def test_the_table_compares_with_the_best_other_software() -> None:
    lines = [line("fultr", 0, 0.60), line("LightGBM", 0, 0.55), line("XGBoost unbiased tuned", 0, 0.62)]
    lines += [line("policy", 0, 0.50), line("grades", 0, 0.67), line("fultr linear", 0, 0.61)]
    head, _, row = markdown(kinds(lines)).splitlines()
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert cells["ahead of the best other one by"] == "−.020"
    assert (cells["`UnbiasedRanker`"], cells["XGBoost tuned"], cells["clicks"]) == (".600, 1.5 s", ".620", "10⁴")
    assert cells["with `position`"] == ""


def test_the_page_has_the_table_of_the_measurements_that_come_with_the_source() -> None:
    root = Path(__file__).parents[2]
    measured = kinds(read_lines(root / "results" / "practitioner.jsonl"))
    assert markdown(measured) in (root / "docs" / "click-logs.md").read_text(encoding="utf-8")
    panels = draw(measured).axes
    assert [axes.get_title(loc="left") for axes in panels] == sorted({kind.data for kind in measured})
