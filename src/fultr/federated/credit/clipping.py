"""The largest weight of a click, chosen from the data: less variance for some bias, and nothing to tune.

Weights of clicks are clipped at a number that is the same for all clients (Swaminathan and Joachims 2015). By the rule
"given" it is the setting `clip`. The other rules choose it on the server, from sums that clients send beside their
updates:

    "last-rank"   1 / (mean propensity of rank K): only users who look less far down than most are clipped
    "effective"   the largest at which the clicks have an effective sample size of half of their number

The sums are of all rounds, the older the less. In the first round nothing is clipped.
"""

from __future__ import annotations

import numpy as np

from fultr.clicks.log import Records
from fultr.core.arrays import Arrays, Float64s
from fultr.federated.credit.given import displayed, inverse

WEIGHED = "weighed"
"""The name of the sums that clients send."""

_MEMORY = 0.9  # share of the sums that is kept from round to round
_NO_CLIP = 1e9  # finite, as all that travels; propensities are far above its inverse
_EDGES: Float64s = 2.0 ** (np.arange(17) / 2)  # of weights, from 1 to 256; those above count as the last
_ENOUGH = 0.5  # effective sample size, as a share of the clicks


def size_of(rule: str) -> int:
    """How many numbers clients send for a rule.

    >>> [size_of(rule) for rule in ("given", "last-rank", "effective")]
    [0, 2, 17]
    """
    return {"given": 0, "last-rank": 2, "effective": _EDGES.size}[rule]


def init(rule: str) -> Arrays:
    """What the server knows before the first round."""
    return {WEIGHED: np.zeros(size_of(rule))} if size_of(rule) else {}


def nothing(rule: str, rows: int) -> Arrays:
    """The sums of no clients: all that leaves a device for the rule.

    "last-rank": impressions that display a document at rank K, and the sum of its examination in them. "effective":
    clicks by their weight 1 / p, in steps of the root of 2.
    """
    return {WEIGHED: np.zeros((rows, size_of(rule)))} if size_of(rule) else {}


def client(rule: str, records: Records, examination: Float64s, sums: Arrays) -> None:
    """Add what each client has to say to its row, or to the only one."""
    log = records.log
    if rule == "last-rank":
        last = displayed(records)[:, -1]
        each = np.stack([last, np.where(last, examination[:, -1], 0.0)], axis=1).astype(np.float64)
    else:
        weights = inverse(examination, np.inf)
        bins = np.searchsorted(_EDGES, weights * (1 + 1e-12), side="right") - 1
        each = np.zeros((len(log.queries), _EDGES.size))
        for k in range(bins.shape[1]):
            made = np.flatnonzero(log.clicks[:, k])
            each[made, np.maximum(bins[made, k], 0)] += 1
    total = sums[WEIGHED]
    for u in range(log.clients):
        total[u if len(total) > 1 else 0] += each[log.offsets[u] : log.offsets[u + 1]].sum(axis=0)


def server(rule: str, state: Arrays, sums: Arrays) -> Arrays:
    """What the server knows after a round."""
    return {WEIGHED: _MEMORY * state[WEIGHED] + np.maximum(sums[WEIGHED], 0)} if size_of(rule) else {}


def broadcast(rule: str, state: Arrays) -> Arrays:
    """The clip that clients are sent.

    >>> broadcast("last-rank", {"weighed": np.array([10.0, 2.0])})["clip"].tolist()
    [5.0]
    """
    if not size_of(rule):
        return {}
    return {"clip": np.array([_last_rank(state[WEIGHED]) if rule == "last-rank" else _effective(state[WEIGHED])])}


def _last_rank(sums: Float64s) -> float:
    impressions, examined = sums
    return float(impressions / examined) if examined > impressions / _NO_CLIP else _NO_CLIP


def _effective(clicks: Float64s) -> float:
    """The largest clip, of the edges, with which (sum of weights)^2 / (sum of their squares) is half of the clicks."""
    if not clicks.sum():
        return _NO_CLIP
    weights = np.minimum(_EDGES[:, np.newaxis] * 2**0.25, _EDGES)  # of a bin's clicks, by the clip
    effective = (clicks @ weights) ** 2 / (clicks @ weights**2)
    enough = np.flatnonzero(effective >= _ENOUGH * clicks.sum())
    return float(_EDGES[enough[-1]]) if enough[-1] < _EDGES.size - 1 else _NO_CLIP
