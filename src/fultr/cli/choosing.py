"""What `fultr reproduce` is asked for: experiments by name, their size, and data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fultr.core.errors import FultrError

if TYPE_CHECKING:
    from fultr.study.experiment import Experiment
    from fultr.study.store import Source


def chosen_experiments(names: Sequence[str], figure: str | None) -> list[Experiment]:
    """The experiments that are asked for: by name, "all", a figure of the paper, or files of the user's own."""
    from fultr.study.experiment_files import packaged, read_experiment

    known = {experiment.name: experiment for experiment in packaged()}
    chosen: list[Experiment] = []
    if figure is not None:
        chosen += [experiment for experiment in known.values() if experiment.figure == figure]
    for name in names:
        if name == "all":
            chosen += known.values()
        elif name in known:
            chosen.append(known[name])
        elif name.endswith(".toml") or Path(name).is_file():
            chosen.append(read_experiment(Path(name)))
        else:
            raise FultrError(f"no experiment is called {name!r}; there are all, {', '.join(known)}, or a TOML file")
    unique: dict[str, Experiment] = {}
    for experiment in chosen:
        if unique.setdefault(experiment.name, experiment) != experiment:
            raise FultrError(f"two different experiments are called {experiment.name!r}; rename one of the files")
    return list(unique.values())


def source_of(text: str, fold: int, merge: bool, sentinel: tuple[str, ...]) -> Source:
    """NAME=WHERE, or WHERE alone."""
    from fultr.study.store import Source

    label, equals, where = text.partition("=")
    if not equals:
        label, where = "", text
    if not where:
        raise FultrError(f"--data: expected NAME=FOLDER, found {text!r}")
    return Source(where, label, fold, merge, sentinel or "auto")


def resized_experiments(
    experiments: list[Experiment],
    *,
    quick: bool,
    repeats: int | None,
    tuning_repeats: int | None,
    rounds: int | None,
    seed: int | None,
) -> list[Experiment]:
    """The experiments in the size that is asked for."""
    from fultr.study.sizing import QUICK_REPEATS, QUICK_ROUNDS, resized
    from fultr.study.sizing import quick as made_quick

    repeats = QUICK_REPEATS if quick and repeats is None else repeats
    rounds = QUICK_ROUNDS if quick and rounds is None else rounds
    sized = [
        resized(made_quick(e) if quick else e, rounds=rounds, repeats=repeats, tuning_repeats=tuning_repeats)
        for e in experiments
    ]
    return sized if seed is None else [replace(experiment, seed=seed) for experiment in sized]
