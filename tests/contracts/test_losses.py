"""Every loss through the same cases, against its plain version and its numerical derivative."""

from __future__ import annotations

import numpy as np
import plain
import pytest
from numba import njit

from fultr.rankers.losses import LOSSES, RANK_WEIGHTED
from fultr.rankers.losses.loss import loss_and_pulls

SCORES = {
    "one document": [0.3],
    "equal scores": [0.5, 0.5, 0.5],
    "clicked first": [2.0, 0.25, -1.0, 0.5],
    "clicked last": [-3.0, 0.25, 1.0, 0.5],
    "far apart": [80.0, -75.0, 0.0],
}


def test_every_loss_is_in_the_table():
    assert list(plain.LOSSES) == list(LOSSES)


@njit
def pulls_of(loss, scores, clicked):
    pulls = np.full(scores.size + 2, np.float32(7))
    return loss_and_pulls(loss, scores, scores.size, clicked, pulls), pulls


@pytest.mark.parametrize("case", SCORES)
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_pulls(name, case):
    scores = np.float32(SCORES[case])
    for clicked in range(scores.size):
        h, pulls = pulls_of(LOSSES[name](), scores, clicked)
        assert h == pytest.approx(plain.h(scores.astype(np.float64), clicked, name), rel=1e-6, abs=1e-6)
        assert (pulls[scores.size :] == 7).all()  # nothing is written past the documents
        pulls = pulls[: scores.size].astype(np.float64)
        assert pulls.sum() == pytest.approx(0, abs=1e-5)  # moving all scores alike changes nothing
        slopes = plain.LOSSES[name][1](scores[clicked] - scores.astype(np.float64), clicked)
        expected = -slopes
        expected[clicked] += slopes.sum()
        np.testing.assert_allclose(pulls, expected, rtol=1e-5, atol=1e-6)
        for d in range(0 if name in RANK_WEIGHTED else scores.size):  # at a tie their ranks jump
            up, down = scores.astype(np.float64), scores.astype(np.float64)
            up[d] += 1e-4
            down[d] -= 1e-4
            slope = (plain.h(up, clicked, name) - plain.h(down, clicked, name)) / 2e-4
            assert -pulls[d] == pytest.approx(slope, abs=2e-3)


@pytest.mark.parametrize("name", LOSSES)
def test_scores_that_are_not_numbers_give_no_error(name):
    for scores in ([np.nan, 1.0], [np.inf, 0.0], [-np.inf, np.inf]):
        pulls_of(LOSSES[name](), np.float32(scores), 0)


@pytest.mark.parametrize("name", RANK_WEIGHTED)
def test_rank_weights_count_as_constants(name):
    """Where no rank changes, pulls are minus the derivatives of h."""
    scores = np.array([0.4, -0.2, 1.3, 0.9])
    for clicked in range(scores.size):
        _, pulls = pulls_of(LOSSES[name](), scores.astype(np.float32), clicked)
        for d in range(scores.size):
            up, down = scores.copy(), scores.copy()
            up[d] += 1e-4
            down[d] -= 1e-4
            slope = (plain.h(up, clicked, name) - plain.h(down, clicked, name)) / 2e-4
            assert -pulls[d] == pytest.approx(slope, abs=1e-4)


def test_lambda_pairs_weigh_by_the_change_of_dcg():
    """At equal scores each pair has the loss 1, and ranks are those of the display."""
    h, pulls = pulls_of(LOSSES["lambda-pairs"](), np.zeros(3, np.float32), 1)
    to_first, to_third = 1 - 1 / np.log2(3), 1 / np.log2(3) - 1 / np.log2(4)
    assert h == pytest.approx(to_first + to_third)
    np.testing.assert_allclose(
        pulls[:3], np.array([-to_first, to_first + to_third, -to_third]) / (2 * np.log(2)), rtol=1e-6
    )


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in RANK_WEIGHTED])
def test_a_higher_score_of_the_clicked_document_never_costs(name):
    others = np.float32([0.2, -0.7, 1.1])
    found = [pulls_of(LOSSES[name](), np.r_[np.float32(s), others], 0)[0] for s in np.linspace(-5, 5, 41)]
    assert (np.diff(found) <= 1e-9).all()
