"""Experiment files: what they say is what is run, and what is wrong with one is said in one line."""

from __future__ import annotations

import re

import pytest

from fultr.errors import FultrError
from fultr.experiment_files import packaged, parse_experiment, read_experiment
from fultr.runs import RunSettings

GOOD = """\
title = "Mine"
data = ["synthetic", "folder/MQ2007"]
repeats = 4

[settings]
clients = 50
rounds = 100

[tuning]
client_rate = [0.01, 0.1]
server_rate = [1.0]
lambda_rate = [0.1, 0.3]

[[line]]
name = "FedIPS, γ = {gamma}, |U| = {clients}"
vary.gamma = [0.5, 1.0]
vary.clients = [50, 5000]
tuned_at.rounds = 20

[[line]]
name = "adam"
server = "adam"
tuning.server_rate = [0.01, 0.1]

[[line]]
name = "fixed"
client_rate = 0.05

[[line]]
name = "λLinear"
algorithm = "lambda-linear"

[[panel]]
title = "all of FedIPS"
lines = ["FedIPS*"]

[[claim]]
says = "adam is better"
kind = "ends-above"
lines = ["adam"]
than = ["FedIPS, γ = 1*"]
"""


def test_lines_expand_and_are_tuned_as_declared():
    mine = parse_experiment(GOOD, "mine")
    assert [line.name for line in mine.lines] == [
        "FedIPS, γ = 0.5, |U| = 50",
        "FedIPS, γ = 0.5, |U| = 5,000",
        "FedIPS, γ = 1, |U| = 50",
        "FedIPS, γ = 1, |U| = 5,000",
        "adam",
        "fixed",
        "λLinear",
    ]
    lines = {line.name: line for line in mine.lines}
    assert lines["FedIPS, γ = 1, |U| = 5,000"].settings == RunSettings(gamma=1.0, clients=5000, rounds=100)
    tried = lines["FedIPS, γ = 1, |U| = 50"].candidates()
    assert [rates for rates, _ in tried] == [
        {"client_rate": 0.01, "server_rate": 1.0},
        {"client_rate": 0.1, "server_rate": 1.0},
    ]
    assert tried[1][1] == RunSettings(gamma=1.0, clients=50, rounds=20, client_rate=0.1, server_rate=1.0)
    assert dict(lines["adam"].grid) == {"client_rate": (0.01, 0.1), "server_rate": (0.01, 0.1)}
    assert dict(lines["fixed"].grid) == {"server_rate": (1.0,)}
    assert dict(lines["λLinear"].grid) == {"lambda_rate": (0.1, 0.3)}
    assert mine.panels[0].lines == tuple(name for name in lines if name.startswith("FedIPS"))
    assert mine.claims[0].than == ("FedIPS, γ = 1, |U| = 50", "FedIPS, γ = 1, |U| = 5,000")
    assert mine.repeats == 4
    assert mine.data == ("synthetic", "folder/MQ2007")


def test_resizing_keeps_the_ratio_of_rounds():
    mine = parse_experiment(GOOD, "mine").resized(rounds=10, repeats=2)
    first = mine.lines[0]
    assert (mine.repeats, first.settings.rounds, dict(first.tuned_at)["rounds"]) == (2, 50, 10)
    assert first.settings.evaluate_every == 5


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("clients = 50", "client = 50", 6, "unknown key 'client'; expected one of"),
        ("clients = 50", 'clients = "many"', 6, "clients: expected a whole number"),
        ("clients = 50", "clients = 0", 6, "clients: expected a whole number, at least 1"),
        ("[tuning]", "[tuning", 9, "not valid TOML"),
        ("client_rate = [0.01, 0.1]", "client_rate = 0.01", 10, "client_rate: expected different numbers in a list"),
        ("client_rate = [0.01, 0.1]", "client_rate = [0.01, 0.01]", 10, "client_rate: expected different numbers"),
        ("client_rate = [0.01, 0.1]", "client_rate = [0.01, -1]", 10, "client_rate: expected a number, above 0"),
        ("vary.gamma = [0.5, 1.0]", "vary.gama = [0.5]", 16, "unknown key 'gama'"),
        ("vary.gamma = [0.5, 1.0]", "vary.gamma = 0.5", 16, "vary.gamma: expected a list of values"),
        ("vary.gamma = [0.5, 1.0]", "vary.gamma = [0.5, -1.0]", 16, "gamma: expected a number, at least 0"),
        ("{gamma}", "{gama}", 15, "names an unknown setting in braces"),
        ('server = "adam"', 'server = "adm"', 22, "expected one of sgd, momentum"),
        ('server = "adam"', "server = 3", None, "expected one of sgd, momentum"),
        ('lines = ["FedIPS*"]', 'lines = ["FedAvg*"]', 35, "there is no line 'FedAvg*'"),
        ('lines = ["FedIPS*"]', 'lines = "FedIPS"', 35, "lines: expected a list of texts"),
        ('kind = "ends-above"', 'kind = "wins"', 39, "kind: expected one of ends-above"),
        ('than = ["FedIPS, γ = 1*"]', "", None, "than: expected 1 or more"),
        ("repeats = 4", "repeats = 0", 3, "repeats: expected a whole number, at least 1"),
        ("repeats = 4", "repeats = 4\nlines = 3", 4, "unknown key 'lines'"),
        ('data = ["synthetic", "folder/MQ2007"]', 'data = "synthetic"', 2, "data: expected a list of texts"),
        ('name = "λLinear"', 'name = "fixed"', None, "two lines are called 'fixed'"),
        ('title = "Mine"', "title = 3", 1, "title: expected a text"),
        ("[[panel]]", "[panel]", 33, "panel: expected tables headed [[panel]]"),
    ],
)
def test_a_wrong_file_gets_one_line_that_says_where(tmp_path, old, new, line, says):
    assert old in GOOD
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FultrError) as caught:
        read_experiment(path)
    text = str(caught.value)
    assert "\n" not in text
    assert says in text
    found = re.match(rf"{re.escape(str(path))}:(\d+): ", text)
    assert found
    if line is not None:
        assert int(found[1]) == line, text


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(FultrError, match=r"nowhere.toml: cannot be read: No such file"):
        read_experiment(tmp_path / "nowhere.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(FultrError, match=r"binary.toml: cannot be read"):
        read_experiment(tmp_path / "binary.toml")


def test_what_comes_with_fultr_is_the_paper():
    experiments = {experiment.name: experiment for experiment in packaged()}
    one = experiments["figure-1"]
    assert (one.repeats, len(one.data), len(one.panels)) == (30, 2, 4)
    for line in one.lines[:8]:
        assert (line.settings.clients, line.settings.rounds, line.settings.queries) == (2000, 500, 5)
        assert (line.settings.displayed, line.settings.clicks) == (5, 10)
        assert dict(line.grid) == {
            "client_rate": (1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
            "server_rate": (0.05, 0.5, 1.0, 2.0),
        }
    assert [line.settings.gamma for line in one.lines[:4]] == [0.5, 1.0, 1.5, 2.0]
    left = experiments["figure-2-left"]
    assert [line.settings.clients for line in left.lines] == [100, 500, 2500, 12500, 62500]
    assert {experiment.figure for experiment in experiments.values()} == {"1", "2", ""}
