"""Settings: nested in Python, flat outside, each declared once; what is wrong is one line that says what is allowed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fultr.core.checks import SettingError, check_choice, check_number, written
from fultr.core.errors import FultrError
from fultr.core.settings import REQUIRED, build, changed, check, either, flatten, leaves, setting
from fultr.core.toml import parse_toml
from fultr.federated.federation import FederationSettings
from fultr.study.settings import RunSettings


@dataclass(frozen=True)
class Training:
    rate: float = setting(0.01, "Rate.", above=0)
    loss: Literal["hinge", "logistic"] = setting("hinge", "Loss.")
    clip: float | None = setting(None, "Clip.", above=0, zero="no limit")
    inside: int = 3  # for Python alone

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Learnt:
    kind: Literal["a", "b"] = setting("a", "Kind.")
    start: float = setting(0.5, "Start.", above=0, most=1)
    memory: float = setting(0.9, "Memory.", least=0, below=1)

    def __post_init__(self) -> None:
        check(self)


def numbers_or_names(value: object) -> object:
    if value in ("known", "a", "b"):
        return value
    if isinstance(value, list | tuple) and value and all(type(number) is float for number in value):
        return tuple(value)
    raise ValueError


@dataclass(frozen=True)
class Run:
    size: int = setting(REQUIRED, "Size.", least=1, most=100)
    flag: bool = setting(False, "Flag.")
    count: int = setting(1, "Count.", least=1)
    note: str = setting("", "Note.")
    training: Training = Training(rate=0.5)
    source: str | tuple[float, ...] | Learnt = either(
        "known", "Source.", Learnt, "kind", name="source", reads=numbers_or_names, expected="known, a, b or numbers",
        without=("memory",),
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self)


def test_leaves_know_where_they_sit_and_what_is_usual_there():
    found = leaves(Run)
    assert list(found) == ["size", "flag", "count", "note", "rate", "loss", "clip", "source", "start"]
    assert found["rate"].path == ("training", "rate")
    assert found["rate"].default == 0.5  # of this tree, not of the class
    assert found["size"].default is REQUIRED
    assert found["loss"].choices == ("hinge", "logistic")
    assert (found["start"].path, found["start"].help) == (("source", "start"), "Start.")


def test_flat_and_nested_are_the_same():
    plain = build(Run, {"size": 3})
    assert plain == Run(3)
    assert flatten(plain) == {
        "size": 3, "flag": False, "count": 1, "note": "", "rate": 0.5, "loss": "hinge", "clip": None, "source": "known"
    }  # fmt: skip
    chosen = build(Run, {"size": 3, "source": "b", "start": 1, "rate": 2})
    assert chosen == Run(3, training=Training(rate=2.0), source=Learnt("b", start=1.0))
    assert flatten(chosen)["start"] == 1.0
    assert build(Run, flatten(chosen)) == chosen
    assert Run(3, source="b").source == Learnt("b")
    assert build(Run, {"size": 3, "source": [0.5, 0.25]}).source == (0.5, 0.25)


def test_a_change_leaves_the_rest():
    before = Run(3, training=Training(inside=7), source=Learnt("a", start=0.25, memory=0.5))
    after = changed(before, {"clip": 4, "source": "b"})
    assert after.training == Training(0.01, "hinge", 4.0, inside=7)
    assert after.source == Learnt("b", 0.25, 0.5)
    assert changed(after, {"source": "known"}).source == "known"
    assert changed(after, {"clip": 0}).training.clip is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "size: expected a whole number, at least 1, at most 100, found nothing"),
        ({"size": 3, "rat": 1}, "unknown setting 'rat'; did you mean rate?"),
        (
            {"size": 3, "xyzzy": 1},
            "unknown setting 'xyzzy'; expected one of size, flag, count, note, rate, loss, clip, ",
        ),
        ({"size": 3, "memory": 0.5}, "unknown setting 'memory'"),
        ({"size": "3"}, 'size: expected a whole number, at least 1, at most 100, found the text "3"'),
        ({"size": 3.0}, "size: expected a whole number, at least 1, at most 100, found 3.0"),
        ({"size": True}, "size: expected a whole number, at least 1, at most 100, found true"),
        ({"size": 3, "rate": False}, "rate: expected a number, above 0, found false"),
        ({"size": 3, "rate": [1]}, "rate: expected a number, above 0, found the list [1]"),
        ({"size": 3, "rate": {"a": 1}}, "rate: expected a number, above 0, found a table"),
        ({"size": 3, "rate": float("nan")}, "rate: expected a number, above 0, found nan"),
        ({"size": 3, "rate": 10**400}, "rate: expected a number, above 0, found a number of about 401 digits"),
        ({"size": 3, "rate": 1 << 100_000}, "rate: expected a number, above 0, found a number of about 30104 digits"),
        ({"size": 3, "rate": date(2020, 1, 2)}, "rate: expected a number, above 0, found the date 2020-01-02"),
        ({"size": 3, "rate": time(1, 2)}, "rate: expected a number, above 0, found the time 01:02:00"),
        ({"size": 3, "loss": "hnge"}, 'loss: expected one of hinge, logistic; found "hnge"'),
        ({"size": 3, "loss": 3}, "loss: expected one of hinge, logistic; found 3"),
        ({"size": 3, "loss": ["hinge"]}, 'loss: expected one of hinge, logistic; found the list ["hinge"]'),
        ({"size": 3, "clip": -1}, "clip: expected a number, above 0, or 0: no limit; found -1"),
        ({"size": 3, "clip": False}, "clip: expected a number, above 0, or 0: no limit; found false"),
        ({"size": 3, "flag": 1}, "flag: expected true or false, found 1"),
        ({"size": 3, "count": 0}, "count: expected a whole number, at least 1, found 0"),
        ({"size": 3, "count": 10**10}, "count: expected a whole number, at least 1, at most 1,000,000,000, found 1000"),
        ({"size": 3, "note": 1}, "note: expected a text, found 1"),
        ({"size": 3, "source": "c"}, 'source: expected known, a, b or numbers; found "c"'),
        ({"size": 3, "source": [["a"]]}, 'source: expected known, a, b or numbers; found the list [["a"]]'),
        ({"size": 3, "source": "a", "start": 0}, "start: expected a number, above 0, at most 1, found 0"),
        ({"size": 3, "source": "known", "start": 0}, "start: expected a number, above 0, at most 1, found 0"),
    ],
)
def test_what_is_wrong_is_one_line(given, message):
    with pytest.raises(SettingError) as caught:
        build(Run, given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_python_is_told_the_same():
    with pytest.raises(SettingError, match='rate: expected a number, above 0, found the text "2"'):
        Training(rate="2")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="training: expected a value of type Training, found 3"):
        Run(3, training=3)  # type: ignore[arg-type]


def test_numbers_may_be_of_numpy_and_are_kept_as_pythons():
    kept = Run(np.int32(3), training=Training(np.float32(0.5)))
    assert type(kept.size) is int
    assert type(kept.training.rate) is float


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("size", "7", 7),
        ("rate", "1e-3", 0.001),
        ("clip", "0", None),
        ("loss", "logistic", "logistic"),
        ("note", "3", "3"),
    ],
)
def test_a_command_line_writes_everything_as_text(name, text, value):
    assert leaves(Run)[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("size", "7.5", 'size: expected a whole number, at least 1, at most 100, found "7.5"'),
        ("rate", "fast", 'rate: expected a number, above 0, found "fast"'),
        ("rate", "inf", "rate: expected a number, above 0, found inf"),
        ("loss", "x", 'loss: expected one of hinge, logistic; found "x"'),
        ("size", "9" * 5000, "size: expected a whole number"),
    ],
)
def test_a_wrong_text_on_a_command_line(name, text, message):
    with pytest.raises(SettingError) as caught:
        leaves(Run)[name].parse(text)
    assert str(caught.value).startswith(message)


@dataclass(frozen=True)
class Twice:
    rate: float = setting(1.0, "Rate.")
    training: Training = Training()


def test_two_settings_of_a_tree_have_different_names():
    with pytest.raises(TypeError, match="two settings are called rate"):
        leaves(Twice)


@pytest.mark.parametrize("tree", [RunSettings, FederationSettings])
def test_every_setting_says_what_it_is(tree):
    for leaf in leaves(tree).values():
        assert leaf.help.endswith((".", "?")), leaf.name
        assert leaf.kind in (int, float, bool, str, tuple)
        if leaf.default is not REQUIRED:
            assert leaf.read(leaf.default) == leaf.default
            assert leaf.read(leaf.write(leaf.default)) == leaf.default


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.times() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(anything)
def test_any_value_can_be_written_in_one_short_line(value):
    assert len(written(value)) < 120
    assert "\n" not in written(value)


@given(st.sampled_from([*leaves(RunSettings).values(), *leaves(FederationSettings).values()]), anything)
def test_a_setting_takes_a_value_or_says_why_not(leaf, value):
    try:
        kept = leaf.read(value)
    except FultrError as error:
        assert str(error).startswith(f"{leaf.name}: expected ")  # noqa: PT017
    else:
        assert leaf.read(kept) == kept


@given(st.sampled_from([*leaves(RunSettings).values()]), st.text())
def test_a_setting_takes_a_text_of_the_command_line_or_says_why_not(leaf, text):
    try:
        leaf.parse(text)
    except FultrError as error:
        assert str(error).startswith(f"{leaf.name}: expected ")  # noqa: PT017


def test_checks_of_arguments_are_as_strict():
    for value in (True, "3", None, [1], float("nan"), 10**400, datetime(2020, 1, 1)):
        with pytest.raises(FultrError, match="rate: expected a number, found "):
            check_number("rate", value)  # type: ignore[arg-type]
    with pytest.raises(FultrError, match=r"loss: expected one of a, b; found the list \[1\]"):
        check_choice("loss", [1], ("a", "b"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["a = ", "a = " + "9" * 5000, "a = " + "[" * 5000, "a = 2020-13-45", "a = 1\na = 2", 'a = """', "\x00"]
)
def test_what_is_no_toml_is_one_line(text):
    with pytest.raises(FultrError, match=r"^mine\.toml(:\d+)?: not valid TOML: .") as caught:
        parse_toml(text, "mine.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.process
def test_settings_are_quick_to_import():
    code = "import sys, fultr.study.settings, fultr.federated.federation; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "numba", "scipy"} & set(done.stdout.split())
