"""What a personal layer is worth: nobody loses where users are alike, and tastes are learnt."""

from __future__ import annotations

import fultr
from fultr.study.personalisation import worth
from fultr.study.settings import FiniteUsers


def test_tastes_are_learnt_and_a_judged_layer_harms_nobody():
    """A layer of 300 clicks gains where tastes differ, by 2 standard errors; one that is used at all is judged."""
    data = fultr.load("synthetic")
    ranker = fultr.train_lambda_linear(data, seed=0).ranker.weights
    some = dict(clicks=300, users=12, population=FiniteUsers(20, pool=80))
    liked = worth(data, ranker, tastes=True, **some)
    assert liked.always > 2 * liked.always_error
    alike = worth(data, ranker, tastes=False, **some)
    assert alike.judged > -0.005
    assert alike.used < 0.3
    assert alike.shared > liked.shared
