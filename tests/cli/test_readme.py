"""The README's example runs, and its files and commands exist."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click import Context, Group
from click.testing import CliRunner

import fultr
from fultr.cli.main import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example is not None
    names: dict[str, object] = {}
    exec(example[1], names)
    corrected, biased = names["run"], names["biased"]
    assert corrected.curve.ndcg["test"][-1] > biased.curve.ndcg["test"][-1]
    assert (tmp_path / "ranker.json").exists()


def test_the_example_of_a_search_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(search = .*?)```", README, re.DOTALL)
    names = dict(
        fultr=fultr,
        title_match=lambda query, candidate: query in candidate,
        freshness=lambda query, candidate: len(candidate),
        candidates=["a", "b", "c", "d"],
    )
    exec(example, names)
    with names["search"] as search:
        assert list(names["results"]) == ["a", "b", "c", "d"]  # there is no version yet
        assert search.log.records().log.clicks.tolist() == [[0, 0, 1, 0]]


def test_the_example_of_a_click_log_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(ranker = .*?)```", README, re.DOTALL)
    rng = np.random.default_rng(0)
    log = pd.DataFrame(rng.random((4000, 3)), columns=["a", "b", "c"])
    log["query"], log["rank"] = np.arange(4000) // 4, np.tile([1, 2, 3, 4], 1000)
    log["click"] = (rng.random(4000) < log["a"] / log["rank"]).astype(int)
    names = dict(fultr=fultr, log=log, candidates=log[:8], features=["a", "b", "c"])
    exec(example, names)
    assert "clicks on 1,000 pages" in capsys.readouterr().out
    assert fultr.Ranker.load("ranker.json").feature_names == ("a", "b", "c")


def test_the_examples_of_the_page_on_search_run(tmp_path, monkeypatch, capsys):
    """What they print is what the page says."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "search.md").read_text()
    names: dict[str, object] = {}
    first, second, third = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(first, names)
    assert f"```\n{capsys.readouterr().out}```" in page
    exec(second, names)
    assert f"prints `{capsys.readouterr().out.strip()}`" in page
    exec(third, names)
    assert f"prints `{capsys.readouterr().out.strip()}`" in page
    with fultr.DeviceLog.open("search.db", features=["title match", "freshness"]) as log:
        found = log.records()
    assert found.versions == ("default", names["version"].name)
    assert found.log.clicks.tolist() == [[0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    blocks = "".join(page.read_text(encoding="utf-8").split("```")[1::2])
    for line in re.findall(r"^ *fultr .*", blocks, re.MULTILINE):
        words = line.split("#")[0].split()[1:]
        group = isinstance(cli.get_command(Context(cli), words[0]), Group)
        shown = CliRunner().invoke(cli, [*words[: 1 + group], "--help"])
        assert shown.exit_code == 0, line
        for option in re.findall(r" (--[a-z-]+)", line.split("#")[0]):
            assert re.search(rf"{option}\b", shown.output), line


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), (page.name, target)


def test_what_an_update_gives_away_is_as_the_page_shows():
    found = doctest.testfile(str(ROOT / "docs" / "what-leaves-a-device.md"), module_relative=False)
    assert found.attempted > 5
    assert not found.failed
