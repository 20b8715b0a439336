"""Compiled code of neural rankers: scores, and local training by backpropagation.

A step for a clicked document changes all weights (Algorithm 1, lines 5 to 9, with the gradient of the network). As for
linear rankers, the change that a step makes to a unit's weights is applied in the pass over them in which the next step
sums up its documents' features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fultr.core.arrays import Float32s, Float64s, Int32s, Int64s
from fultr.rankers.linear_kernels import FAST, Displayed, add_scaled, change_and_score, dot, metric_slope, score_rows
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
    """Where a step is worked out: [documents, units] each, but for scores and pulls."""

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


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def _change_and_sum_five(
    features: Float32s,
    hidden: Float32s,
    changes: Float32s,
    changed: int,
    changed_end: int,
    sums: Float32s,
    scored: int,
    scored_end: int,
) -> None:
    """`change_and_score` for all units, of at most five rows each.

    Where there are fewer rows, the last one is repeated, with change 0.
    """
    n, last, end, width = changed_end - changed, changed_end - 1, scored_end - 1, hidden.shape[1]
    y1, y2, y3, y4 = min(changed + 1, last), min(changed + 2, last), min(changed + 3, last), min(changed + 4, last)
    x1, x2, x3, x4 = min(scored + 1, end), min(scored + 2, end), min(scored + 3, end), min(scored + 4, end)
    for d in range(n, 5):
        for h in range(hidden.shape[0]):
            changes[d, h] = 0
    for h in range(hidden.shape[0]):
        c0, c1, c2, c3, c4 = changes[0, h], changes[1, h], changes[2, h], changes[3, h], changes[4, h]
        s0 = s1 = s2 = s3 = s4 = np.float32(0)
        for f in range(width):
            w = hidden[h, f] + (
                c0 * features[changed, f]
                + c1 * features[y1, f]
                + c2 * features[y2, f]
                + c3 * features[y3, f]
                + c4 * features[y4, f]
            )
            hidden[h, f] = w
            s0 += features[scored, f] * w
            s1 += features[x1, f] * w
            s2 += features[x2, f] * w
            s3 += features[x3, f] * w
            s4 += features[x4, f] * w
        sums[0, h], sums[1, h], sums[2, h], sums[3, h], sums[4, h] = s0, s1, s2, s3, s4


@njit(nogil=True, cache=True, forceinline=True)
def _change_and_sum(
    features: Float32s, hidden: Float32s, changed: int, changed_end: int, scored: int, scored_end: int, room: _Room
) -> None:
    """Add rows `changed` to `changed_end`, times `room.changes`, to the units' weights; then the sums of others."""
    for row in range(changed + 5, changed_end):
        for h in range(hidden.shape[0]):
            add_scaled(hidden[h], room.changes[row - changed, h], features[row])
    few, fewer = min(changed_end, changed + 5), min(scored_end, scored + 5)
    _change_and_sum_five(features, hidden, room.changes, changed, few, room.sums, scored, fewer)
    for row in range(scored + 5, scored_end):
        for h in range(hidden.shape[0]):
            room.sums[row - scored, h] = dot(features[row], hidden[h])


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def _forward(network: Network, documents: int, room: _Room) -> None:
    """From the sums of hidden units, and the linear part's scores, to units and scores."""
    count = network.hidden.shape[0]
    for d in range(documents):
        for h in range(count):
            room.units[d, h] = max(np.float32(0), room.sums[d, h] + network.hidden_bias[h])
    last = room.units
    if network.second.shape[0] > 0:
        last = room.second
        for h in range(count):
            for d in range(documents):
                total = network.second_bias[h]
                for g in range(count):
                    total += network.second[h, g] * room.units[d, g]
                room.second[d, h] = max(np.float32(0), total)
    for d in range(documents):
        total = np.float32(0)
        for h in range(count):
            total += network.output[h] * last[d, h]
        room.scores[d] += total


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def _pulled(pulls: Float32s, documents: int, output: Float32s, units: Float32s, changes: Float32s) -> None:
    """From pulls on scores to pulls on the last units' sums, `changes`; changes the output."""
    for d in range(documents):
        for h in range(output.size):
            changes[d, h] = pulls[d] * output[h] if units[d, h] > 0 else np.float32(0)
    for d in range(documents):
        for h in range(output.size):
            output[h] += pulls[d] * units[d, h]


@njit(nogil=True, cache=True, fastmath=FAST, forceinline=True)
def _backward(network: Network, documents: int, room: _Room) -> None:
    """From pulls on scores to pulls on hidden sums, `room.changes`; changes all weights but those of features."""
    count, second = network.hidden.shape[0], network.second
    if second.shape[0] == 0:
        _pulled(room.pulls, documents, network.output, room.units, room.changes)
    else:
        _pulled(room.pulls, documents, network.output, room.second, room.second_changes)
        for d in range(documents):
            for g in range(count):
                room.changes[d, g] = 0
        for h in range(count):
            for d in range(documents):
                pull = room.second_changes[d, h]
                for g in range(count):
                    room.changes[d, g] += pull * second[h, g]
            for d in range(documents):
                pull = room.second_changes[d, h]
                network.second_bias[h] += pull
                for g in range(count):
                    second[h, g] += pull * room.units[d, g]
        for d in range(documents):
            for h in range(count):
                room.changes[d, h] = room.changes[d, h] if room.units[d, h] > 0 else np.float32(0)
    for d in range(documents):
        for h in range(count):
            network.hidden_bias[h] += room.changes[d, h]


@njit(nogil=True, forceinline=True)  # compiled and cached as part of its caller, see `compiled_for`
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
    for unit in range(network.hidden.shape[0]):
        room.changes[0, unit] = 0
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
                    _change_and_sum(features, network.hidden, changed, changed_end, first, end, room)
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
            add_scaled(network.hidden[h], room.changes[row - changed, h], features[row])
    return trained


@njit(nogil=True, cache=True, forceinline=True)
def _copy(network: Network, local: Network) -> None:
    """Write a network into another, whose rows may be longer."""
    for f in range(network.weights.size):
        local.weights[f] = network.weights[f]
    for h in range(network.hidden.shape[0]):
        for f in range(network.weights.size):
            local.hidden[h, f] = network.hidden[h, f]
        local.hidden_bias[h] = network.hidden_bias[h]
        local.output[h] = network.output[h]
    for h in range(network.second.shape[0]):
        for g in range(network.second.shape[1]):
            local.second[h, g] = network.second[h, g]
        local.second_bias[h] = network.second_bias[h]


@njit(nogil=True, cache=True, forceinline=True)
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
        np.empty((longest, count), np.float32),
        np.empty((longest, count), np.float32),
        np.empty((longest, count), np.float32),
        np.empty((longest, count), np.float32),
        np.empty((longest, count), np.float32),
        np.empty(longest, np.float32),
        np.empty(longest, np.float32),
    )
    for u in range(offsets.size - 1):
        row = u if totals.shape[0] > 1 else 0
        _copy(network, local)
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
