"""EM without features: against a plain version, an optimiser, and simulated logs with known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from help.click_logs import BAD_LOGS, plain_em, random_log, simulated_log
from threadpoolctl import threadpool_limits

from fultr.clicks.examination.document_em import _log_likelihood, document_em
from fultr.clicks.examination.harvesting import all_pairs, pair_counts
from fultr.core.errors import FultrError

TRUTH = 1 / np.arange(1.0, 6)


@pytest.mark.parametrize("prior", [(0.001, 0.009), (0.5, 1.5)])
@pytest.mark.parametrize("seed", range(3))
def test_the_same_as_plain_steps(seed, prior):
    log = random_log(seed)
    found = document_em(log.cells(), prior=prior, tolerance=1e-10)
    assert found.converged
    np.testing.assert_allclose(found.examination, plain_em(log, prior, 3000), atol=2e-4)


def test_no_other_model_is_more_likely():
    """Steps of some size in any direction make the log less likely: a concave likelihood has no other maximum."""
    prior = (0.1, 0.2)
    log = simulated_log(0, examination=TRUTH, pages=2000)
    cells = log.cells()
    found = document_em(cells, prior=prior, tolerance=1e-9)
    best = _log_likelihood(cells, found.examination, found.relevance, prior)
    assert best == pytest.approx(found.log_likelihood)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(50):
            p = np.minimum(found.examination * np.exp(size * rng.standard_normal(5)), 1.0)
            p[0] = 1.0
            r = np.minimum(found.relevance * np.exp(size * rng.standard_normal(log.pairs)), 1 - 1e-9)
            assert _log_likelihood(cells, p, r, prior) < best


def test_the_machine_does_not_matter():
    """More than 10,000 cells: linear algebra would cut their sums into as many parts as there are cores."""
    cells = simulated_log(0, examination=TRUTH, queries=3000).cells()
    assert cells.rank.size > 10_000
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            found.append(document_em(cells).examination.tolist())
    assert found[0] == found[1]


def test_every_step_raises_the_likelihood():
    cells = simulated_log(1, examination=TRUTH, pages=2000).cells()
    found = [document_em(cells, most=most).log_likelihood for most in (2, 4, 8, 16, 32, 64, 1000)]
    assert np.all(np.diff(found) >= -1e-9)


def test_the_start_does_not_matter_where_documents_moved():
    cells = simulated_log(0, examination=TRUTH, pages=5000, queries=20, versions=3).cells()
    ends = [document_em(cells, start=start, tolerance=1e-9).examination for start in (np.ones(5), TRUTH**2)]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-4)


def test_only_start_and_prior_matter_where_none_did():
    """One ranking a query: very different examinations are equally likely, and the prior chooses."""
    cells = simulated_log(0, examination=TRUTH, pages=5000, queries=20, versions=1).cells()
    flat, steep = (document_em(cells, prior=(0, 0), start=start) for start in (np.ones(5), TRUTH**2))
    assert flat.log_likelihood == pytest.approx(steep.log_likelihood, abs=1e-6)
    assert np.all((flat.examination - steep.examination)[1:] > 0.4)
    high, low = (document_em(cells, prior=prior).examination for prior in ((1, 9), (1, 1)))
    assert np.all(high[1:] > 1.3 * low[1:])


def test_close_to_the_truth_with_many_clicks_per_document():
    """20 queries with 1,000 pages each: the mean over logs is within 4 standard errors and 1% of the truth."""
    found = np.array(
        [
            document_em(simulated_log(s, examination=TRUTH, queries=20, versions=3).cells()).examination
            for s in range(30)
        ]
    )
    error = found.std(axis=0, ddof=1) / 30**0.5
    assert np.all(np.abs(found.mean(axis=0) - TRUTH)[1:] < 4 * error[1:] + 0.01 * TRUTH[1:])


def test_low_ranks_are_overstated_with_few_clicks_per_document():
    """4,000 queries with 5 pages each, which harvesting does not mind: what the docs and the diagnostics warn of."""
    log = simulated_log(0, examination=TRUTH, queries=4000)
    assert np.all(document_em(log.cells()).examination[1:] > 1.2 * TRUTH[1:])
    np.testing.assert_allclose(all_pairs(pair_counts(log.cells())), TRUTH, rtol=0.2)


def test_copies_count_like_more_documents():
    log = random_log(3)
    cells = log.cells()
    np.testing.assert_allclose(
        document_em(replace(cells, copies=3 * cells.copies), tolerance=1e-9).examination,
        document_em(cells, tolerance=1e-9).examination,
        atol=1e-6,
    )
    none = cells.copies * (np.arange(log.pairs) % 2)
    kept = document_em(replace(cells, copies=none), tolerance=1e-9)
    only = document_em(replace(cells, impressions=cells.impressions * none[cells.pair],
                               clicks=cells.clicks * none[cells.pair]), tolerance=1e-9)  # fmt: skip
    np.testing.assert_allclose(kept.examination, only.examination, atol=1e-4)


@pytest.mark.parametrize("prior", [(0.001, 0.009), (0.0, 0.0), (1.0, 1.0)])
@pytest.mark.parametrize("name", BAD_LOGS)
def test_bad_logs_get_an_answer_or_an_error(name, prior):
    log = BAD_LOGS[name]
    if not log.clicks.any():
        with pytest.raises(FultrError, match="no document was clicked"):
            document_em(log.cells(), prior=prior)
        return
    found = document_em(log.cells(), prior=prior)
    assert found.examination[0] == 1
    for values in (found.examination, found.relevance):
        assert np.all((values >= 0) & (values <= 1))
    assert np.isfinite(found.log_likelihood)


def test_bad_settings_are_refused():
    cells = random_log(0).cells()
    for options, message in (
        ({"start": np.ones(3)}, "start: expected 4 numbers"),
        ({"start": np.array([0.5, 0.5, 0.5, 0.5])}, "start: expected 4 numbers from 0 to 1, the first 1"),
        ({"start": np.array([1, 0.5, np.nan, 0.5])}, "start: expected 4 numbers"),
        ({"prior": (-1.0, 1.0)}, "prior: expected a number, at least 0"),
        ({"tolerance": 0.0}, "tolerance"),
    ):
        with pytest.raises(FultrError, match=message):
            document_em(cells, **options)
