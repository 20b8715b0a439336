"""The experiment of `fultr run`: the recommended settings, FedIPS, FedAvg and λLinear across a few bias severities."""

from __future__ import annotations

from dataclasses import replace

from fultr.core.errors import FultrError
from fultr.rankers.settings import PAPER_LEARNING_RATES
from fultr.study.claims import Claim
from fultr.study.experiment import Experiment, Line, Panel
from fultr.study.settings import RunSettings

CLIENT_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
SERVER_RATES = (0.1, 1.0, 10.0)
"""The grids of eta_l and eta_g. The paper's, {1e-5, 1e-4, ..., 1e-1} and {0.05, 0.5, 1, 2}, is coarser in eta_l and
ends lower in eta_g: with strong bias the best pair lies between and beyond its values."""


def comparison(
    settings: RunSettings = RunSettings(rounds=200, evaluate_every=5),
    *,
    gammas: tuple[float, ...] = (0.5, 1.0, 2.0),
    repeats: int = 5,
    data: str = "synthetic",
    client_rates: tuple[float, ...] = CLIENT_RATES,
    server_rates: tuple[float, ...] = SERVER_RATES,
    lambda_rates: tuple[float, ...] = PAPER_LEARNING_RATES,
    seed: int = 0,
) -> Experiment:
    """FedIPS and FedAvg at every gamma, what is recommended, λLinear, the logging policy and a random ranking.

    One panel per gamma. The recommended settings estimate propensities from the clicks and are tuned on nothing.

    Args:
        settings: what all have in common.
        gammas: bias severities.
        repeats: of every run.
        data: name or path of the data set.
        client_rates: grid of eta_l.
        server_rates: grid of eta_g.
        lambda_rates: grid of λLinear's learning rate.
        seed: of everything.

    >>> [line.name for line in comparison(gammas=(1.0,)).lines][:3]
    ['FedIPS, γ = 1', 'FedAvg, γ = 1', 'recommended, γ = 1']
    """
    if not gammas or len(set(gammas)) != len(gammas):
        raise FultrError(f"gamma: expected one or more different numbers, found {gammas}")
    grid = (("client_rate", client_rates), ("server_rate", server_rates))
    ips, avg = ([f"{name}, γ = {gamma:g}" for gamma in gammas] for name in ("FedIPS", "FedAvg"))
    lines = [Line(name, settings.but({"gamma": gamma}), grid) for name, gamma in zip(ips, gammas, strict=True)]
    lines += [
        Line(name, settings.but({"gamma": gamma, "propensity": "none"}), grid)
        for name, gamma in zip(avg, gammas, strict=True)
    ]
    best = [f"recommended, γ = {gamma:g}" for gamma in gammas]
    recommended = RunSettings.recommended(max(2, settings.rounds))
    recipe = replace(settings, fedips=recommended.fedips, showing=recommended.showing)
    lines += [Line(name, recipe.but({"gamma": g}), colour="purple") for name, g in zip(best, gammas, strict=True)]
    levels = ("λLinear", "logging policy")
    lines += [
        Line("λLinear", replace(settings, algorithm="lambda-linear"), (("lambda_rate", lambda_rates),)),
        Line("logging policy", replace(settings, algorithm="logging-policy")),
        Line("random ranking", replace(settings, algorithm="random-ranking")),
    ]
    claims = []
    for gamma, corrected, plain, recipe_line in zip(gammas, ips, avg, best, strict=True):
        says = f"At γ = {gamma:g}, the recommended settings outperform FedIPS, though they estimate propensities"
        claims.append(Claim(says, "ends-above", (recipe_line,), (corrected,)))
        claims.append(Claim(f"At γ = {gamma:g}, FedIPS outperforms FedAvg", "ends-above", (corrected,), (plain,)))
        says = f"At γ = {gamma:g}, FedIPS goes at least halfway from FedAvg to λLinear"
        claims.append(Claim(says, "goes-part", (corrected,), (plain, "λLinear"), margin=0.5))
    if len(gammas) > 1:
        low, high = (gammas.index(end(gammas)) for end in (min, max))
        says = f"From γ = {gammas[low]:g} to γ = {gammas[high]:g}, FedIPS loses less than FedAvg"
        claims.append(Claim(says, "drops-less", (ips[low], ips[high]), (avg[low], avg[high])))
    return Experiment(
        "run",
        "Recommended settings, FedIPS, FedAvg and λLinear across bias severities",
        "FedIPS divides each click by its propensity, the probability that the user looked at that rank; FedAvg does "
        "not; λLinear is trained on the relevance grades themselves. The logging policy is the ranker whose results "
        "users saw. The bias severity γ says how strongly users favour the top ranks. The recommended settings go "
        "beyond the paper: propensities are estimated from the clicks, and the ranker takes the logging policy's place "
        "every 10 rounds.",
        "",
        (data,),
        tuple(lines),
        tuple(
            Panel(f"γ = {gamma:g}", (recipe_line, corrected, plain, *levels))
            for gamma, corrected, plain, recipe_line in zip(gammas, ips, avg, best, strict=True)
        ),
        tuple(claims),
        repeats,
        tuning_steps=1,
        seed=seed,
    )
