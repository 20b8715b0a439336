"""Checks of differential privacy that must fail when the code is wrong: each raises AssertionError."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import chi2

from fultr.federated.privacy import PRIVACY
from fultr.federated.privacy.private import PrivateSum
from fultr.federated.privacy.settings import Privacy
from fultr.federated.privacy.vector import squared_norms
from fultr.study.seeded import SeededRandomness

SHAPES = {
    "update": (40,),
    "trained": (1,),
    "gradient": (41,),
    "examined": (5,),
    "impressions": (5,),
    "marginals": (8,),
    "judged": (3,),
}
CLIENTS = 200


def stage_of_mode(mode: str, noise: float = 2.0, **others) -> PrivateSum:
    return PrivateSum(Privacy(mode, noise_multiplier=noise, population=10**6, honest=CLIENTS, **others))


def replies_of(clients: int, seed: int = 0, spread: float = 1.0) -> dict:
    random = np.random.default_rng(seed)
    found = {
        name: random.standard_normal((clients, *shape)) * random.lognormal(0, 2, (clients, *[1] * len(shape))) * spread
        for name, shape in SHAPES.items()
    }
    found["judged"] = np.abs(found["judged"])
    return found


def sent_by(stage: PrivateSum, replies: dict, seed: int = 0) -> dict:
    random, state = SeededRandomness(seed), stage.init(SHAPES)
    rows = len(replies["update"])
    return stage.client(stage.broadcast(state), replies, [random.client(0, u) for u in range(rows)])


def check_norm_is_bounded() -> None:
    """What a device sends has at most the bound's norm, in exact integers, whatever is in it."""
    stage = stage_of_mode("gaussian", clip_quantile=0.5)
    scale = PRIVACY["gaussian"].scale(stage.privacy)
    for spread in (1e-9, 1.0, 1e6, 1e150):
        vector = sent_by(stage, replies_of(50, spread=spread))["vector"]
        assert (squared_norms(vector) <= scale**2).all(), f"longer than the bound at {spread:g}"
    odd = replies_of(6)
    odd["update"][0, 0], odd["gradient"][1, 3], odd["judged"][2, 0] = np.nan, np.inf, -np.inf
    odd["update"][3] = 1e308
    vector = sent_by(stage, odd)["vector"]
    assert not vector[:3].any(), "what is not finite is not sent as zeros"
    assert (squared_norms(vector) <= scale**2).all(), "longer than the bound"


def check_noise_has_its_size(mode: str) -> None:
    """Chi-square of the noise in sums of nothing, whose deviation is that of the accountant's claim."""
    noise, rounds = 2.0, 400
    stage = stage_of_mode(mode, noise)
    scale = PRIVACY[mode].scale(stage.privacy)
    size = stage.travels(SHAPES)["vector"][0]
    random, values = SeededRandomness(7), []
    nothing = {name: np.zeros((CLIENTS, *shape)) for name, shape in SHAPES.items()}
    for t in range(rounds if mode != "distributed" else 60):
        state = stage.init(SHAPES)
        if mode == "distributed":
            sent = stage.client(stage.broadcast(state), nothing, [random.client(t, u) for u in range(CLIENTS)])
            values.append(sent["vector"].sum(axis=0) / scale)
            continue
        state["rounds"][:] = t
        own = {name.removeprefix("noise "): array for name, array in state.items() if name.startswith("noise ")}
        _, total = PRIVACY[mode].server(stage.privacy, own, np.zeros(size), random.server(t))
        values.append(total / scale)
    drawn = np.concatenate(values)
    statistic = float((drawn**2).sum() / noise**2)
    low = chi2.ppf(1e-4, drawn.size)
    assert statistic > low, f"noise of {math.sqrt(statistic / drawn.size):.3f} of its claim"


def check_only_the_noised_sum_counts(server_half) -> None:
    """Change everything but the sum, and the server must come to the same."""
    stage = stage_of_mode("gaussian", clip_quantile=0.5)
    vector = sent_by(stage, replies_of(CLIENTS))["vector"].sum(axis=0)
    found = []
    for trained in (CLIENTS, CLIENTS - 50):
        total = {"vector": vector, "trained": np.array([float(trained)])}
        found.append(server_half(stage, stage.init(SHAPES), total, CLIENTS, SeededRandomness(1)))
    (state, sums), (other_state, other_sums) = found
    for one, other in ((state, other_state), (sums, other_sums)):
        assert one.keys() == other.keys()
        for name in one:
            assert np.array_equal(one[name], other[name]), f"{name} depends on more than the noised sum"


def check_adjacency() -> None:
    """Taking one device away changes the sum by that device's vector, exactly."""
    stage, replies = stage_of_mode("gaussian"), replies_of(CLIENTS)
    vectors = sent_by(stage, replies)["vector"]
    without = sent_by(stage, {name: rows[1:] for name, rows in replies.items()})["vector"]
    difference = vectors.sum(axis=0) - without.sum(axis=0)
    assert np.array_equal(difference, vectors[0])
    assert (squared_norms(difference[np.newaxis]) <= PRIVACY["gaussian"].scale(stage.privacy) ** 2).all()


def check_everything_is_in_the_vector() -> None:
    """Only the vector and a number that says nothing leave a device."""
    stage, replies = stage_of_mode("gaussian"), replies_of(5)
    sent = sent_by(stage, replies)
    assert sent.keys() == {"vector", "trained"}, "something travels beside the vector"
    assert (sent["trained"] == 1).all(), "whether a device has clicks shows"
