"""The paper's effect, on real and on generated data; differences are paired over repeats."""

from __future__ import annotations

import numpy as np
import pytest
from fultr.findings import estimate

from fultr.baselines import LambdaLinear, train_lambda_linear
from fultr.datasets import load
from fultr.experiments import Comparison, compare
from fultr.metrics import ndcg, summarise
from fultr.policy import PolicySettings


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mq2007", "mq2008"])
def test_lambda_linear_beats_random_by_a_wide_margin_on_real_data(real_data, name):
    data = load(real_data(name))
    result = train_lambda_linear(data, LambdaLinear(epochs=10))
    trained = ndcg(result.ranker.score(data.test), data.test)
    chance = ndcg(np.random.default_rng(0).random((data.test.documents, 100)).astype(np.float32), data.test).mean(
        axis=1
    )
    gain = summarise(trained - chance)
    assert gain.mean > 0.15
    assert gain.mean > 7 * gain.standard_error


@pytest.mark.slow
def test_fedips_beats_fedavg_on_real_data_at_strong_bias(real_data):
    settings = Comparison(
        gammas=(2.0,),
        repeats=10,
        policy=PolicySettings(learning_rate=0.001),  # weak, but in no repeat worse than random: docs/effect.md
        evaluate_every=50,
        lambda_linear=LambdaLinear((0.1,), 5),
    )
    outcome = compare(load(real_data("mq2007")), settings)
    gain = estimate(outcome.final("FedIPS", 2.0) - outcome.final("FedAvg", 2.0))
    assert gain.mean >= 3 * gain.standard_error


@pytest.mark.slow
def test_the_effect_on_generated_data():
    """FedIPS above FedAvg at gamma 1 and 2; FedAvg loses more with gamma; λLinear is the ceiling."""
    settings = Comparison(
        repeats=10,
        rounds=100,
        client_rates=(1e-3, 3e-3, 1e-2, 3e-2),
        server_rates=(1.0, 10.0),
        evaluate_every=20,
        lambda_linear=LambdaLinear((0.1,), 10),
    )
    outcome = compare(load("synthetic"), settings)
    for gamma in (1.0, 2.0):
        gain = estimate(outcome.final("FedIPS", gamma) - outcome.final("FedAvg", gamma))
        assert gain.mean >= 3 * gain.standard_error, gamma
    drop = {name: outcome.final(name, 0.5) - outcome.final(name, 2.0) for name in ("FedAvg", "FedIPS")}
    more = estimate(drop["FedAvg"] - drop["FedIPS"])
    assert more.mean >= 3 * more.standard_error
    for name, gamma in outcome.curves:
        below = estimate(outcome.lambda_linear - outcome.final(name, gamma))
        assert below.mean >= 2 * below.standard_error, (name, gamma)
