"""Which runs are done side by side: those whose users click the same, a bundle of them a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from fultr.federated.settings import FedIPS
from fultr.rankers.settings import LambdaLinear
from fultr.study.rounds import keeps_to_itself
from fultr.study.run import cost
from fultr.study.settings import RunSettings
from fultr.study.store import Source, Task

_MOST = 10  # runs in a bundle: then clicks are a tenth of what they take alone
_TASKS_EACH = 4  # for each worker, at least, for all to end at about the same time


def clicks_of(settings: RunSettings) -> Hashable:
    """All that users' clicks depend on; None if other runs cannot share them.

    >>> slow, fast = (RunSettings.of({"client_rate": rate}) for rate in (0.1, 0.2))
    >>> clicks_of(slow) == clicks_of(fast) != clicks_of(RunSettings.of({"gamma": 2.0}))
    True
    """
    if (
        settings.algorithm != "federated"
        or settings.showing.refresh is not None
        or settings.adversaries is not None
        or settings.secure_sums
        or keeps_to_itself(settings.fedips)
    ):
        return None
    return replace(settings, fedips=FedIPS(pairs=settings.fedips.pairs), lambda_linear=LambdaLinear())


def bundles(tasks: Sequence[Task], workers: int) -> list[list[Task]]:
    """The tasks in bundles to be done side by side, in the order of the first of each."""
    clicks = [clicks_of(task.settings) for task in tasks]
    shared = sum(one is not None for one in clicks)
    most = max(1, min(_MOST, shared // (_TASKS_EACH * workers)))
    found: list[list[Task]] = []
    open_ones: dict[Hashable, list[Task]] = {}
    for task, same in zip(tasks, clicks, strict=True):
        key = (same, task.seed, task.splits, task.source)
        bundle = None if same is None else open_ones.get(key)
        if bundle is None or len(bundle) == most:
            bundle = open_ones[key] = []
            found.append(bundle)
        bundle.append(task)
    return found


class Costs:
    """Estimated costs of an experiment's runs, one after the other: most are done beside others.

    >>> from fultr import RunSettings
    >>> costs, settings, source = Costs(), RunSettings(), Source("synthetic")
    >>> first, second = (costs.of(settings, source, seed=0, splits=("test",)) for _ in range(2))
    >>> first > second
    True
    """

    def __init__(self) -> None:
        self._met: Counter[Hashable] = Counter()

    def of(self, settings: RunSettings, source: Source, *, seed: int, splits: tuple[str, ...]) -> float:
        """The cost of one more run, in seconds on one core."""
        clicks, data = clicks_of(settings), source.load()
        if clicks is None:
            return cost(settings, data, splits)
        key = (clicks, seed, splits, source)
        self._met[key] += 1
        return cost(settings, data, splits, beside=self._met[key] % _MOST != 1)
