"""The commands `fultr privacy ...`: what differential privacy takes, and what it costs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fultr.cli.console import print_json, print_table, progress_bar, say, working
from fultr.cli.lazy import OrderedGroup
from fultr.cli.options import (
    DATA_HELP,
    PATH,
    SEED_HELP,
    given_settings,
    json_option,
    settings_options,
    threads_option,
)
from fultr.core.errors import FultrError
from fultr.core.settings import leaves
from fultr.federated.privacy.settings import Privacy
from fultr.study.settings import RunSettings

if TYPE_CHECKING:
    from fultr.study.privacy_plan import Planned

_KINDS = ("png", "svg", "pdf")
_ASKED = ("epsilon", "population", "clients", "rounds", "participations", "rounds_apart", "delta", "honest")
_TRAINING = ("gamma", "propensity", "client_rate", "server", "server_rate", "decay_rounds")


@click.group(cls=OrderedGroup)
def privacy() -> None:
    """Plan differential privacy: what it takes, and what it costs."""


@privacy.command("plan")
@settings_options(RunSettings, _ASKED, {"rounds": 200, "epsilon": 1.0})
@click.option("--features", default=136, show_default=True, type=click.IntRange(min=1),
              help="Features of a document; with --data, those of the data.")  # fmt: skip
@click.option("--data", help=f"Simulate on this data, for the bound of updates and the loss: {DATA_HELP}")
@settings_options(RunSettings, _TRAINING, {"client_rate": 0.001, "server": "adam", "server_rate": 0.03})
@click.option("--figure", type=PATH, help="With --data: draw NDCG against epsilon: FILE.png, FILE.svg or FILE.pdf.")
@click.option("--seed", default=0, show_default=True, help=SEED_HELP)
@threads_option
@json_option
def plan_command(
    features: int,
    data: str | None,
    figure: Path | None,
    seed: int,
    threads: int | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Find the noise that keeps to a budget, and what it costs.

    Differential privacy hides each device: whoever sees the rankers that come out learns next to nothing about whether
    any one device took part. How much, epsilon says, for all rounds together; delta bounds the probability of more. The
    command prints, for each kind of noise, the least that keeps to the budget, and with --data the loss of a simulated
    run. It needs --population, the number of devices that could take part.

    \b
    Noise
      gaussian        a trusted server adds noise of its own to each round's sum
      secret cohorts  the same, if each round's devices are drawn at random, one
                      by one, and nobody but the server ever learns which
      correlated      a trusted server; later noise takes back part of the earlier
      distributed     each device adds its share; for use with secure sums

    \b
    Examples
      fultr privacy plan --population 1000000
      fultr privacy plan --population 50000 --participations 8 --rounds-apart 25
      fultr privacy plan --population 1000000 --data synthetic --figure loss.png
    """
    from fultr.study.privacy_plan import plan

    if figure is not None and (data is None or figure.suffix.removeprefix(".").lower() not in _KINDS):
        raise FultrError("--figure: expected --data, and a file that ends with .png, .svg or .pdf")
    given = given_settings(settings)
    chosen = RunSettings.of({name: value for name, value in given.items() if name not in leaves(Privacy)})
    if "decay_rounds" not in given:
        chosen = chosen.but({"decay_rounds": chosen.rounds})
    wanted = Privacy("gaussian", **{name: value for name, value in given.items() if name in leaves(Privacy)})
    if wanted.population is None:
        raise FultrError("--population: expected how many devices could take part")
    extra: dict[str, Any] = {}
    if data is None:
        found = plan(wanted, cohort=chosen.clients, rounds=chosen.rounds, features=features)
    else:
        found, extra = _simulated(chosen, wanted, data, figure, seed, threads)
    if as_json:
        print_json({"settings": chosen.relevant(), **extra, "plan": [_as_mapping(one) for one in found]})
        return
    _print(found, chosen, extra)


def _simulated(
    settings: RunSettings, wanted: Privacy, data: str, figure: Path | None, seed: int, threads: int | None
) -> tuple[list[Planned], dict[str, Any]]:
    from fultr.core.drawing import rendered
    from fultr.core.files import written_whole
    from fultr.data.load import load
    from fultr.study.privacy_plan import EPSILONS, curves, draw, plan, simulated, usual_bound, without_noise

    with working("Loading the data"):
        splits = load(data, threads=threads)
    with working("Finding the bound of updates"):
        bound = usual_bound(settings, splits, seed)
    wanted = replace(wanted, update_bound=bound)
    found = []
    with progress_bar(5, "Simulating") as done:
        reference = without_noise(settings, splits, bound, seed=seed, threads=threads)
        done()
        for one in plan(wanted, cohort=settings.clients, rounds=settings.rounds, features=splits.train.width):
            if one.privacy is not None:
                one = replace(one, ndcg=simulated(settings, splits, one.privacy, seed=seed, threads=threads))
            found.append(one)
            done()
    extra: dict[str, Any] = {"data": data, "update_bound": bound, "ndcg@5 without noise": reference}
    if figure is not None:
        with progress_bar(4 * len(EPSILONS), "Drawing") as done:
            lines = curves(settings, splits, wanted, seed=seed, threads=threads, done=done)
        title = f"{data}: {settings.clients:,} of {wanted.population:,} devices a round, {settings.rounds} rounds"
        kind: Any = figure.suffix.removeprefix(".").lower()
        with written_whole(figure) as temporary:
            temporary.write_bytes(rendered(draw(lines, reference, title), kind))
        extra["curves"], extra["figure"] = lines, str(figure)
    return found, extra


def _as_mapping(one: Planned) -> dict[str, Any]:
    guarantee = None if one.guarantee is None else one.guarantee.as_mapping()
    return {"name": one.name, "guarantee": guarantee, "share": one.share, "refused": one.refused, "ndcg@5": one.ndcg}


def _print(found: list[Planned], settings: RunSettings, extra: dict[str, Any]) -> None:
    reference = extra.get("ndcg@5 without noise")
    rows = [["noise", "z", "ε", "in all rounds", *(["NDCG@5", "loss"] if reference is not None else [])]]
    for one in found:
        if one.guarantee is None or one.share is None:
            continue
        row = [one.name, f"{one.guarantee.noise_multiplier:.3g}", f"{one.guarantee.epsilon:.3f}", f"{one.share:.2%}"]
        if reference is not None and one.ndcg is not None:
            row += [f"{one.ndcg:.4f}", f"{reference - one.ndcg:+.4f}"]
        rows.append(row)
    told = next((one.guarantee for one in found if one.guarantee is not None), None)
    if told is not None:
        title = f"{told.cohort:,} of {told.population:,} devices a round, {told.rounds} rounds, δ = {told.delta:.2g}"
        print_table(rows, title=title)
        _say(f"ε: per {told.unit}, {told.adjacency}, for all rounds.")
        _say(
            "z: noise multiplier. In all rounds: norm of the noise in the sum of all mean updates, as a share of the "
            "largest norm of that sum."
        )
    for words, of in _together((one.guarantee.trust, one.name) for one in found if one.guarantee is not None):
        _say(f"{of}: {words}.")
    for words, of in _together((one.refused.removeprefix("privacy: "), one.name) for one in found if one.refused):
        _say(f"{of}: none: {words}.")
    if reference is not None:
        _say(f"Updates are clipped to a norm of {extra['update_bound']:.3g}; NDCG@5 without noise {reference:.4f}")
    if "figure" in extra:
        say(f"Figure: {extra['figure']}")


def _together(said: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What is said of several, once: the words, and the names."""
    names: dict[str, list[str]] = {}
    for words, name in said:
        names.setdefault(words, []).append(name)
    return [(words, "; ".join(of)) for words, of in names.items()]


def _say(text: str) -> None:
    """Print a sentence on stdout, no line longer than a narrow terminal has room for."""
    print(textwrap.fill(text, 79, subsequent_indent="  "))
