"""What trees learn from the grades themselves, to draw beside what they learn from clicks."""

from __future__ import annotations

from dataclasses import replace

import fultr
from fultr.study.run import perform
from fultr.study.settings import RunSettings


def test_lightgbm_is_a_level_above_a_random_ranking_and_the_same_for_the_same_seed():
    whole = fultr.load("synthetic")
    data = replace(whole, train=whole.train.take(range(80)), valid=whole.valid.take(range(40)))
    results = [perform(RunSettings(algorithm="lightgbm"), data, seed=0, splits=("test",)) for _ in range(2)]
    random = perform(RunSettings(algorithm="random-ranking"), data, seed=0, splits=("test",))
    assert results[0].rounds.tolist() == [0]
    assert results[0].ndcg["test"].tolist() == results[1].ndcg["test"].tolist()
    assert results[0].ndcg["test"][0] > random.ndcg["test"][0] + 0.1
    assert RunSettings.of({"algorithm": "lightgbm", "gamma": 2.0}).relevant() == {"algorithm": "lightgbm", "k": 5}
