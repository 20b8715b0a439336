"""Simulations side by side: a round of all those whose users click the same needs their clicks only once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fultr.federated.fedips import Server
from fultr.study.course import Course, Due, Simulation
from fultr.study.rounds import Watched, alike, run_round


def together(courses: Sequence[Course]) -> Iterator[tuple[int, Simulation]]:
    """Go through simulations round by round, and yield each with its number when it ends, with the same bits as alone.

    Those that are behind, since others resumed from later checkpoints, go first.
    """
    due: dict[int, Due] = {}
    came: list[tuple[int, tuple[Server, Watched] | None]] = [(i, None) for i in range(len(courses))]
    while came:
        for i, each in came:
            try:
                due[i] = next(courses[i]) if each is None else courses[i].send(each)
            except StopIteration as end:
                due.pop(i, None)
                yield i, end.value
        came = list(_round_of(due))


def _round_of(due: Mapping[int, Due]) -> Iterable[tuple[int, tuple[Server, Watched]]]:
    """A round of those that are furthest behind and can share it."""
    if not due:
        return ()
    first = min(due.values(), key=lambda one: one.t)
    group = [i for i, one in due.items() if _same_round(one, first) and alike(one.run, first.run)]
    came = run_round([due[i].run for i in group], first.t, [due[i].server for i in group], watch=first.watch)
    return zip(group, came, strict=True)


def _same_round(one: Due, other: Due) -> bool:
    return (one.t, one.watch) == (other.t, other.watch)
