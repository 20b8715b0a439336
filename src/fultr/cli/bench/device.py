"""What logging costs a search application: against appending the same bytes to a plain file, in one run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np

from fultr.core.arrays import Float32s, Float64s
from fultr.core.checks import check_number
from fultr.device.log import DeviceLog

_DOCUMENTS, _FEATURES = 10, 519


def device_log(impressions: int = 2000, folder: Path | None = None) -> list[tuple[str, float, str, str]]:
    """Time of `log_impression` and `log_click`, and growth of the file; 10 documents with 519 features.

    Args:
        impressions: how many are logged, of each kind.
        folder: where; the system's temporary folder if None.

    Returns:
        What was measured, its value, its unit, and what is wanted.
    """
    check_number("impressions", impressions, least=200, whole=True)
    pages = np.random.default_rng(0).random((50, _DOCUMENTS, _FEATURES), np.float32)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        plain = _appended(Path(made) / "plain", pages, impressions, wait=False)
        waited = _appended(Path(made) / "waited", pages, 200, wait=True)
        logged, clicked, grown = _logged(Path(made) / "float32.db", "float32", pages, impressions)
        halved, _, grown_16 = _logged(Path(made) / "float16.db", "float16", pages, impressions)
    ours, theirs, theirs_waiting = (float(np.median(seconds[0])) for seconds in (logged, plain, waited))
    return [
        *_times(f"impression of {_DOCUMENTS} documents, {_FEATURES} features", logged, "below 10 ms"),
        *_times("the same as float16", halved, "below 10 ms"),
        *_times("click", clicked, "below 10 ms"),
        *_times("the impression's bytes appended to a plain file", plain, ""),
        *_times("the same, waiting for the disk (fsync)", waited, ""),
        ("  impression / append, medians", ours / theirs, "", ""),
        ("  impression / append and fsync, medians", ours / theirs_waiting, "", "below 1"),
        ("growth of the file per 1,000 impressions", grown, "MB", ""),
        ("  features alone", _DOCUMENTS * _FEATURES * 4 / 1e3, "MB", ""),
        ("growth as float16", grown_16, "MB", ""),
    ]


def _times(name: str, seconds: Float64s, wanted: str) -> list[tuple[str, float, str, str]]:
    """Median and 99th percentile. On a busy machine the clock shows what others do; the processor time is ours."""
    clock, processor = np.quantile(seconds, (0.5, 0.99), axis=1).T * 1e3
    return [
        (f"{name}, median", float(clock[0]), "ms", ""),
        ("  99th percentile", float(clock[1]), "ms", wanted),
        ("  99th percentile of processor time", float(processor[1]), "ms", ""),
    ]


def _each(work: Callable[[int], object], times: int) -> Float64s:
    """Seconds that each call took, by the clock and of the processor: [2, calls]."""
    seconds = np.empty((2, times))
    for i in range(times):
        begun, busy = perf_counter(), thread_time()
        work(i)
        seconds[:, i] = perf_counter() - begun, thread_time() - busy
    return seconds


def _appended(path: Path, pages: Float32s, times: int, *, wait: bool) -> Float64s:
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def append(i: int) -> None:
        os.write(file, pages[i % len(pages)].tobytes())
        if wait:
            os.fsync(file)

    try:
        return _each(append, times)
    finally:
        os.close(file)


def _logged(path: Path, dtype: str, pages: Float32s, times: int) -> tuple[Float64s, Float64s, float]:
    """Seconds of each impression and each click, and megabytes per thousand impressions."""
    assert dtype in ("float32", "float16")
    ids: list[int] = []
    with DeviceLog.open(path, features=_FEATURES, dtype=dtype, retention=None) as log:  # type: ignore[arg-type]
        shown = _each(lambda i: ids.append(log.log_impression(i % len(pages), pages[i % len(pages)])), times)
        clicked = _each(lambda i: log.log_click(ids[i], 1 + i % _DOCUMENTS), times)
    return shown, clicked, path.stat().st_size / 1e3 / times
