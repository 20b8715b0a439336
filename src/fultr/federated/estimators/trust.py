"""How likely clicks on relevant and on other documents are at each rank, by EM over clients' sums: for affine credit.

A click at rank k has probability b_k + (a_k - b_k) r: a_k on relevant documents, b_k on others, and r = sigmoid(F . x)
is the probability that a document is relevant (Vardasbi et al. 2020). Both are products of examination and of what
users do with what they examine, which clicks do not tell apart; nor does affine credit, (c - b) / (a - b), need to.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.clicks.log import Records
from fultr.core.arrays import Arrays, Float32s, Float64s, Int32s, Int64s, UInt8s
from fultr.federated.estimators.pooled import further
from fultr.federated.estimators.relevance import initial_relevance, next_relevance, padded
from fultr.federated.settings import Estimator
from fultr.rankers.linear_kernels import add_scaled, dot

_FIRST = 0.9  # of relevant documents at rank 1, to begin with
_NOISE = 0.2  # on others, as a share of that on relevant ones, to begin with
_LEAST = 1e-6  # relevance stays so far from 0 and 1


@njit(nogil=True, cache=True, error_model="numpy")
def _expect(
    features: Float32s,
    shown: Int64s,
    queries: Int32s,
    clicks: UInt8s,
    offsets: Int64s,
    slope: Float32s,
    intercept: np.float32,
    chances: Float64s,
    gradient: Float64s,
    affine: Float64s,
) -> None:
    """E-step: how likely each displayed document is relevant, given whether it was clicked; adds up what clients send.

    A client's own sums first, as if it had sent them. What a query displays is scored once for each client.
    """
    ranks = shown.shape[1]
    local, own = np.empty(slope.size, np.float32), np.empty((4, ranks))
    scored = np.empty(queries.size, np.int32)  # queries, client by client
    places = np.empty(shown.shape[0], np.int32)  # of queries in `scored`; right if this client's query is there
    relevance = np.empty((queries.size, ranks))
    end = 0
    for u in range(offsets.size - 1):
        for f in range(local.size):
            local[f] = 0
        for k in range(ranks):
            own[0, k] = own[1, k] = own[2, k] = own[3, k] = 0
        level, begin = 0.0, end
        for i in range(offsets[u], offsets[u + 1]):
            q = queries[i]
            j = places[q]
            if j < begin or j >= end or scored[j] != q:
                j = places[q] = end
                scored[j] = q
                end += 1
                for k in range(ranks):
                    if shown[q, k] >= 0:
                        score = np.float64(dot(features[shown[q, k]], slope)) + intercept
                        relevance[j, k] = min(max(1 / (1 + np.exp(-score)), _LEAST), 1 - _LEAST)
            for k in range(ranks):
                row = shown[q, k]
                if row < 0:
                    continue
                r = relevance[j, k]
                b, a = chances[0, k], chances[1, k]
                clicked = clicks[i, k] > 0
                click = b + (a - b) * r
                likely = a * r / click if clicked else (1 - a) * r / (1 - click)
                own[0, k] += 1
                own[1, k] += clicked
                own[2, k] += likely
                own[3, k] += likely * clicked
                level += likely - r
                add_scaled(local, np.float32(likely - r), features[row])
        row = u if gradient.shape[0] > 1 else 0
        for f in range(gradient.shape[1] - 1):
            gradient[row, f] += local[f]
        gradient[row, -1] += level
        for counted in range(4):
            for k in range(ranks):
                affine[row, counted, k] += own[counted, k]


def init(settings: Estimator, features: int, ranks: int) -> Arrays:
    """F, the two chances of a click at each rank, and how much further than EM the server goes."""
    relevant = np.r_[_FIRST, np.full(ranks - 1, settings.estimate_start)]
    chances = np.stack([_NOISE * relevant, relevant])
    return {**initial_relevance(settings, features), "chances": chances, "stride": np.zeros((2, ranks))}


def broadcast(settings: Estimator, state: Arrays) -> Arrays:
    """F; examination, as far as rank 1 tells it: a_k / a_1; and both chances over that, the constants of affine credit.

    What affine credit divides by is at least the floor.
    """
    other, relevant = state["chances"]
    relevant = np.maximum(relevant, settings.estimate_floor)
    other = np.minimum(other, relevant - settings.estimate_floor)
    pooled = np.minimum(relevant / relevant[0], 1.0)
    constants = np.minimum(np.stack([other, relevant]) / pooled, 1.0)
    return {"relevance": state["relevance"], "pooled": pooled, "constants": constants}


def nothing(settings: Estimator, features: int, ranks: int, rows: int) -> Arrays:
    """The gradient of F; and for each rank impressions, clicks, and how many of both are expected to be of relevant."""
    return {"gradient": np.zeros((rows, features + 1)), "affine": np.zeros((rows, 4, ranks))}


def no_evidence(settings: Estimator, clients: int, ranks: int) -> Float32s:
    """Clients have nothing to remember."""
    return np.zeros((clients, 0), np.float32)


def client(
    settings: Estimator, sent: Arrays, records: Records, sums: Arrays, evidence: Float32s | None = None
) -> Float64s:
    """All clients divide by the server's estimate."""
    log, display = records.log, records.display
    relevance = padded(sent["relevance"], display.features.shape[1])
    chances = np.clip(sent["constants"] * sent["pooled"], _LEAST, 1 - _LEAST)
    _expect(
        display.features,
        display.shown,
        log.queries,
        log.clicks,
        log.offsets,
        relevance[:-1],
        relevance[-1],
        chances,
        sums["gradient"],
        sums["affine"],
    )
    return np.tile(np.maximum(sent["pooled"], settings.estimate_floor), (records.clients, 1, 1))


def server(settings: Estimator, state: Arrays, sums: Arrays, clients: float) -> Arrays:
    """The next F, and the M-step of both chances, accelerated."""
    shown, clicked, relevant, relevant_clicked = np.maximum(sums["affine"], 0)
    of = np.stack([np.maximum(shown - relevant, 0), relevant])
    made = np.stack([np.maximum(clicked - relevant_clicked, 0), relevant_clicked])
    target = np.divide(made, of, out=state["chances"].copy(), where=of > 0)
    chances, stride = further(state["chances"], state["stride"], target)
    relevance = next_relevance(settings, state, sums["gradient"], clients)
    return {**state, **relevance, "chances": chances, "stride": stride}
