"""Experiment files: what they say is what is run, and what is wrong with one is said in one line."""

from __future__ import annotations

import re
from copy import deepcopy

import pytest
from help.toml_values import NASTY, anything, written_document
from hypothesis import given
from hypothesis import strategies as st

from fultr.core.errors import FultrError
from fultr.core.settings import leaves
from fultr.core.toml import parse_toml
from fultr.study.experiment_files import packaged, parse_experiment, read_experiment
from fultr.study.settings import RunSettings
from fultr.study.sizing import resized

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
    assert lines["FedIPS, γ = 1, |U| = 5,000"].settings == RunSettings.of(
        {"gamma": 1.0, "clients": 5000, "rounds": 100}
    )
    tried = lines["FedIPS, γ = 1, |U| = 50"].candidates()
    assert [rates for rates, _ in tried] == [
        {"client_rate": 0.01, "server_rate": 1.0},
        {"client_rate": 0.1, "server_rate": 1.0},
    ]
    wanted = {"gamma": 1.0, "clients": 50, "rounds": 20, "client_rate": 0.1, "server_rate": 1.0}
    assert tried[1][1] == RunSettings.of(wanted)
    assert dict(lines["adam"].grid) == {"client_rate": (0.01, 0.1), "server_rate": (0.01, 0.1)}
    assert dict(lines["fixed"].grid) == {"server_rate": (1.0,)}
    assert dict(lines["λLinear"].grid) == {"lambda_rate": (0.1, 0.3)}
    assert mine.panels[0].lines == tuple(name for name in lines if name.startswith("FedIPS"))
    assert mine.claims[0].than == ("FedIPS, γ = 1, |U| = 50", "FedIPS, γ = 1, |U| = 5,000")
    assert mine.repeats == 4
    assert mine.data == ("synthetic", "folder/MQ2007")


SELF = """
[[line]]
name = "A"

[[line]]
name = "B"

[[claim]]
says = "so it is"
kind = "{kind}"
lines = ["{lines}"]
than = [{than}]
"""


@pytest.mark.parametrize(
    ("kind", "lines", "than", "expected"),
    [
        ("ends-above", "A", '"*"', (("A",), ("B",))),
        ("ends-above", "A*", '"*"', (("A",), ("B",))),
        ("fluctuates-more", "*", '"B"', (("A",), ("B",))),
        ("matters-more", "*", '"B", "*"', (("A", "B"), ("B", "A"))),  # shares lines by its nature
    ],
)
def test_a_pattern_does_not_stand_for_the_line_that_it_is_compared_with(kind, lines, than, expected):
    (claim,) = parse_experiment(SELF.format(kind=kind, lines=lines, than=than), "self").claims
    assert (claim.lines, claim.than) == expected


@pytest.mark.parametrize(
    ("lines", "than", "says"),
    [
        ("A", '"A"', 'self:12: than: expected other lines than the claim\'s own, found the text "A"'),
        ("A", '"*", "A"', 'self:12: than: expected other lines than the claim\'s own, found the text "A"'),
        ("A", '"A*"', "self:12: than: there is no other line 'A*'; there are B"),
        ("*", '"*"', "self:12: than: there is no other line '*'; there are none"),
    ],
)
def test_a_line_is_not_compared_with_itself(lines, than, says):
    with pytest.raises(FultrError) as error:
        parse_experiment(SELF.format(kind="ends-above", lines=lines, than=than), "self")
    assert str(error.value) == says


def test_resizing_keeps_the_ratio_of_rounds():
    mine = resized(parse_experiment(GOOD, "mine"), rounds=10, repeats=2)
    first = mine.lines[0]
    assert (mine.repeats, first.settings.rounds, dict(first.tuned_at)["rounds"]) == (2, 10, 2)
    assert first.settings.evaluate_every == 1


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("clients = 50", "client = 50", 6, "unknown setting 'client'; did you mean clients?"),
        ("clients = 50", 'clients = "many"', 6, "clients: expected a whole number"),
        ("clients = 50", "clients = 0", 6, "clients: expected a whole number, at least 1"),
        ("[tuning]", "[tuning", 9, "not valid TOML"),
        ("client_rate = [0.01, 0.1]", "client_rate = 0.01", 10, "client_rate: expected different numbers in a list"),
        ("client_rate = [0.01, 0.1]", "client_rate = [0.01, 0.01]", 10, "client_rate: expected different numbers"),
        ("client_rate = [0.01, 0.1]", "client_rate = [0.01, -1]", 10, "client_rate: expected a number, above 0"),
        ("client_rate = [0.01, 0.1]", "client_rate = [0.01, 0]", 10, "client_rate: expected numbers above 0, found"),
        ("vary.gamma = [0.5, 1.0]", "vary.gama = [0.5]", 16, "unknown setting 'gama'; did you mean gamma?"),
        ("vary.gamma = [0.5, 1.0]", "vary.gamma = 0.5", 16, "vary.gamma: expected a list of values"),
        ("vary.gamma = [0.5, 1.0]", "vary.gamma = [0.5, -1.0]", 16, "gamma: expected a number, at least 0"),
        ("{gamma}", "{gama}", 15, "name: unknown setting 'gama'; did you mean gamma?"),
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
        ("clients = 50", 'gamma = "2"', 6, 'gamma: expected a number, at least 0, found the text "2"'),
        ("clients = 50", "gamma = true", 6, "gamma: expected a number, at least 0, found true"),
        ("clients = 50", "gamma = [[1]]", 6, "gamma: expected a number, at least 0, found the list [[1]]"),
        ("clients = 50", "gamma = 2020-01-01", 6, "gamma: expected a number, at least 0, found the date 2020-01-01"),
        (
            "clients = 50",
            'propensity = "gess"',
            6,
            "known, none, personal, pooled, shrunk, power-law, harvested, trust, or one",
        ),
        ("clients = 50", "propensity = [1, 0.5]", 6, "propensity: expected 5 numbers, one per displayed rank; found 2"),
        ("server_rate = [1.0]", "repeats = true", 11, "tuning.repeats: expected a whole number, at least 1"),
        ("server_rate = [1.0]", "server_rate = [[1.0]]", 11, "server_rate: expected a number, above 0, or 0: "),
        ("tuned_at.rounds = 20", "tuned_at.rounds = [20]", 18, "rounds: expected a whole number, at least 1"),
        ("tuned_at.rounds = 20", "tuned_at.round = 20", 18, "unknown setting 'round'; did you mean rounds?"),
        ("tuning.server_rate = [0.01, 0.1]", "tuning.serverrate = [0.01]", 23, "did you mean server_rate?"),
        (
            "vary.gamma = [0.5, 1.0]",
            "vary.gamma = [[0.5], [1.0]]",
            16,
            "gamma: expected a number, at least 0, found the",
        ),
        ('lines = ["FedIPS*"]', 'against = "gama"', 35, "against: unknown setting 'gama'; did you mean gamma?"),
        (
            'kind = "ends-above"',
            'kind = "ends-above"\nmargin = "2"',
            40,
            "margin: expected a number, at least 0.0, at most",
        ),
        ('title = "Mine"', "titel = 3", 1, "unknown key 'titel'; did you mean title?"),
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
        assert (line.settings.clients, line.settings.rounds, line.settings.sessions.queries) == (2000, 500, 5)
        assert (line.settings.displayed, line.settings.sessions.clicks) == (5, 10)
        assert dict(line.grid) == {
            "client_rate": (1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
            "server_rate": (0.05, 0.5, 1.0, 2.0),
        }
    assert [line.settings.click_model.gamma for line in one.lines[:4]] == [0.5, 1.0, 1.5, 2.0]
    left = experiments["figure-2-left"]
    assert [line.settings.clients for line in left.lines] == [100, 500, 2500, 12500, 62500]
    assert {experiment.figure for experiment in experiments.values()} == {"1", "2", ""}


SETTINGS = [*leaves(RunSettings)]
RATES = ("client_rate", "server_rate", "lambda_rate")
PLACES = [
    *((key,) for key in ("title", "about", "figure", "data", "repeats", "seed", "settings", "tuning")),
    *((key,) for key in ("line", "panel", "claim")),
    *(("settings", name) for name in SETTINGS),
    *(("tuning", name) for name in ("repeats", *RATES)),
    *(("line", name) for name in ("name", "colour", "vary", "tuned_at", "tuning", *SETTINGS)),
    *(("line", table, name) for table in ("vary", "tuned_at") for name in SETTINGS),
    *(("line", "tuning", rate) for rate in RATES),
    *(("panel", name) for name in ("title", "lines", "against")),
    *(("claim", name) for name in ("says", "kind", "lines", "than", "margin", "since")),
]
"""Every key that an experiment file can have."""
SMALL = parse_toml(
    """
    [[line]]
    name = "a {gamma}"
    [[line]]
    name = "b"
    propensity = "shrunk"
    [[panel]]
    title = "all"
    [[claim]]
    says = "a is better"
    kind = "ends-above"
    lines = ["a*"]
    than = ["b"]
    """,
    "small",
)


def with_value(place: tuple[str, ...], value: object) -> str:
    """A small file with a value at a place; in lists of tables, in the first."""
    content = deepcopy(SMALL)
    table = content
    for key in place[:-1]:
        table = table.setdefault(key, {})
        table = table[0] if isinstance(table, list) else table
    table[place[-1]] = value
    return written_document(content)


def accepted_or_one_line(text: str) -> None:
    try:
        parse_experiment(text, "mine", "mine.toml")
    except FultrError as error:
        assert re.match(r"mine\.toml:\d+: .", str(error)), str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
        assert "Error" not in str(error)  # noqa: PT017


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_whatever_stands_at_a_key_is_taken_or_refused_in_one_line(place):
    for value in NASTY:
        accepted_or_one_line(with_value(place, value))
        accepted_or_one_line(with_value(place, [value]))


@given(st.sampled_from(PLACES), anything)
def test_any_value_at_any_key_is_taken_or_refused_in_one_line(place, value):
    accepted_or_one_line(with_value(place, value))


@given(st.dictionaries(st.text("abc_.", min_size=1, max_size=4), anything, max_size=3))
def test_any_table_is_refused_in_one_line(content):
    accepted_or_one_line(written_document({**SMALL, **content}))


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    """As some editors write it; line numbers stay right."""
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbftitle = 'Mine'\r\n[[line]]\r\nname = 'a'\r\n")
    assert read_experiment(path).title == "Mine"
    path.write_bytes(b"\xef\xbb\xbftitel = 'Mine'\r\n")
    with pytest.raises(FultrError, match=r"mine.toml:1: unknown key 'titel'; did you mean title\?"):
        read_experiment(path)
