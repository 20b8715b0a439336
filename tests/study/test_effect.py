"""The paper's effect, on real and on generated data; differences are paired over repeats."""

from __future__ import annotations

import numpy as np
import pytest

from fultr.data.load import load
from fultr.rankers.lambda_linear import train_lambda_linear
from fultr.rankers.metrics import ndcg, summarise
from fultr.rankers.settings import PAPER_LEARNING_RATES, LambdaLinear
from fultr.study.comparison import comparison
from fultr.study.reproduce import Plan, reproduce
from fultr.study.settings import PolicySettings, RunSettings
from fultr.study.statistics import estimate
from fultr.study.store import Source


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mq2007", "mq2008"])
def test_lambda_linear_beats_random_by_a_wide_margin_on_real_data(real_data, name):
    data = load(real_data(name))
    result = train_lambda_linear(data, LambdaLinear(lambda_epochs=10), rates=PAPER_LEARNING_RATES)
    trained = ndcg(result.ranker.score(data.test), data.test)
    chance = ndcg(np.random.default_rng(0).random((data.test.documents, 100)).astype(np.float32), data.test).mean(
        axis=1
    )
    gain = summarise(trained - chance)
    assert gain.mean > 0.15
    assert gain.mean > 7 * gain.standard_error


@pytest.mark.slow
def test_fedips_beats_fedavg_on_real_data_at_strong_bias(real_data, tmp_path):
    settings = RunSettings(
        rounds=200,
        policy=PolicySettings(policy_rate=0.001),  # weak, but in no repeat worse than random: docs/effect.md
        evaluate_every=50,
        lambda_linear=LambdaLinear(lambda_epochs=5),
    )
    experiment = comparison(settings, gammas=(2.0,), repeats=10, lambda_rates=(0.1,))
    [[outcome]] = reproduce(Plan([experiment], tmp_path, [Source(str(real_data("mq2007")))], lines=("Fed*",)))
    gain = estimate(outcome.lines["FedIPS, γ = 2"].final - outcome.lines["FedAvg, γ = 2"].final)
    assert gain.mean >= 3 * gain.standard_error


@pytest.mark.slow
def test_the_effect_on_generated_data(tmp_path):
    """FedIPS above FedAvg at gamma 1 and 2; FedAvg loses more with gamma; λLinear is the ceiling.

    With 6 repeats, 3.64 and 2.23 standard errors are as unlikely by chance as 3 and 2 are with 10 (Student's t).
    """
    experiment = comparison(
        RunSettings.of({"rounds": 100, "evaluate_every": 20, "lambda_epochs": 10}),
        repeats=6,
        client_rates=(1e-3, 3e-3, 1e-2),
        server_rates=(10.0,),
        lambda_rates=(0.1,),
    )
    [[outcome]] = reproduce(Plan([experiment], tmp_path, lines=("Fed*", "λLinear")))
    final = {name: line.final for name, line in outcome.lines.items()}
    for gamma in ("1", "2"):
        gain = estimate(final[f"FedIPS, γ = {gamma}"] - final[f"FedAvg, γ = {gamma}"])
        assert gain.mean >= 3.64 * gain.standard_error, gamma
    drop = {name: final[f"{name}, γ = 0.5"] - final[f"{name}, γ = 2"] for name in ("FedAvg", "FedIPS")}
    more = estimate(drop["FedAvg"] - drop["FedIPS"])
    assert more.mean >= 3.64 * more.standard_error
    for name, values in final.items():
        if name.startswith("Fed"):
            below = estimate(final["λLinear"] - values)
            assert below.mean >= 2.23 * below.standard_error, name
