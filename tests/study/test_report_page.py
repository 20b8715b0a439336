"""The page in a real browser, as wide as a desktop and as narrow as a phone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from help.browser import seen_in_browser, write_watched
from test_report import bias, clients

from fultr.study.origins import Origin
from fultr.study.report import write_report

pytestmark = pytest.mark.process

# Points at panels and reports to the page around it.
SCRIPT = """
const plots = [...document.querySelectorAll(".plot")];
const read = (plot) => ({
  shown: !plot.querySelector(".tip").hidden,
  title: plot.querySelector(".tip b")?.textContent,
  rows: [...plot.querySelectorAll(".tip div")].map((row) => [...row.children].slice(1).map((e) => e.textContent)),
  marks: plot.querySelectorAll("svg > g:last-child > *").length,
  inside: (([tip, all]) => tip.left >= all.left && tip.right <= all.right)(
    [plot.querySelector(".tip"), plot].map((e) => e.getBoundingClientRect())),
});
const pointed = (plot, x) => {
  const data = JSON.parse(plot.querySelector("script").textContent);
  const size = plot.querySelector("svg").getBoundingClientRect();
  const scale = data.log ? Math.log : Number, [first, last] = data.x.map(scale);
  const share = data.box[0] + data.box[2] * (scale(x) - first) / (last - first);
  const where = { clientX: size.left + share * size.width, clientY: size.top + size.height / 3, bubbles: true };
  plot.dispatchEvent(new PointerEvent("pointermove", where));
  return read(plot);
};
const pressed = (plot, key) => {
  plot.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  return read(plot);
};
addEventListener("load", () => {
  const found = {
    width: innerWidth,
    closed: excess(),
    plots: plots.length,
    columns: new Set(plots.slice(0, 3).map((plot) => plot.getBoundingClientRect().left)).size,
    before: read(plots[0]),
    curve: pointed(plots[0], 103),
    key: pressed(plots[0], "ArrowRight"),
    escaped: pressed(plots[0], "Escape"),
    against: pointed(plots[2], 1.9),
    log: pointed(plots[6], 480),
  };
  for (const details of document.querySelectorAll("details")) details.open = true;
  found.open = excess();
  parent.postMessage(JSON.stringify({ ...found, errors }), "*");
});
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    first, second = bias()
    second = replace(second, data="a/rather/long/path/to/data/" * 5)
    second.origins[Origin("0.3.0", "x86_64 znver5 (0123abcd), Linux glibc 2.36, " + "numpy 2.4.6, " * 5)] = 3
    notes = [f"Not run yet: bias [{second.data}]: 1 of 6 lines is missing"]
    path = write_report([first, second, *clients()], folder, took="3 min", notes=notes)[0]
    write_watched(path, folder, SCRIPT)
    return folder


@pytest.fixture(scope="module", params=[1280, 390])
def seen(request: pytest.FixtureRequest, page: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return seen_in_browser(page, request.param, tmp_path_factory.mktemp("profile"))


def test_nothing_is_wider_than_the_window(seen):
    assert seen["width"] == seen["asked"]
    assert seen["closed"] == 0
    assert seen["open"] == 0  # with all details
    assert seen["plots"] == 2 * 3 + 1
    assert seen["columns"] == (3 if seen["width"] == 1280 else 1)


def test_nothing_is_wrong(seen):
    assert seen["errors"] == []
    assert seen["said"] == []


def test_pointing_at_a_panel_shows_its_numbers(seen):
    assert not seen["before"]["shown"]
    curve = seen["curve"]
    assert (curve["shown"], curve["inside"], curve["title"]) == (True, True, "round 100")
    assert curve["marks"] == 1 + 3  # a line, and a dot on each curve
    assert_numbers(curve["rows"], 100)


def test_arrow_keys_go_on_and_escape_ends(seen):
    assert seen["key"]["title"] == "round 110"
    assert_numbers(seen["key"]["rows"], 110)
    assert not seen["escaped"]["shown"]
    assert seen["escaped"]["marks"] == 0


def test_panels_against_a_setting_are_read_too(seen):
    assert seen["against"]["title"] == "bias severity γ = 2"
    assert [name for name, _ in seen["against"]["rows"]] == ["λLinear", "FedIPS", "FedAvg"]
    assert seen["log"]["title"] == "clients per round, |U| = 500"
    assert seen["log"]["rows"] == [["FedIPS", "0.5000 ± 0.0000"]]


def assert_numbers(rows: list[list[str]], at: int) -> None:
    """Rows are the lines of the first panel, the highest first, with mean and standard error over the four repeats."""
    outcome = bias()[0]
    expected = {}
    for name in outcome.experiment.panels[0].lines:
        measured = outcome.lines[name]
        values = measured.ndcg[:, -1 if measured.rounds.size == 1 else measured.rounds.tolist().index(at)]
        expected[name] = (values.mean(), values.std(ddof=1) / 4**0.5)
    assert [name for name, _ in rows] == sorted(expected, key=lambda name: -expected[name][0])
    for name, numbers in rows:
        mean, error = map(float, numbers.split(" ± "))
        # Four digits are shown, of five that the page holds.
        assert (mean, error) == (
            pytest.approx(expected[name][0], abs=5.5e-5),
            pytest.approx(expected[name][1], abs=5.5e-5),
        )
