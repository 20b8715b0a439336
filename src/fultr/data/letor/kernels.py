"""The inner loops of reading LETOR text.

Every loop takes a piece of text that ends with a newline, so a scan for the end of a line needs no other
bound. Errors are returned as (code, position of the offending token); the caller puts them into words.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fultr.core.arrays import Bools, Float32s, Float64s, Int32s, Int64s, UInt8s
from fultr.core.checks import MAX_GRADE

FINE, BAD_GRADE, BAD_QUERY, BAD_FEATURE, REPEATED_FEATURE = range(5)
DIRECT_IDS = 4096  # feature ids below this are looked up in a table, others by bisection

_TAB, _NEWLINE, _RETURN, _SPACE, _HASH = 9, 10, 13, 32, 35
_PLUS, _MINUS, _POINT, _ZERO, _NINE, _COLON, _UPPER_E, _LOWER_E = 43, 45, 46, 48, 57, 58, 69, 101
_SURE, _UNSURE, _BAD = range(3)
_MAX_POWER = 300
_POWERS = np.array([float(f"1e{i}") for i in range(_MAX_POWER + 1)])
_TENTH = np.uint64((2**63 - 1) // 10)
_TEN = np.uint64(10)
_ROOM = np.uint64(10**18)  # a mantissa below this has room for one more digit
_EXACT = np.uint64(2**53)  # mantissas up to this are exact in float64
_NEAR = 1e-15  # wider than the error of mantissa * power, which is at most four roundings of 2**-53


@njit(nogil=True, cache=True)
def _skip_blanks(text: UInt8s, at: int) -> int:
    while text[at] == _SPACE or text[at] == _TAB or text[at] == _RETURN:
        at += 1
    return at


@njit(nogil=True, cache=True)
def _ends_token(byte: int) -> bool:
    return byte in (_SPACE, _NEWLINE, _RETURN, _TAB, _HASH)


@njit(nogil=True, cache=True)
def _whole(text: UInt8s, at: int, extra: int = 0) -> tuple[bool, np.int64, int]:
    """A whole number 0 to 2**63 - 1 + extra: is it one, its value as int64, and where it ends."""
    first, value = at, np.uint64(0)
    while _ZERO <= text[at] <= _NINE:
        digit = np.uint64(text[at] - _ZERO)
        if value >= _TENTH and (value > _TENTH or digit > 7 + extra):
            return False, np.int64(0), at
        value = value * _TEN + digit
        at += 1
    return at > first, np.int64(value), at


@njit(nogil=True, cache=True)
def _head(text: UInt8s, at: int) -> tuple[int, int, np.int64, np.int64]:
    """The grade and query id that a line starts with: (code, where it ends or the bad token is, grade, query id)."""
    good, grade, end = _whole(text, at)
    if not good or grade > MAX_GRADE or not _ends_token(text[end]):
        return BAD_GRADE, at, grade, grade
    at = _skip_blanks(text, end)
    for i, letter in enumerate((113, 105, 100, 58)):  # q i d :
        if text[at + i] != letter:
            return BAD_QUERY, at, grade, grade
    negative = text[at + 4] == _MINUS
    good, query, end = _whole(text, at + 4 + negative, 1 if negative else 0)
    if not good or not _ends_token(text[end]):
        return BAD_QUERY, at, grade, grade
    return FINE, end, grade, -query if negative else query


@njit(nogil=True, cache=True)
def scan(text: UInt8s, begin: int, end: int) -> tuple[int, int, int, Int64s, Bools, Int64s]:
    """Find the queries and the feature ids in `text[begin:end]`; values are not looked at.

    Returns:
        code, position: the first trouble, if any.
        documents: how many there are.
        runs: [n, 3], for each run of lines of one query: query id, documents, position of its first line.
        direct: for each id below `DIRECT_IDS`: does it occur?
        others: the distinct ids from `DIRECT_IDS` on.
    """
    runs = np.empty((64, 3), np.int64)
    direct = np.zeros(DIRECT_IDS, np.bool_)
    others = {np.int64(0)}
    others.clear()
    count, documents, at, code, trouble, last_other = 0, 0, begin, FINE, 0, np.int64(-1)
    while at < end:
        at = _skip_blanks(text, at)
        if text[at] != _NEWLINE and text[at] != _HASH:
            line = at
            code, at, _, query = _head(text, at)
            if code != FINE:
                trouble = at
                break
            if count == 0 or runs[count - 1, 0] != query:
                if count == runs.shape[0]:
                    runs = np.concatenate((runs, np.empty_like(runs)))
                runs[count, 0], runs[count, 1], runs[count, 2] = query, 0, line
                count += 1
            runs[count - 1, 1] += 1
            documents += 1
            while True:
                at = _skip_blanks(text, at)
                if text[at] == _NEWLINE or text[at] == _HASH:
                    break
                good, feature, colon = _whole(text, at)
                if not good or text[colon] != _COLON:
                    code, trouble = BAD_FEATURE, at
                    break
                if feature < DIRECT_IDS:
                    direct[feature] = True
                elif feature != last_other:
                    others.add(feature)
                    last_other = feature
                at = colon + 1
                while text[at] > _SPACE and text[at] != _HASH:
                    at += 1
            if code != FINE:
                break
        while text[at] != _NEWLINE:
            at += 1
        at += 1
    found = np.empty(len(others), np.int64)
    for i, other in enumerate(others):
        found[i] = other
    return code, trouble, documents, runs[:count].copy(), direct, found


@njit(nogil=True, cache=True)
def _number(text: UInt8s, at: int) -> tuple[int, int, float]:
    """[+-]digits[.digits][e[+-]digits]: (is its float32 sure, where it ends, the value as float64).

    The value of a sure number may differ from the correctly rounded float64, but never in what it rounds to as
    float32. A mantissa up to 2**53 with a power of ten up to 22 is exact; otherwise all float64 in the reach of the
    error must round to the same float32.
    """
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    mantissa, exponent, dropped, digits = np.uint64(0), 0, False, 0
    while _ZERO <= text[at] <= _NINE:
        if mantissa < _ROOM:
            mantissa = mantissa * _TEN + np.uint64(text[at] - _ZERO)
        else:
            dropped = True
            exponent += 1
        digits += 1
        at += 1
    if text[at] == _POINT:
        at += 1
        while _ZERO <= text[at] <= _NINE:
            if mantissa < _ROOM:
                mantissa = mantissa * _TEN + np.uint64(text[at] - _ZERO)
                exponent -= 1
            else:
                dropped = True
            digits += 1
            at += 1
    if digits == 0:
        return _BAD, at, 0.0
    if text[at] == _LOWER_E or text[at] == _UPPER_E:
        at += 1
        below = text[at] == _MINUS
        if below or text[at] == _PLUS:
            at += 1
        if not _ZERO <= text[at] <= _NINE:
            return _BAD, at, 0.0
        power = 0
        while _ZERO <= text[at] <= _NINE:
            power = min(power * 10 + int(text[at]) - _ZERO, 10**15)
            at += 1
        exponent += -power if below else power
    if not _ends_token(text[at]) or (text[at] == _HASH and text[at - 1] == _POINT):  # 1.#INF is not 1 and a comment
        return _BAD, at, 0.0
    sign = -1.0 if negative else 1.0
    if mantissa == 0:
        return _SURE, at, sign * 0.0
    if abs(exponent) > _MAX_POWER:
        return _UNSURE, at, 0.0
    value = sign * np.float64(mantissa)
    value = value * _POWERS[exponent] if exponent >= 0 else value / _POWERS[-exponent]
    if dropped or mantissa > _EXACT or abs(exponent) > 22:
        low, high = np.float32(value * (1 - _NEAR)), np.float32(value * (1 + _NEAR))
        return (_SURE if low == high else _UNSURE), at, value
    return _SURE, at, value


@njit(nogil=True, cache=True)
def _is_sentinel(text: UInt8s, begin: int, end: int, sentinels: UInt8s) -> bool:
    for k in range(sentinels.shape[0]):
        i = 0
        while i < end - begin and i < sentinels.shape[1] and text[begin + i] == sentinels[k, i]:
            i += 1
        if i == end - begin and (i == sentinels.shape[1] or sentinels[k, i] == 0):
            return True
    return False


@njit(nogil=True, cache=True)
def fill(
    text: UInt8s,
    begin: int,
    end: int,
    row: int,
    run_first: Int64s,
    run_target: Int64s,
    ids: Int64s,
    direct: Int32s,
    columns: Int64s,
    sentinels: UInt8s,
    sentinel_values: Float64s,
    features: Float32s,
    labels: Int32s,
) -> tuple[int, int, Int64s]:
    """Parse `text[begin:end]`, which `scan` found fine, into `features` (zero so far) and `labels`.

    Args:
        text: what to parse.
        begin: where.
        end: where, just behind a newline.
        row: how many documents the file has before `begin`.
        run_first: the first document of each run of lines; the last entry is the number of documents.
        run_target: the row at which each run goes into `features` and `labels`.
        ids: all feature ids that may occur, ascending.
        direct: for each id below `DIRECT_IDS` its index in `ids`.
        columns: for each of `ids` its column in `features`, -1 if it has none.
        sentinels: texts that mean 0, [n, longest], padded with zero bytes.
        sentinel_values: numbers that mean 0.
        features: [documents, columns], filled.
        labels: [documents], filled; if empty (and there are no columns) the text is only checked.

    Returns:
        code, position: the first trouble, if any.
        unsure: [n, 4], numbers that are left to the caller: row, column, begin and end of feature:value.
    """
    unsure, unsure_count = np.empty((16, 4), np.int64), 0
    seen = np.full(ids.size, -1, np.int64)
    run = np.searchsorted(run_first, row, side="right") - 1
    at = begin
    while at < end:
        at = _skip_blanks(text, at)
        if text[at] != _NEWLINE and text[at] != _HASH:
            code, at, grade, _ = _head(text, at)
            if code != FINE:
                return code, at, unsure[:unsure_count]
            while row >= run_first[run + 1]:
                run += 1
            target = run_target[run] + row - run_first[run]
            if labels.size:
                labels[target] = grade
            index = -1
            while True:
                at = _skip_blanks(text, at)
                if text[at] == _NEWLINE or text[at] == _HASH:
                    break
                good, feature, colon = _whole(text, at)
                if not good or text[colon] != _COLON:
                    return BAD_FEATURE, at, unsure[:unsure_count]
                if feature < DIRECT_IDS:
                    index = direct[feature]
                elif index + 1 < ids.size and ids[index + 1] == feature:
                    index += 1
                else:
                    index = int(np.searchsorted(ids, feature))
                if seen[index] == row:
                    return REPEATED_FEATURE, at, unsure[:unsure_count]
                seen[index] = row
                state, stop, value = _number(text, colon + 1)
                rounded = np.float32(value)
                for k in range(sentinel_values.size):
                    if state == _SURE and abs(value - sentinel_values[k]) <= _NEAR * abs(value):
                        state = _UNSURE
                if state == _SURE and np.isinf(rounded):
                    state = _UNSURE
                if state != _SURE:
                    while not _ends_token(text[stop]):
                        stop += 1
                    if _is_sentinel(text, colon + 1, stop, sentinels):
                        state, rounded = _SURE, np.float32(0)
                column = columns[index]
                if state == _BAD:
                    return BAD_FEATURE, at, unsure[:unsure_count]
                if state == _UNSURE:
                    if unsure_count == unsure.shape[0]:
                        unsure = np.concatenate((unsure, np.empty_like(unsure)))
                    unsure[unsure_count] = target, column, at, stop
                    unsure_count += 1
                elif column >= 0:
                    features[target, column] = rounded
                at = stop
            row += 1
        while text[at] != _NEWLINE:
            at += 1
        at += 1
    return FINE, 0, unsure[:unsure_count]
