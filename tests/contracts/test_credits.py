"""Every kind of credit through the same cases: against a plain version, and its mean by standard errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fultr
from fultr.clicks.log import ClickLog, Display, Records
from fultr.clicks.models.trust import Trust
from fultr.core.checks import SettingError
from fultr.federated.budget import model_of
from fultr.federated.combining import StageSettings
from fultr.federated.credit import CLIP_RULES, CREDITS, clipping
from fultr.federated.credit.given import Given
from fultr.federated.federate import task_of
from fultr.federated.federation import FederationSettings
from fultr.federated.fedips import Server
from fultr.federated.messages import least_divisor, objection, reply_to
from fultr.federated.privacy.settings import Privacy
from fultr.federated.settings import Estimator, FedIPS, LocalTraining

SHOWN = np.array([[0, 1, 2], [3, 4, -1]])
FEATURES = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
DISPLAY = Display(FEATURES, np.array([0, 3, 5]), SHOWN, SHOWN)
RELEVANCE = np.float32([0.5, -1, 2, 0, 0.3])  # the intercept last
OTHER, RELEVANT = np.array([0.4, 0.2, 0.1]), np.array([0.9, 0.9, 0.8])
GIVEN = Given(relevance=RELEVANCE, other=OTHER, relevant=RELEVANT)
LOGS = {
    "no impressions": ([], np.zeros((0, 3))),
    "no clicks": ([0, 1], np.zeros((2, 3))),
    "all clicked": ([0, 0], np.ones((2, 3))),
    "short list": ([1, 1], np.array([[1, 1, 0], [0, 1, 0]])),
}


def records_of(case: str) -> Records:
    queries, clicks = LOGS[case]
    log = ClickLog(np.array(queries, np.int32), clicks.astype(np.uint8), np.array([0, len(queries)]))
    return Records(log, DISPLAY)


def likely(row: int) -> float:
    """F of a document."""
    score = sum(float(x) * float(w) for x, w in zip(FEATURES[row], RELEVANCE[:-1], strict=True)) + float(RELEVANCE[-1])
    return 1 / (1 + exp(-score))


# By the package's own names: the credit of one document, from its click c, examination p, rank k from 0, row and clip.
PLAIN: dict[str, Callable[..., float]] = {
    "ips": lambda c, p, k, row, clip: c * min(1 / p, clip),
    "none": lambda c, p, k, row, clip: min(c, clip),
    "affine": lambda c, p, k, row, clip: min(1 / (p * (RELEVANT[k] - OTHER[k])), clip) * (c - p * OTHER[k]),
    "policy-aware": lambda c, p, k, row, clip: c * min(1 / p, clip),  # of a single version
    "doubly-robust": lambda c, p, k, row, clip: likely(row) + min(1 / p, clip) * (c - p * likely(row)),
    "self-normalised": lambda c, p, k, row, clip: c * min(1 / p, clip),  # before it is divided by their mean
}


def test_every_credit_is_in_the_table():
    assert list(PLAIN) == list(CREDITS)


@pytest.mark.parametrize("clip", [inf, 3.0])
@pytest.mark.parametrize("case", LOGS)
@pytest.mark.parametrize("name", CREDITS)
def test_credit_equals_the_plain_version(name, case, clip):
    records = records_of(case)
    log = records.log
    examination = np.tile([1.0, 0.5, 1e-3], (log.queries.size, 1))
    found = CREDITS[name].credit(records, examination, replace(GIVEN, clip=clip))
    assert found.dtype == np.float64
    assert found.shape == log.clicks.shape
    wanted = np.zeros(found.shape)
    for i, k in np.ndindex(found.shape):
        row = SHOWN[log.queries[i], k]
        if row >= 0:  # nothing displayed, nothing earned
            wanted[i, k] = PLAIN[name](float(log.clicks[i, k]), examination[i, k], k, row, clip)
    if name == "self-normalised" and wanted.any():
        wanted *= log.clicks.sum() / wanted.sum()
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["affine", "doubly-robust"])
def test_what_cannot_have_been_examined_tells_nothing(name):
    records = records_of("no clicks")
    found = CREDITS[name].credit(records, np.tile([1.0, 0.0, 0.0], (2, 1)), GIVEN)
    wanted = [0.0, 0.0] if name == "affine" else [likely(1), likely(2)]
    np.testing.assert_allclose(found[0, 1:], wanted, rtol=1e-6)


def clicked(rng: np.random.Generator, chances: Any, n: int) -> Records:
    """Impressions of the first query, whose documents are clicked with some probabilities."""
    clicks = (rng.random((n, 3)) < chances).astype(np.uint8)
    return Records(ClickLog(np.zeros(n, np.int32), clicks, np.arange(0, n + 1, 10)), DISPLAY)


def check_mean(found: Any, wanted: Any) -> None:
    """Within 4 standard errors, over clients of ten impressions each."""
    means = found.reshape(-1, 10, 3).mean(axis=1)
    error = means.std(axis=0, ddof=1) / len(means) ** 0.5
    assert (np.abs(means.mean(axis=0) - wanted) < 4 * error + 1e-12).all()


EXAMINATION, ATTRACTION, N = np.array([1.0, 0.5, 0.2]), np.array([0.7, 0.2, 0.4]), 200_000
F = np.array([likely(row) for row in range(3)])


@pytest.mark.parametrize(
    ("name", "clip", "wanted"),
    [
        ("ips", inf, ATTRACTION),
        ("ips", 2.0, ATTRACTION * EXAMINATION * [1, 2, 2]),  # low by what the clip takes away
        ("none", inf, ATTRACTION * EXAMINATION),
        ("policy-aware", inf, ATTRACTION),
        ("affine", inf, (ATTRACTION - OTHER) / (RELEVANT - OTHER)),
        ("doubly-robust", inf, ATTRACTION),  # whatever F is
        ("doubly-robust", 2.0, ATTRACTION * EXAMINATION * [1, 2, 2] + F * (1 - EXAMINATION * [1, 2, 2])),
    ],
)
def test_the_mean_of_credit(name, clip, wanted):
    """The attraction, whatever the rank, or its affine image; what a clip takes away, F puts back."""
    records = clicked(np.random.default_rng(0), EXAMINATION * ATTRACTION, N)
    found = CREDITS[name].credit(records, np.tile(EXAMINATION, (N, 1)), replace(GIVEN, clip=clip))
    check_mean(found, wanted)


def test_doubly_robust_credit_is_unbiased_where_the_relevance_function_is_right():
    records = clicked(np.random.default_rng(1), EXAMINATION * F, N)
    for clip in (inf, 2.0):
        found = CREDITS["doubly-robust"].credit(records, np.tile(EXAMINATION, (N, 1)), replace(GIVEN, clip=clip))
        check_mean(found, F)


@pytest.mark.parametrize("relevant", [[1, 0, 1], [0, 1, 0]])
def test_affine_credit_has_relevance_as_its_mean_where_users_trust(relevant):
    """And IPS has not: high ranks seem relevant to it."""
    model, attraction = Trust(0.5), np.where(relevant, 0.9, 0.2)
    other, certain = (model.click_if_examined(np.full(3, chance)) for chance in (0.2, 0.9))
    records = clicked(np.random.default_rng(2), EXAMINATION * model.click_if_examined(attraction), N)
    examination = np.tile(EXAMINATION, (N, 1))
    check_mean(CREDITS["affine"].credit(records, examination, Given(other=other, relevant=certain)), relevant)
    with pytest.raises(AssertionError):
        check_mean(CREDITS["ips"].credit(records, examination, Given()), attraction)


def test_policy_aware_credit_makes_up_for_versions_that_do_not_show_a_document():
    """Two versions, K = 2: one shows documents 0 and 1, the other 1 and 2; per impression, whichever shows it."""
    rng, n = np.random.default_rng(4), 200_000
    documents = np.array([[0, 1], [1, 2]])
    display = Display.of_rows(np.zeros((3, 1), np.float32), documents, versions=2)
    queries = rng.integers(0, 2, n).astype(np.int32)
    attraction, examination = np.array([0.3, 0.8, 0.5]), np.array([1.0, 0.4])
    clicks = (rng.random((n, 2)) < examination * attraction[documents[queries]]).astype(np.uint8)
    records = Records(ClickLog(queries, clicks, np.array([0, n])), display)
    for name, shares in (("policy-aware", [1, 1, 1]), ("ips", [0.5, 1, 0.5])):
        worth = CREDITS[name].credit(records, np.tile(examination, (n, 1)), Given())
        for document in range(3):
            each = np.where(documents[queries] == document, worth, 0.0).sum(axis=1)
            error = each.std(ddof=1) / n**0.5
            assert abs(each.mean() - attraction[document] * shares[document]) < 4 * error, (name, document)


def test_self_normalised_credit_is_one_on_average_and_in_proportion():
    """Users who differ: ratios of means are those of attraction, the better the more clicks; here 2,000 impressions."""
    rng, clients, each = np.random.default_rng(5), 200, 2000
    severity = rng.uniform(0.2, 2.0, clients).repeat(each)[:, np.newaxis]
    examination = np.arange(1.0, 4.0) ** -severity
    clicks = (rng.random(examination.shape) < examination * ATTRACTION).astype(np.uint8)
    log = ClickLog(np.zeros(clients * each, np.int32), clicks, np.arange(clients + 1) * each)
    found = CREDITS["self-normalised"].credit(Records(log, DISPLAY), examination, Given())
    totals = np.array([part.sum() for part in np.split(found, clients)])
    np.testing.assert_allclose(totals, log.clicks_by_client())
    means = np.array([part.mean(axis=0) for part in np.split(found, clients)])
    left = means[:, 1:] - means[:, :1] * ATTRACTION[1:] / ATTRACTION[0]
    assert (np.abs(left.mean(axis=0)) < 4 * left.std(axis=0, ddof=1) / clients**0.5 + 1e-3).all()


@pytest.mark.parametrize("rule", CLIP_RULES[1:])
def test_sums_that_a_clip_is_chosen_by_add_up(rule):
    """A row per client, or one for all: the same to the last bit; no clip before anything is known."""
    rng = np.random.default_rng(6)
    records = clicked(rng, ATTRACTION, 60)
    examination = np.arange(1.0, 4.0) ** -rng.uniform(0, 3, (60, 1))
    single, total = clipping.nothing(rule, 6), clipping.nothing(rule, 1)
    for sums in (single, total):
        clipping.client(rule, records, examination, sums)
    added = np.zeros(clipping.size_of(rule))
    for row in single["weighed"]:
        added += row
    np.testing.assert_array_equal(added, total["weighed"][0])
    state = clipping.init(rule)
    assert clipping.broadcast(rule, state)["clip"][0] > 1e6
    state = clipping.server(rule, state, {"weighed": added})
    assert 1 <= clipping.broadcast(rule, state)["clip"][0] < 100


def test_the_clip_of_the_last_rank_is_the_inverse_of_its_mean_propensity():
    records, state = clicked(np.random.default_rng(7), ATTRACTION, 20), clipping.init("last-rank")
    sums = clipping.nothing("last-rank", 1)
    clipping.client("last-rank", records, np.tile([1.0, 0.5, 0.1], (20, 1)), sums)
    clipping.client("last-rank", records, np.tile([1.0, 0.5, 0.3], (20, 1)), sums)
    state = clipping.server("last-rank", state, {"weighed": sums["weighed"][0]})
    np.testing.assert_allclose(clipping.broadcast("last-rank", state)["clip"], 1 / 0.2)


def test_the_effective_clip_keeps_half_of_the_clicks():
    """Ninety clicks of weight 1 and ten of weight w: 100 / 2 = (90 + 10 w)^2 / (90 + 10 w^2) at w = 1.8 + root 7.74."""
    found = clipping.nothing("effective", 1)
    log = ClickLog(np.zeros(100, np.int32), np.tile(np.uint8([1, 0, 0]), (100, 1)), np.array([0, 100]))
    propensity = np.where(np.arange(100) < 10, 1 / 200, 1.0)
    clipping.client("effective", Records(log, DISPLAY), np.tile(propensity[:, np.newaxis], (1, 3)), found)
    state = clipping.server("effective", clipping.init("effective"), {"weighed": found["weighed"][0]})
    clip = clipping.broadcast("effective", state)["clip"][0]
    edge = (
        1.8 + 7.74**0.5
    )  # in steps of the root of 2, weights being taken as up to a quarter step above their bin's edge
    assert edge / 2**0.5 < clip < edge * 2**0.5


@pytest.mark.parametrize(
    ("training", "source", "wrong"),
    [
        (dict(credit="affine", credit_other=1.0), "known", "credit_other: expected to be below credit_relevant"),
        (dict(credit_other=(0.1, 0.2), credit_relevant=(1, 1, 1)), "known", "credit_other: expected 1 or 3 numbers"),
        (dict(credit_other="a"), "known", "credit_other: expected a number, at least 0, at most 1, or several"),
        (dict(credit="doubly-robust", clip=3), "known", "credit: doubly-robust needs an estimator"),
        (dict(credit="doubly-robust"), "shrunk", "credit: doubly-robust needs a clip"),
    ],
)
def test_settings_that_cannot_be(training, source, wrong):
    with pytest.raises(SettingError, match=f"^{wrong}"):
        FedIPS(LocalTraining(**training), propensity=source)


def test_a_server_cannot_make_a_device_divide_by_less_than_the_floor():
    """Whatever constants it sends; here those of relevant and other documents are the same, or the wrong way round."""
    algorithm = FedIPS(LocalTraining(credit="affine"), propensity=Estimator("trust", estimate_floor=0.05))
    for constants in (np.full((2, 3), 0.1), np.array([[0.3] * 3, [0.1] * 3])):
        given = Given.of(algorithm, {"constants": constants}, {})
        found = CREDITS["affine"].credit(records_of("all clicked"), np.ones((2, 3)), given)
        np.testing.assert_allclose(found, (1 - constants[0, 0]) / 0.05)


def test_constants_must_be_one_per_rank():
    with pytest.raises(SettingError, match=r"^credit_other: expected 1 or 3 numbers, one per displayed rank; found 2"):
        FederationSettings.of({"features": 4, "displayed": 3, "credit_other": [0.2, 0.1]})


def test_the_least_that_a_click_is_divided_by():
    affine = LocalTraining(credit="affine", credit_other=(0.5, 0.1), credit_relevant=1.0)
    assert least_divisor(FedIPS(affine, propensity=(1.0, 0.5))) == 0.25
    assert least_divisor(FedIPS(propensity=(1.0, 0.5))) == 0.5
    assert least_divisor(FedIPS(affine, propensity=Estimator("trust", estimate_floor=0.02))) == 0.02


@pytest.fixture(scope="module")
def trained():
    """Weights of a short run with a credit and a source of propensities."""
    data = fultr.load("synthetic")

    def run(credit: str, propensity: str, stage: StageSettings = StageSettings(), **training: Any) -> bytes:
        algorithm = fultr.FedIPS(fultr.LocalTraining(credit=credit, **training), propensity=propensity, stage=stage)
        weights = fultr.simulate(data, algorithm, clients=100, rounds=3, splits=()).ranker.weights
        assert np.isfinite(weights).all()
        assert weights.any()
        return weights.tobytes()

    return run


@pytest.mark.parametrize("propensity", ["known", "shrunk"])
def test_settings_choose_the_credit(trained, propensity):
    """Each gives weights of its own; with a single version policy-aware credit is that of IPS."""
    chosen = [name for name in CREDITS if propensity == "shrunk" or name != "doubly-robust"]
    found = {name: trained(name, propensity, clip=4) for name in chosen}
    assert found["policy-aware"] == found["ips"]
    assert len(set(found.values())) == len(found) - 1


def test_a_rule_chooses_the_clip(trained):
    assert len({trained("ips", "known", clip_rule=rule) for rule in ("given", "last-rank")}) == 2


def test_clicks_that_are_worth_one_make_fedips_fedavg(trained):
    assert trained("none", "known") == trained("none", "shrunk") == trained("ips", "none")


@pytest.mark.parametrize("worth", [0.0, 1.0, -1.0])
def test_a_device_trains_if_anything_has_credit(monkeypatch, worth):
    """Also without a click: a kind of credit may give some to what was not clicked."""
    kind = SimpleNamespace(credit=lambda records, examination, given: np.full(examination.shape, worth))
    monkeypatch.setitem(CREDITS._loaded, "ips", kind)
    settings = FederationSettings.of({"features": 4, "displayed": 3, "propensity": "none"})
    first = Server.initial(settings.algorithm(), model_of(settings), model_of(settings).initial(), 3)
    records = records_of("no clicks")
    records = Records(ClickLog(records.log.queries[:1], records.log.clicks[:1], np.array([0, 1])), DISPLAY)
    reply = reply_to(task_of(settings, 0, first), records, None)
    assert reply.sums["trained"].tolist() == [abs(worth)]


@pytest.mark.parametrize("rule", CLIP_RULES)
@pytest.mark.parametrize("name", CREDITS)
def test_a_device_sends_the_sums_of_the_rule_and_no_other(name, rule):
    """And the server accepts them, but nothing that cannot be one's."""
    more = {"clip": 5.0} if name == "doubly-robust" else {}
    given = {"features": 4, "displayed": 3, "propensity": "pooled", "credit": name, "clip_rule": rule, **more}
    settings = FederationSettings.of({**given, "judge": False})
    first = Server.initial(settings.algorithm(), model_of(settings), model_of(settings).initial(), 3)
    task = task_of(settings, 0, first)
    reply = reply_to(task, records_of("short list"), None)
    assert ("weighed" in reply.sums) == (rule != "given")
    assert objection(task, reply) is None
    if rule != "given":
        assert reply.sums["weighed"].any() == (rule == "effective")  # rank K displays nothing here
        false = replace(reply, sums={**reply.sums, "weighed": -1 - reply.sums["weighed"]})
        assert str(objection(task, false)).startswith("weighed: ")


def test_sums_for_credit_pass_through_privacy(trained):
    """Noise on all that leaves, constants and clip included; other noise, other weights."""
    noise = [Privacy("gaussian", noise_multiplier=z, population=10**6) for z in (0.1, 0.2)]
    found = [trained("affine", "trust", clip_rule="last-rank", stage=StageSettings(privacy=each)) for each in noise]
    assert found[0] != found[1]
