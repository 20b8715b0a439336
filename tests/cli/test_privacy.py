"""`fultr privacy plan`: tables that fit a terminal, JSON, and refusals in a sentence."""

from __future__ import annotations

import json

import pytest
from help.commands import fultr


def test_the_noise_of_each_mode_for_a_budget():
    done = fultr("privacy", "plan", "--population", "1000000", "--features", "519")
    assert done.code == 0
    assert all(len(line) <= 80 for line in done.out.splitlines())
    for words in ("per device", "add or remove one", "2,000 of 1,000,000 devices", "the server is trusted"):
        assert words in " ".join(done.out.split())


def test_json():
    done = fultr("privacy", "plan", "--population", "1000000", "--epsilon", "2", "--json")
    found = {one["name"]: one for one in json.loads(done.out)["plan"]}
    assert found.keys() == {"gaussian", "gaussian, secret cohorts", "correlated", "distributed"}
    for one in found.values():
        assert 1.9 < one["guarantee"]["epsilon"] <= 2
        assert one["guarantee"]["unit"] == "device"
    noise = {name: one["guarantee"]["noise_multiplier"] for name, one in found.items()}
    assert noise["gaussian, secret cohorts"] < noise["gaussian"] < noise["distributed"] < noise["correlated"]
    assert found["correlated"]["share"] < found["gaussian"]["share"] / 4


def test_too_few_devices_are_refused_with_the_reason():
    done = fultr("privacy", "plan", "--population", "5000", "--clients", "40")
    assert "devices in a round, better thousands, found 40" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--population: expected how many devices could take part"),
        (["--population", "10000", "--figure", "loss.png"], "--figure: expected --data"),
    ],
)
def test_bad_usage_is_one_line(options, message):
    done = fultr("privacy", "plan", *options)
    assert done.code == 2
    assert done.err.startswith(f"fultr: {message}")
    assert done.err.count("\n") == 1


@pytest.mark.slow
def test_a_simulation_finds_bound_and_loss(tmp_path):
    figure = tmp_path / "loss.png"
    size = ["--clients", "150", "--rounds", "3", "--population", "20000", "--epsilon", "8"]
    done = fultr("privacy", "plan", *size, "--data", "synthetic", "--figure", str(figure), "--json")
    found = json.loads(done.out)
    assert 0.01 < found["update_bound"] < 1
    assert all(one["ndcg@5"] > 0.2 for one in found["plan"] if not one["refused"])
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_simulate_says_what_it_cost():
    size = ["--clients", "150", "--rounds", "2", "--population", "20000"]
    done = fultr("simulate", "--privacy", "correlated", "--noise-multiplier", "3", *size)
    assert "Privacy: epsilon " in done.out
    assert "per device, add or remove one" in done.out
    refused = fultr("simulate", "--privacy", "correlated", "--epsilon", "1", *size[:4], "--population", "200")
    assert refused.code == 2
    assert "take 300 devices, and the population is 200" in refused.err
