"""Experiments as data: lines to be tuned, repeated and drawn, and the claims that they decide; and what came out.

Learning rates are chosen for each line by the mean NDCG@k on the validation queries after the last round of tuning, on
repeats of their own. Test queries take no part in any choice.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from fultr.core.checks import SettingError, check_number
from fultr.study.claims import Claim, Verdict
from fultr.study.origins import Origin
from fultr.study.pairing import judge_paired
from fultr.study.settings import RunSettings
from fultr.study.statistics import Measured

TUNING_REPEAT = 1_000_000  # where the repeats begin that rates are chosen on: apart from those that are reported
WIDER_REPEATS = 10  # at most this many repeats of a line with rates of a wider grid
RATES = {"federated": ("client_rate", "server_rate"), "lambda-linear": ("lambda_rate",)}
"""The settings that are tuned, for each algorithm that has any."""

Rates: TypeAlias = dict[str, Any]
"""Values of some of them."""


@dataclass(frozen=True)
class Line:
    """One line of a figure: runs that differ in their repeat only.

    Attributes:
        name: how it is called in figures, tables and claims.
        settings: its own; rates that are tuned stand for nothing yet.
        grid: the rates to choose from: pairs of a setting's name and its values. Empty: nothing is tuned.
        thinned: the values of the grid that are tried, by name; those of a rate that is not there are all tried.
        tuned_at: settings that differ while rates are chosen.
        colour: of the line; "" by its name.
    """

    name: str
    settings: RunSettings
    grid: tuple[tuple[str, tuple[float, ...]], ...] = ()
    tuned_at: tuple[tuple[str, Any], ...] = ()
    colour: str = ""
    thinned: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def candidates(self) -> list[tuple[Rates, RunSettings]]:
        """Every combination of the grid's rates, with the settings that it is tried with."""
        names = [name for name, _ in self.grid]
        tried = {**dict(self.grid), **dict(self.thinned)}
        combinations = itertools.product(*(tried[name] for name in names))
        rates: list[Rates] = [dict(zip(names, values, strict=True)) for values in combinations]
        return [(chosen, self.settings.but({**dict(self.tuned_at), **chosen})) for chosen in rates]


@dataclass(frozen=True)
class Panel:
    """One panel of the figure.

    Attributes:
        title: above it.
        lines: what it shows, by name.
        against: draw NDCG after the last round against this setting; "": draw the curves over the rounds.
    """

    title: str
    lines: tuple[str, ...]
    against: str = ""


@dataclass(frozen=True)
class Experiment:
    """Lines to be tuned, repeated, drawn and judged.

    Attributes:
        name: a word, the file's name.
        title: one line.
        about: some sentences.
        figure: the paper's figure that it reruns; "" if none.
        data: data sets, by name or path.
        lines: what is run.
        panels: how it is drawn: one row of panels a data set.
        claims: what it decides.
        repeats: of each line's runs. Repeats differ in the logging policy's sample, users, queries and clicks.
        tuning_repeats: rates are chosen by the median over this many repeats, which are not among those reported.
        tuning_steps: how often the grid of a line whose choice is at its edge is made wider, at most; see `tuning`.
        seed: of everything.
    """

    name: str
    title: str
    about: str
    figure: str
    data: tuple[str, ...]
    lines: tuple[Line, ...]
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...] = ()
    repeats: int = 30
    tuning_repeats: int = 1
    tuning_steps: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("repeats", self.repeats, least=1, most=TUNING_REPEAT, whole=True)
        check_number("tuning.repeats", self.tuning_repeats, least=1, most=1000, whole=True)
        check_number("tuning.steps", self.tuning_steps, least=0, most=100, whole=True)
        check_number("seed", self.seed, least=0, most=500_000, whole=True)
        names = [line.name for line in self.lines]
        if not names:
            raise SettingError("line", "expected at least one")
        if not self.data:
            raise SettingError("data", "expected at least one data set")
        for kind, texts in (("data", self.data), ("line", names)):
            twice = next((text for text, count in Counter(texts).items() if count > 1), None)
            if twice is not None:
                raise SettingError(kind, f"two {'lines' if kind == 'line' else 'data sets'} are called {twice!r}")
        if "" in names:
            raise SettingError("name", "expected a text, found an empty one")

    def repeat_seed(self, repeat: int) -> int:
        """The seed of a repeat; experiments with different seeds share none."""
        return self.seed * 2 * TUNING_REPEAT + repeat

    @property
    def tuning_seeds(self) -> list[int]:
        """The seeds of the repeats that rates are chosen on."""
        return [self.repeat_seed(TUNING_REPEAT + i) for i in range(self.tuning_repeats)]

    @property
    def seeds(self) -> list[int]:
        """The seeds of the repeats that are reported."""
        return [self.repeat_seed(i) for i in range(self.repeats)]

    def configuration(self) -> dict[str, Any]:
        """Everything that the numbers depend on besides the data, ready for JSON."""
        return {
            "experiment": self.name,
            "repeats": self.repeats,
            "tuning_repeats": self.tuning_repeats,
            "tuning_steps": self.tuning_steps,
            "seed": self.seed,
            "lines": {
                line.name: {
                    "settings": line.settings.relevant(),
                    "grid": {**dict(line.grid), **dict(line.thinned)},
                    "tuned_at": dict(line.tuned_at),
                }
                for line in self.lines
            },
        }

    @property
    def wider_repeats(self) -> range:
        """The repeats of a line with rates of a wider grid."""
        return range(min(self.repeats, WIDER_REPEATS))


@dataclass(frozen=True)
class Choice:
    """The rates that were chosen for a line, and everything that they were chosen from.

    Attributes:
        rates: by name.
        at_edge: those that are the smallest or largest of those tried, so that better ones may lie outside.
        grid: every combination of rates that was tried, with its NDCG@k on validation.
    """

    rates: Rates
    at_edge: tuple[str, ...]
    grid: tuple[tuple[Rates, float], ...]

    @property
    def score(self) -> float:
        """NDCG@k of the chosen rates, on validation."""
        return max(score for _, score in self.grid)


def choose(line: Line, scores: list[float]) -> Choice:
    """The best of a line's candidates by their scores on validation; the first of equals.

    >>> line = Line("FedIPS", RunSettings(), (("client_rate", (0.01, 0.1)), ("server_rate", (1.0,))))
    >>> choose(line, [0.5, 0.6]).rates
    {'client_rate': 0.1, 'server_rate': 1.0}
    """
    return best_of([rates for rates, _ in line.candidates()], scores)


def best_of(tried: list[Rates], scores: list[float]) -> Choice:
    """The best of some combinations of rates; the first of equals. Edges are those of what was tried."""
    best = tried[max(range(len(tried)), key=scores.__getitem__)]
    values = {name: {rates[name] for rates in tried} for name in best}
    edge = tuple(n for n, all_of in values.items() if len(all_of) > 1 and best[n] in (min(all_of), max(all_of)))
    return Choice(best, edge, tuple(zip(tried, scores, strict=True)))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an experiment measured on the test queries of one data set.

    Attributes:
        experiment: what was run.
        data: what the data set is called.
        fingerprints: of its three parts.
        lines: the curves, by the lines' names; those that were not run are missing.
        choices: the rates, for the lines that were tuned.
        wider: what was chosen where the first choice was at the edge of its grid, after that was made wider.
        wider_lines: the curves of such lines with these rates, where they are others.
        origins: what computed the runs that this follows from, and how many each.
    """

    experiment: Experiment
    data: str
    fingerprints: tuple[str, ...]
    lines: dict[str, Measured]
    choices: dict[str, Choice] = field(default_factory=dict)
    wider: dict[str, Choice] = field(default_factory=dict)
    wider_lines: dict[str, Measured] = field(default_factory=dict)
    origins: Counter[Origin] = field(default_factory=Counter)

    @property
    def edges(self) -> dict[str, tuple[str, ...]]:
        """The lines that were tuned to the edge of their grid, and the rates that are at it.

        A line for which a wider grid chose the same rates is none of them.
        """
        found = {}
        for name, choice in self.choices.items():
            beyond = self.wider.get(name)
            if choice.at_edge and (beyond is None or beyond.at_edge or beyond.rates != choice.rates):
                found[name] = choice.at_edge
        return found

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The lines that a wider grid is to be tried for, and not all runs of it are finished."""
        wanted = len(self.experiment.wider_repeats)
        return tuple(
            name
            for name, choice in self.choices.items()
            if choice.at_edge
            and self.experiment.tuning_steps
            and (name not in self.wider or self.wider[name].rates != choice.rates)
            and (name not in self.wider_lines or len(self.wider_lines[name].ndcg) < wanted)
        )

    def verdicts(self) -> list[Verdict]:
        """The answer to each of the experiment's claims, by the grid as it is, and where it matters by a wider one."""
        return [self._verdict(claim) for claim in self.experiment.claims]

    def _verdict(self, claim: Claim) -> Verdict:
        names = dict.fromkeys((*claim.lines, *claim.than))
        chosen_on = self.experiment.tuning_repeats if any(name in self.choices for name in names) else 0
        verdict = judge_paired(claim, self.lines, chosen_on)
        edges = tuple(name for name in names if name in self.edges)
        if not edges or verdict.answer == "not run":
            return verdict
        wider = None
        if all(name in self.wider for name in edges):
            best = {name: self.wider_lines.get(name, self.lines[name]) for name in names}
            open_ended = tuple(name for name in edges if self.wider[name].at_edge)
            wider = replace(judge_paired(claim, best, chosen_on), edges=open_ended)
        unfinished = tuple(name for name in edges if name in self.unfinished)
        return replace(verdict, edges=edges, wider=wider, unfinished=unfinished)
