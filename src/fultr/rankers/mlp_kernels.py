"""Compiled code of neural rankers: scores, and local training by backpropagation.

A step for a clicked document changes all weights (Algorithm 1, lines 5 to 9, with the gradient of the network). As for
linear rankers, the change that a step makes to a unit's weights is applied in the pass over them in which the next step
scores its documents: `change_and_score` does that for one row of weights, those of the linear part or of a unit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s
from fultr.rankers.linear_kernels import Displayed, add_scaled, change_and_score, dot, metric_slope, score_rows
from fultr.rankers.losses.loss import loss_and_pulls
from fultr.rankers.training import Training

_BLOCK = 64  # documents whose units are held at a time


class Network(NamedTuple):
    """The arrays of a neural ranker; those of the second layer are empty if there is none."""

    weights: Float32s
    hidden: Float32s
    hidden_bias: Float32s
    second: Float32s
    second_bias: Float32s
    output: Float32s


class _Room(NamedTuple):
    """Where a step is worked out: [units, documents] each, but for scores and pulls."""

    sums: Float32s
    units: Float32s
    second: Float32s
    changes: Float32s
    second_changes: Float32s
    scores: Float32s
    pulls: Float32s


@njit(nogil=True, cache=True)
def score_documents(features: Float32s, network: Network, begin: int, end: int, scores: Float32s) -> None:
    """Write the scores of rows `begin` to `end` to `scores[0 : end - begin]`.

    Args:
        features: [documents, features].
        network: the ranker.
        begin: first row.
        end: one past the last row.
        scores: [at least end - begin], written.
    """
    count = network.hidden.shape[0]
    sums = np.empty((_BLOCK, count), np.float32)
    linear = np.empty((_BLOCK, 1), np.float32)
    second = np.empty(network.second.shape[0], np.float32)
    alone = network.weights.reshape((1, network.weights.size))
    for first in range(begin, end, _BLOCK):
        last = min(first + _BLOCK, end)
        score_rows(features, alone, first, last, linear)
        score_rows(features, network.hidden, first, last, sums)
        for d in range(last - first):
            units = sums[d]
            for h in range(count):
                units[h] = max(np.float32(0), units[h] + network.hidden_bias[h])
            if second.size > 0:
                for h in range(count):
                    second[h] = max(np.float32(0), dot(network.second[h], units) + network.second_bias[h])
                units = second
            scores[first - begin + d] = linear[d, 0] + dot(network.output, units)


@njit(nogil=True, cache=True)
def _forward(network: Network, documents: int, room: _Room) -> None:
    """From the sums of hidden units, and the linear ranker's scores, to units and scores."""
    count = network.hidden.shape[0]
    for h in range(count):
        for d in range(documents):
            room.units[h, d] = max(np.float32(0), room.sums[h, d] + network.hidden_bias[h])
    last = room.units
    if network.second.shape[0] > 0:
        last = room.second
        for h in range(count):
            room.second[h, :documents] = network.second_bias[h]
            for g in range(count):
                add_scaled(room.second[h, :documents], network.second[h, g], room.units[g, :documents])
            for d in range(documents):
                room.second[h, d] = max(np.float32(0), room.second[h, d])
    for h in range(count):
        add_scaled(room.scores[:documents], network.output[h], last[h, :documents])


@njit(nogil=True, cache=True)
def _backward(network: Network, documents: int, room: _Room) -> None:
    """From the pulls on the scores to those on hidden sums, `room.changes`; changes all but what the features meet."""
    count = network.hidden.shape[0]
    pulls = room.pulls[:documents]
    if network.second.shape[0] > 0:
        room.changes[:, :documents] = 0
        for h in range(count):
            for d in range(documents):
                there = room.second[h, d] > 0
                room.second_changes[h, d] = pulls[d] * network.output[h] if there else np.float32(0)
            network.output[h] += dot(pulls, room.second[h, :documents])
        for h in range(count):
            change = room.second_changes[h, :documents]
            for g in range(count):
                add_scaled(room.changes[g, :documents], network.second[h, g], change)
                network.second[h, g] += dot(change, room.units[g, :documents])
            for d in range(documents):
                network.second_bias[h] += change[d]
        for h in range(count):
            for d in range(documents):
                if not room.units[h, d] > 0:
                    room.changes[h, d] = 0
    else:
        for h in range(count):
            for d in range(documents):
                there = room.units[h, d] > 0
                room.changes[h, d] = pulls[d] * network.output[h] if there else np.float32(0)
            network.output[h] += dot(pulls, room.units[h, :documents])
    for h in range(count):
        for d in range(documents):
            network.hidden_bias[h] += room.changes[h, d]


@njit(nogil=True)  # compiled and cached as part of its caller, see `compiled_for`
def _train_client(
    displayed: Displayed,
    queries: Int32s,
    credit: Float64s,
    begin: int,
    finish: int,
    training: Training,
    network: Network,
    room: _Room,
) -> bool:
    """Algorithm 1, lines 5 to 8, for one client's impressions, `begin` to `finish` of the log; changes `network`.

    Returns whether there was any credit.
    """
    features, row_offsets, shown, _ = displayed
    trained = False
    changed, changed_end = 0, 1
    room.pulls[0] = 0
    room.changes[:, 0] = 0
    for _ in range(training.epochs):
        for i in range(begin, finish):
            q = queries[i]
            first, end = row_offsets[q], row_offsets[q + 1]
            for rank in range(credit.shape[1]):
                if credit[i, rank] != 0:
                    trained = True
                    change_and_score(
                        features, network.weights, changed, changed_end, room.pulls, first, end, room.scores
                    )
                    for unit in range(network.hidden.shape[0]):
                        weights, changes, sums = network.hidden[unit], room.changes[unit], room.sums[unit]
                        change_and_score(features, weights, changed, changed_end, changes, first, end, sums)
                    documents = end - first
                    _forward(network, documents, room)
                    h = loss_and_pulls(training.loss, room.scores, documents, shown[q, rank] - first, room.pulls)
                    step = training.learning_rate * credit[i, rank] * metric_slope(training.discounted, h)
                    for d in range(documents):
                        room.pulls[d] *= np.float32(step)
                    _backward(network, documents, room)
                    changed, changed_end = first, end
    for row in range(changed, changed_end):
        add_scaled(network.weights, room.pulls[row - changed], features[row])
        for h in range(network.hidden.shape[0]):
            add_scaled(network.hidden[h], room.changes[h, row - changed], features[row])
    return trained


@njit(nogil=True, cache=True)
def _add_difference(totals: Float64s, place: int, after: Float32s, before: Float32s) -> int:
    """Add `after` minus `before` to the totals from a place on; return the next place."""
    for i in range(before.size):
        totals[place + i] += after[i] - before[i]
    return place + before.size


@njit(nogil=True, cache=True)
def train_clients(
    displayed: Displayed,
    queries: Int32s,
    offsets: Int64s,
    credit: Float64s,
    network: Network,
    training: Training,
    totals: Float64s,
    trained: Float64s,
) -> None:
    """Train each client from the same weights, and add its update to its row of `totals`, or to the only one.

    Args:
        displayed: what the queries displayed.
        queries: of each impression.
        offsets: [clients + 1] where each client's impressions begin.
        credit: [impressions, K].
        network: w_t.
        training: how a client trains.
        totals: float64 [clients or 1, size], added to.
        trained: float64 [clients or 1, 1], likewise: 1 for each client that had any credit.
    """
    count, width, padded = network.hidden.shape[0], network.weights.size, displayed.features.shape[1]
    local = Network(
        np.zeros(padded, np.float32),  # rows of features may be padded with zeros
        np.zeros((count, padded), np.float32),
        np.empty(count, np.float32),
        np.empty(network.second.shape, np.float32),
        np.empty(network.second_bias.size, np.float32),
        np.empty(count, np.float32),
    )
    longest = max(displayed.longest, 5)
    room = _Room(
        np.empty((count, longest), np.float32),
        np.empty((count, longest), np.float32),
        np.empty((count, longest), np.float32),
        np.empty((count, longest), np.float32),
        np.empty((count, longest), np.float32),
        np.empty(longest, np.float32),
        np.empty(longest, np.float32),
    )
    for u in range(offsets.size - 1):
        row = u if totals.shape[0] > 1 else 0
        local.weights[:width] = network.weights
        local.hidden[:, :width] = network.hidden
        local.hidden_bias[:] = network.hidden_bias
        local.second[:] = network.second
        local.second_bias[:] = network.second_bias
        local.output[:] = network.output
        if not _train_client(displayed, queries, credit, offsets[u], offsets[u + 1], training, local, room):
            continue
        trained[row, 0] += 1
        place = _add_difference(totals[row], 0, local.weights[:width], network.weights)
        for h in range(count):
            place = _add_difference(totals[row], place, local.hidden[h, :width], network.hidden[h])
        place = _add_difference(totals[row], place, local.hidden_bias, network.hidden_bias)
        for h in range(network.second.shape[0]):
            place = _add_difference(totals[row], place, local.second[h], network.second[h])
        place = _add_difference(totals[row], place, local.second_bias, network.second_bias)
        _add_difference(totals[row], place, local.output, network.output)
