"""What `fultr deploy train`, `status` and `report` show of a federation in which devices are in trouble."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from help.browser import seen_in_browser, write_watched
from help.commands import fultr
from help.histories import ATTEMPT, DEVICES, LARGE, ROUNDS, past_federation, rounds, write_lines

from fultr.core.errors import FultrError
from fultr.deploy import report
from fultr.deploy.folder import Deployment
from fultr.deploy.history import read_history, read_line
from fultr.deploy.keys import write_server_certificate
from fultr.deploy.quality import half_width, quality_over_rounds
from fultr.deploy.training import TrainingProgress

if importlib.util.find_spec("flwr") is None:
    pytest.skip("needs Flower: pip install 'fultr[flower]'", allow_module_level=True)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return past_federation(tmp_path_factory.mktemp("watched") / "fed")


def test_status_names_devices_in_trouble(deployment):
    done = fultr("deploy", "status", deployment.folder)
    assert done.code == 0, done.err
    rows = {line.split()[0]: line.split(None, 6)[1:] for line in done.out.splitlines() if " round " in line}
    assert [cell.strip() for cell in rows["node-1"]] == ["0", "round", "12", "13", "0", "0"]
    assert re.search(r"node-4 +3 +never +13 +13 +0 +it refused to answer", done.out)
    assert re.search(rf"node-6 +5 +round 7 +13 +5 +1 +{re.escape(LARGE)}", done.out)
    assert "node-4 needs attention: not one of 13 questions answered (it refused to answer)\n" in done.out
    assert f"node-6 needs attention: no usable answer since round 7, to 5 questions ({LARGE})\n" in done.out
    assert "node-7 needs" not in done.out
    told = json.loads(fultr("deploy", "status", deployment.folder, "--json").out)
    assert [node["device"] for node in told["nodes"]] == list(range(DEVICES))
    refuses = told["devices"][3]
    assert (refuses["refused"], refuses["last_answered"], refuses["latest_reason"]) == (13, None, "it refused")


def played(monkeypatch: pytest.MonkeyPatch, lines: list[tuple[dict[str, Any], bool]], failure: str = "") -> None:
    """Training that goes like this, without a SuperLink."""

    def follow(folder: Path, run: int, new: bool, show: Any) -> None:
        for line, completed in lines:
            one = read_line(line, completed)
            assert one is not None
            show(TrainingProgress(run, one.number - (not completed), ROUNDS, None, line, one))
        if failure:
            raise FultrError(failure)

    monkeypatch.setattr("fultr.deploy.training.follow", follow)
    monkeypatch.setattr("fultr.cli.deploy._submitted", lambda folder: (7, True))


def test_train_says_what_went_wrong(monkeypatch, deployment):
    lines = [(line, True) for line in rounds()]
    played(monkeypatch, [*lines[:5], (ATTEMPT, False), *lines[5:]])
    done = fultr("deploy", "train", deployment.folder)
    assert done.code == 0
    assert "round 4 of 12\n  round 4: device 3 refused to answer\n  round 4: no answer from device 6\n" in done.err
    assert "  round 6: attempt 1 failed: 1 of 7 devices sent a usable reply, too few\n" in done.err
    assert f"  round 8: device 5 was refused by the server: {LARGE}\n" in done.err
    assert "Devices in rounds 1 to 12, with 1 failed attempt" in done.out
    assert re.search(r"3 +13 +0 +13 +0 +4\.0 +it refused to answer", done.out)
    told = json.loads(fultr("deploy", "train", deployment.folder, "--json").out)
    assert (told["run"], told["latest"]["round"]) == (7, ROUNDS)
    assert [one["refused"] for one in told["devices"]] == [0, 0, 0, 13, 0, 5, 0]


def test_the_table_of_devices_is_for_trouble(monkeypatch, deployment):
    good = {**rounds()[0], "accepted": list(range(DEVICES)), "refused": {}}
    played(monkeypatch, [(good, True)])
    assert fultr("deploy", "train", deployment.folder).out == ""
    assert "Devices in rounds 1 to 1" in fultr("deploy", "train", deployment.folder, "--devices").out


def test_a_run_that_fails_shows_the_devices_first(monkeypatch, deployment):
    played(monkeypatch, [(ATTEMPT, False)], "run 7 failed: too few replies")
    done = fultr("deploy", "train", deployment.folder)
    assert (done.code, done.err.splitlines()[-1]) == (2, "fultr: run 7 failed: too few replies")
    assert "with 1 failed attempt" in done.out
    told = fultr("deploy", "train", deployment.folder, "--json")
    assert told.code == 2
    assert json.loads(told.out)["devices"][1]["silent"] == 1


@pytest.mark.parametrize("columns", [80, 100])
def test_trouble_is_readable_on_a_terminal(monkeypatch, capsys, deployment, columns):
    from rich.console import Console

    from fultr.cli.watching import show_devices

    monkeypatch.setattr("rich.console.Console", lambda **_: Console(width=columns, file=sys.stdout, highlight=False))
    show_devices(read_history(deployment.folder / "state"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert any(re.match(r" +5 +13 +7 +5 +1 +6\.0 +update: its", line) for line in lines)  # numbers are never cut


def test_the_page_says_it_all(deployment):
    path = report.write_report(deployment.folder)
    assert path == deployment.folder / "report.html"
    page = path.read_text()
    assert "12 of 12" in page
    assert "5 of 7 answered in the last round" in page
    half = half_width(0.01, 4)
    assert f"95% interval {0.6 - half:.3f} to {0.6 + half:.3f}. In the displayed order 0.500" in page
    assert "No usable answer from devices 3 and 5 to the last 3 questions or more" in page
    assert f"device 5, round 12: no usable answer: {LARGE} (6.0 s)" in page
    assert re.search(r"<td>v0001-\w{6}</td><td>v0002-\w{6}</td><td>25%</td><td class=\"words\">rollout</td>", page)
    assert "device 6, round 6, attempt 1, which failed: no answer" in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "http" not in page.replace("http://www.w3.org", "")  # nothing is loaded
    assert fultr("deploy", "report", deployment.folder, "--out", path.with_name("other.html")).code == 0


def test_half_of_an_interval():
    """Student's 97.5% quantile with 2 degrees of freedom is 4.302653, of a normal distribution 1.959964."""
    assert half_width(0.1, 3) == pytest.approx(0.4302653, abs=1e-7)
    assert half_width(0.1, None) == pytest.approx(0.1959964, abs=1e-7)
    assert half_width(None, 3) is half_width(0.1, 1) is None


def test_the_page_of_a_federation_without_history_or_with_damage(tmp_path, monkeypatch):
    new = past_federation(tmp_path / "fed")
    state = new.folder / "state"
    (state / "progress.jsonl").write_bytes(b"\xff{\n" * 3)
    (state / "attempts.jsonl").unlink()
    (state / "releases" / "1.json").write_text("{}")
    version = next((state / "versions").glob("v0001*"))
    version.chmod(0o600)
    version.write_text("{")
    crt, key = new.superlink / "server.crt", new.superlink / "server.key"
    crt.unlink()
    key.unlink()
    monkeypatch.setattr("fultr.deploy.keys.SERVER_DAYS", 3)
    write_server_certificate(crt, key, new.folder / "ca" / "ca.crt", new.folder / "ca" / "ca.key", "127.0.0.1")
    page = report.write_report(new.folder).read_text()
    assert "3 lines of the server’s files cannot be read" in page
    assert "0 of 12" in page
    assert version.stem in page
    assert '<dd class="no">2 days</dd>' in page
    (new.folder / "federation.toml").write_text("features = ")
    assert fultr("deploy", "report", new.folder).code == 2


def test_many_rounds_and_devices_make_no_endless_page(tmp_path):
    big = past_federation(tmp_path / "fed")
    line = rounds()[0]
    many = {"accepted": list(range(3, 500)), "refused": {"1": "<b>why</b>"}, "silent": [2]}
    write_lines(big.folder / "state" / "progress.jsonl", [{**line, **many, "round": t} for t in range(1, 401)])
    page = report.write_report(big.folder).read_text()
    assert len(page) < 2_000_000
    assert "<b>why</b>" not in page
    assert "&lt;b&gt;why" in page
    assert page.count('<th scope="row">device ') == report.MOST_DEVICES
    assert ">device 1</th>" in page  # those with trouble are there
    assert len(quality_over_rounds(read_history(big.folder / "state"), None)) == 400 / 2
    assert '"x": [1, 3, ' in page
    assert " 397, 399]" in page  # the last round's judgement is of the weights before it


SCRIPT = """
const plots = [...document.querySelectorAll(".plot")];
const strip = document.querySelector(".strip"), line = document.querySelector(".read");
const cell = (row, column) => strip.tBodies[0].rows[row].querySelectorAll("td")[column];
const said = () => [line.textContent, document.querySelectorAll(".at").length];
const pressed = (key) => {
  strip.parentElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  return said();
};
addEventListener("load", () => {
  const found = { width: innerWidth, closed: excess(), plots: plots.length };
  found.columns = new Set(plots.map((plot) => plot.getBoundingClientRect().left)).size;
  plots[0].dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
  const tip = plots[0].querySelector(".tip");
  found.tip = [tip.querySelector("b").textContent, tip.querySelector("div").textContent];
  cell(5, 12).dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  found.pointed = said();
  found.up = pressed("ArrowUp");
  found.escaped = pressed("Escape");
  const colours = new Set([...document.querySelectorAll(".legend i")].map((e) => getComputedStyle(e).backgroundColor));
  found.colours = colours.size;
  found.symbols = new Set([...document.querySelectorAll(".legend i")].map((e) => e.textContent)).size;
  for (const details of document.querySelectorAll("details")) details.open = true;
  found.open = excess();
  parent.postMessage(JSON.stringify({ ...found, errors }), "*");
});
"""


@pytest.mark.process
@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_in_a_browser(deployment, tmp_path, width):
    write_watched(report.write_report(deployment.folder, tmp_path / "report.html"), tmp_path, SCRIPT)
    seen = seen_in_browser(tmp_path, width, tmp_path / "profile")
    assert (seen["width"], seen["closed"], seen["open"]) == (width, 0, 0)  # nothing is wider than the window
    assert (seen["errors"], seen["said"]) == ([], [])
    assert (seen["plots"], seen["columns"]) == (2, 2 if width == 1200 else 1)
    assert seen["tip"] == ["rounds done: 12", f"the ranker’s order0.6000 ± {half_width(0.01, 4):.4f}"]
    assert seen["pointed"] == [f"device 5, round 12: no usable answer: {LARGE} (6.0 s)", 1]
    assert seen["up"] == ["device 4, round 12: answered (5.0 s)", 1]
    assert seen["escaped"] == ["", 0]
    assert seen["colours"] == seen["symbols"] == 4  # never by colour alone
