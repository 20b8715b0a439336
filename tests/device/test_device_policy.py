"""The policy of a device: the [policy] table of a file, read with the line of what is wrong."""

from __future__ import annotations

import pytest

from fultr import FultrError
from fultr.core.settings import build, flatten
from fultr.device.policy import KINDS, DevicePolicy
from fultr.federated.estimators import ESTIMATORS


def test_defaults():
    policy = DevicePolicy()
    assert (policy.least_clicks, policy.least_impressions, policy.window) == (20, 50, "all")
    assert (policy.answers_a_day, policy.answers_in_all, policy.seconds_apart) == (50, 2000, 0.5)
    assert (policy.sends, policy.estimators) == (KINDS, tuple(ESTIMATORS))
    assert (policy.held_out, policy.largest_norm, policy.displayed) == (0.2, 10.0, 0)
    assert build(DevicePolicy, flatten(policy)) == policy


def test_the_table_of_a_file(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text(
        'log = "device.db"\nwindow = 3\n\n[policy]\nleast-clicks = 7\nsends = ["update"]\n\n[other]\nx = 1\n'
    )
    assert DevicePolicy.read(path) == DevicePolicy(least_clicks=7, sends=("update",))
    path.write_text('log = "device.db"\n')
    assert DevicePolicy.read(path) == DevicePolicy()
    path.write_text("policy = {least_clicks = 7}")
    assert DevicePolicy.read(path).least_clicks == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\n[policy]\nleast_clics = 3", ":3: unknown setting 'least_clics'; did you mean least_clicks?"),
        (
            "least_clicks = 1\n[policy]\n\nleast-clicks = 0",
            ":4: least_clicks: expected a whole number, at least 1, found 0",
        ),
        (
            '[policy]\nsends = ["update", "clicks"]',
            ":2: sends: expected a list of some of update, examination, weights, judgement; found the list",
        ),
        (
            "[policy]\nsends = 3",
            ":2: sends: expected a list of some of update, examination, weights, judgement; found 3",
        ),
        ('[policy]\nwindow = "newest"', ':2: window: expected one of all, latest; found "newest"'),
        ("[policy]\nheld_out = 1.0", ":2: held_out: expected a number, at least 0, below 1, found 1.0"),
        ("[policy]\nwindow = 'all'\nheld_out =", ":3: not valid TOML"),
        ("policy = 3", ":1: policy: expected a table, found 3"),
        ("[policy]\nheld_out = 0.1\nheld-out = 0.1", ":2: held_out: expected once, found with a hyphen and without"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, said):
    path = tmp_path / "node.toml"
    path.write_text(text)
    with pytest.raises(FultrError) as error:
        DevicePolicy.read(path)
    assert str(error.value).startswith(f"{path}{said}")
    assert "\n" not in str(error.value)
    with pytest.raises(FultrError, match="cannot be read"):
        DevicePolicy.read(tmp_path / "none.toml")


def test_lists_of_names():
    assert DevicePolicy(sends="judgement,update").sends == ("judgement", "update")
    assert DevicePolicy(sends=["update", "update"]).sends == ("update",)
    assert DevicePolicy(estimators=[]).estimators == ()
    for wrong in ("all", ["update", 1], {"update": 1}, None):
        with pytest.raises(FultrError, match="sends: expected a list of some of"):
            DevicePolicy(sends=wrong)
