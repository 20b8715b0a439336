"""How often each kind of claim is wrongly said to hold, or not to hold, and how often rightly, on simulated curves.

`python -m fultr.study.error_rates` prints the table of docs/experiments.md. A case is a claim with lines of which it is
false (a null) or true (for power, and for how often it is wrongly said not to hold). Curves have noise of two kinds:
each repeat lifts all lines alike, as their logging policy does, and each line by itself at every measured point. In
some cases repeats also differ in how fast and how high a line rises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from fultr.core.arrays import Float64s
from fultr.study.claims import Claim, judge
from fultr.study.statistics import Measured

ROUNDS = np.arange(0, 501, 10)
SHARE = ROUNDS / 500
SHARED, OWN = 0.02, 0.003  # standard deviations over repeats: of what all lines share, and of each point
Level: TypeAlias = Callable[[int, np.random.Generator], Float64s]  # of every repeat, on average 0
Curve: TypeAlias = Float64s | Callable[[Float64s], Float64s]  # at the measured rounds, or for every share of the rounds


def rises(share: Float64s) -> Float64s:
    """Rises evenly to the end, and beyond."""
    return 0.5 + 0.1 * share


def saturates(share: Float64s) -> Float64s:
    """Rises more and more slowly."""
    return 0.5 + 0.1 * (1 - np.exp(-5 * share))


def levels_off(at: float, share: Float64s = SHARE) -> Float64s:
    """Rises evenly up to a share of the rounds, and no further."""
    return 0.5 + 0.1 * np.minimum(share / at, 1)


def collapses(repeats: int, random: np.random.Generator) -> Float64s:
    """One repeat in ten is .1 lower than the others."""
    return np.where(random.random(repeats) < 0.1, -0.09, 0.01)


def skewed(repeats: int, random: np.random.Generator) -> Float64s:
    """Repeats differ by .01, mostly downwards: a skewness of -2."""
    return 0.01 * (1 - random.standard_exponential(repeats))


RISING = rises(SHARE)
SATURATING = saturates(SHARE)
SLOWER = saturates(SHARE / 2)
LOGARITHMIC = 0.5 + 0.1 * np.log10(1 + 9 * SHARE)  # gains .011 in the last quarter

PLATEAU = levels_off(0.3)
SLOW_PLATEAU = levels_off(0.6)
FALLING = SLOW_PLATEAU - 0.04 * np.maximum(SHARE - 0.6, 0)
FLAT = np.full(SHARE.size, 0.55)


@dataclass(frozen=True)
class Case:
    """A claim, and what its lines are on average.

    Attributes:
        claim: what is claimed.
        curves: by line.
        noise: of single lines, as a multiple of the usual.
        true: does the claim hold of the curves?
        about: in words.
        speeds: standard deviation over repeats of the logarithm of a line's speed; curves must be functions.
        alike: do all lines of a repeat have the same speed?
        levels: standard deviation over repeats of each line's own level.
        shown: what users of each line are shown in the rounds after the first, on average; the noise is the same.
        hard: is it true, but too hard to see for 30 repeats?
        uneven: levels of the line a over repeats that are not normal, of which t intervals do not promise 95%.
        measured: the rounds at which lines are measured; None, or a line without: all.
    """

    claim: Claim
    curves: Mapping[str, Curve]
    about: str
    true: bool = False
    noise: Mapping[str, float] | None = None
    speeds: float = 0.0
    alike: bool = False
    levels: float = 0.0
    shown: Float64s | None = None
    hard: bool = False
    uneven: Level | None = None
    measured: Mapping[str, Sequence[int]] | None = None

    def drawn(self, repeats: int, random: np.random.Generator) -> dict[str, Measured]:
        """Lines with noise."""
        lift = SHARED * random.standard_normal((repeats, 1))
        together = random.standard_normal((repeats, 1)) if self.alike else None
        lines = {}
        for name, curve in self.curves.items():
            own = OWN * (self.noise or {}).get(name, 1.0) * random.standard_normal((repeats, ROUNDS.size))
            if self.levels:
                own += self.levels * random.standard_normal((repeats, 1))
            if self.uneven and name == "a":
                own += self.uneven(repeats, random)[:, None]
            if callable(curve):
                faster = random.standard_normal((repeats, 1)) if together is None else together
                curve = curve(SHARE * np.exp(self.speeds * faster))
            at = np.isin(ROUNDS, (self.measured or {}).get(name, ROUNDS))
            shown = None if self.shown is None else self.shown + own[:, 1:]
            lines[name] = Measured(ROUNDS[at], (curve + lift + own)[:, at], shown)
        return lines

    def rates(self, repeats: int, trials: int) -> tuple[float, float]:
        """In what share of trials the claim is said to hold, and in what share not to hold."""
        random = np.random.default_rng(repeats)
        answers = [judge(self.claim, self.drawn(repeats, random)).answer for _ in range(trials)]
        return answers.count("holds") / trials, answers.count("does not hold") / trials


def _case(about: str, claim: Claim, /, true: bool = False, noise: float = 1.0, **curves: Curve) -> Case:
    return Case(claim, curves, about, true, dict.fromkeys(curves, noise))


def _varied(
    about: str, claim: Claim, /, true: bool = False, noise: float = 1.0, alike: bool = False, **curves: Curve
) -> Case:
    """Each repeat has its own speed: ±20%."""
    return Case(claim, curves, f"{about}, speeds vary", true, dict.fromkeys(curves, noise), 0.2, alike)


def _showing(
    about: str, shown: Float64s, true: bool = False, noise: float = 1.0, levels: float = 0.0, hard: bool = False
) -> Case:
    """What users are shown is better or worse than by the first policy by so much on average."""
    return Case(_NO_WORSE, {"a": RISING}, about, true, {"a": noise}, levels=levels, shown=shown, hard=hard)


def _hard(about: str, claim: Claim, noise: Mapping[str, float] | None = None, /, **curves: Curve) -> Case:
    """True, and too hard to see."""
    return Case(claim, curves, about, True, noise, hard=True)


def _measured(about: str, claim: Claim, every: Mapping[str, int], /, noise: float = 1.0, **curves: Curve) -> Case:
    """False, and some lines are measured at fewer rounds, and at the last one."""
    rounds = {name: [*range(0, 500, step), 500] for name, step in every.items()}
    return Case(claim, curves, about, noise=dict.fromkeys(curves, noise), measured=rounds)


_ABOVE = Claim("a ends above b", "ends-above", ("a",), ("b",))
_WELL = Claim("a ends above b, by .01 to matter", "ends-above", ("a",), ("b",), margin=0.01)
_LITTLE = Claim("a gains little", "gains-little", ("a",), ("b",), margin=0.01)
_PART = Claim("a goes 80% of the way", "goes-part", ("a",), ("b", "c"), margin=0.8)
_GROWS = Claim("a keeps growing", "keeps-growing", ("a",))
_LESS = Claim("a grows less than b", "grows-less", ("a",), ("b",))
_DROPS = Claim("a drops less than b", "drops-less", ("a", "a2", "a3"), ("b", "b2"))
_NOISY = Claim("a fluctuates more than b", "fluctuates-more", ("a",), ("b",))
_CROSSES = Claim("a crosses b about 30%", "crosses", ("a",), ("b",), since=0.3)
_SOONER = Claim("a is there sooner than b", "reaches-sooner", ("a",), ("b",))
_HALF = Claim("a is there in half the rounds of b", "reaches-sooner", ("a",), ("b",), margin=0.5)
_MORE = Claim("a to a2 matters more", "matters-more", ("a", "a2"), ("b", "b2"))
_NO_WORSE = Claim("a shows no worse", "shows-no-worse", ("a",))
_FIVE = Claim("a ends above five others", "ends-above", ("a",), ("b", "b2", "b3", "b4", "b5"))
_THREE = Claim("three fluctuate more than b", "fluctuates-more", ("a", "a2", "a3"), ("b",))
_FIFTY, _TWENTY = {"a": 50, "b": 50}, {"a": 20, "b": 20}
_LOUDER = {"a": 1.1, "a2": 1.1, "a3": 1.1}
_LOWER = 0.5 + 0.5 * (levels_off(0.45) - 0.5)
_LATE = 0.55 + 0.1 * (SHARE - 0.7)  # crosses FLAT at 70%
_EARLY = 0.55 + 0.1 * (SHARE - 0.1)
_RIGHT = 0.55 + 0.1 * (SHARE - 0.3)

_BARELY = levels_off(0.75) + 0.001 * np.clip((SHARE - 0.76) / 0.24, 0, 1)  # the first point after 75% is at 76%
_ARRIVAL = -np.log(np.exp(-5) + 0.02) / 5  # when SATURATING is .002 below its end
_STEEP = SATURATING[-1] - 0.002 + 0.6 * (SHARE - _ARRIVAL)  # is there at the same time
_EVENLY = 0.5 + 0.001 * (np.clip((SHARE - 0.5) / 0.26, 0, 1) + np.clip((SHARE - 0.76) / 0.24, 0, 1))
_SHORT = np.where(SHARE < 0.9, levels_off(0.3), 0.6 + 0.03 * (SHARE - 0.9))  # .001 short from 30% to 90%
_JUMP = np.where(SHARE < 0.6, 0.5 + 0.13 * SHARE, 0.62)
_DIP = np.where(SHARE[1:] == 0.1, -0.005, 0.0)


def _part_of(part: float, curve: Callable[[Float64s], Float64s], above: float = 0.0) -> Callable[[Float64s], Float64s]:
    """A part of what a curve gains."""
    return lambda share: 0.5 + above + part * (curve(share) - 0.5)


_plateau, _slow_plateau = partial(levels_off, 0.3), partial(levels_off, 0.6)
_above = _part_of(1.0, saturates, 0.01)

CASES: tuple[Case, ...] = (
    _case("identical lines", _ABOVE, a=SATURATING, b=SATURATING),
    _varied("identical lines", _ABOVE, a=saturates, b=saturates),
    _case("a .003 above", _ABOVE, True, a=SATURATING + 0.003, b=SATURATING),
    _case("identical lines, margin .01", _WELL, a=RISING, b=RISING),
    _case("identical plateaus, margin .01, four times the noise", _WELL, noise=4, a=PLATEAU, b=PLATEAU),
    _case("a .015 above, margin .01", _WELL, True, a=PLATEAU + 0.015, b=PLATEAU),
    _hard("a exactly .002 above each of five", _FIVE, a=FLAT + 0.002, **dict.fromkeys(_FIVE.than, FLAT)),
    _case("a exactly .01 above", _LITTLE, a=SATURATING + 0.01, b=SATURATING),
    _varied("a exactly .01 above", _LITTLE, a=_above, b=saturates),
    _case("a .004 above", _LITTLE, True, a=SATURATING + 0.004, b=SATURATING),
    _case("exactly 80%", _PART, a=FLAT + 0.04, b=FLAT, c=FLAT + 0.05),
    _varied("exactly 80%", _PART, a=_part_of(0.8, saturates), b=_part_of(0.0, saturates), c=saturates),
    _case("95%", _PART, True, a=FLAT + 0.0475, b=FLAT, c=FLAT + 0.05),
    _case("level throughout", _GROWS, a=FLAT),
    _case("levels off at 50% of the rounds", _GROWS, a=levels_off(0.5)),
    _case("levels off at 60%", _GROWS, a=SLOW_PLATEAU),
    _case("levels off at 75%", _GROWS, a=levels_off(0.75)),
    _case("levels off at 75%, four times the noise", _GROWS, noise=4, a=levels_off(0.75)),
    _varied("levels off at 55%", _GROWS, a=partial(levels_off, 0.55)),
    _case("falls after 60%, but ends above its middle", _GROWS, a=FALLING),
    _case("gains exactly .001 in the last quarter", _GROWS, a=_BARELY),
    _hard("gains just above .001 in both", _GROWS, a=_EVENLY),
    _case("gains .011 in the last quarter, as a logarithm does", _GROWS, True, a=LOGARITHMIC),
    _case("rises throughout", _GROWS, True, a=RISING),
    _case("identical lines", _LESS, a=RISING, b=RISING),
    _varied("identical, saturating", _LESS, a=saturates, b=saturates),
    _measured("identical, rising, b measured every 200 rounds", _LESS, {"b": 200}, a=RISING, b=RISING),
    _measured("level from 45% on, measured every 200", _LESS, {"a": 200, "b": 200}, a=_LOWER, b=levels_off(0.45)),
    _case("a saturates, b rises", _LESS, True, a=SATURATING, b=RISING),
    _case("equal drops", _DROPS, a=FLAT, a2=FLAT - 0.01, a3=FLAT - 0.02, b=FLAT, b2=FLAT - 0.02),
    _case("a collapses in the middle", _DROPS, a=FLAT, a2=FLAT - 0.02, a3=FLAT, b=FLAT, b2=FLAT - 0.02),
    _case("equal drops, four times the noise", _DROPS, noise=4, a=FLAT, a2=FLAT, a3=FLAT, b=FLAT, b2=FLAT),
    _varied("equal drops", _DROPS, a=_above, a2=saturates, a3=saturates, b=_above, b2=saturates),
    _hard("b drops .002 more", _DROPS, a=FLAT, a2=FLAT - 0.018, a3=FLAT - 0.018, b=FLAT, b2=FLAT - 0.02),
    _case("b drops .02 more", _DROPS, True, a=FLAT, a2=FLAT - 0.01, a3=FLAT - 0.02, b=FLAT, b2=FLAT - 0.04),
    _case("equal noise", _NOISY, a=SATURATING, b=SATURATING),
    _varied("equal noise", _NOISY, a=saturates, b=saturates),
    _measured("a bends, every 50 rounds, a tenth of the noise", _NOISY, _FIFTY, noise=0.1, a=SATURATING, b=FLAT),
    _measured("a bends, every 20 rounds, a tenth of the noise", _NOISY, _TWENTY, noise=0.1, a=SATURATING, b=FLAT),
    _hard("three have 1.1 times the noise", _THREE, _LOUDER, **dict.fromkeys(("a", "a2", "a3", "b"), FLAT)),
    Case(_NOISY, {"a": SATURATING, "b": SATURATING}, "twice the noise", True, {"a": 2.0}),
    _case("identical lines", _CROSSES, a=FLAT, b=FLAT),
    _case("crosses at 70%", _CROSSES, a=_LATE, b=FLAT),
    _case("crosses at 10%", _CROSSES, a=_EARLY, b=FLAT),
    _varied("identical, rising", _CROSSES, a=rises, b=rises),
    _case("crosses at 30%", _CROSSES, True, a=_RIGHT, b=FLAT),
    _case("identical, saturating", _SOONER, a=SATURATING, b=SATURATING),
    _case("identical plateaus", _SOONER, a=PLATEAU, b=PLATEAU),
    _case("identical, rising", _SOONER, a=RISING, b=RISING),
    _case("a takes twice as long, saturating", _SOONER, a=SLOWER, b=SATURATING),
    _case("a takes twice as long to a plateau", _SOONER, a=SLOW_PLATEAU, b=PLATEAU),
    _case("the same, four times the noise", _SOONER, noise=4, a=SLOW_PLATEAU, b=PLATEAU),
    _case("identical plateaus, four times the noise", _SOONER, noise=4, a=PLATEAU, b=PLATEAU),
    _case("a takes half as long to the same plateau", _SOONER, True, a=PLATEAU, b=SLOW_PLATEAU),
    _case("a takes half as long, and ends .002 above", _SOONER, True, a=1.02 * PLATEAU - 0.01, b=SLOW_PLATEAU),
    _case("a takes half as long, and ends .01 above", _SOONER, True, a=1.1 * PLATEAU - 0.05, b=SLOW_PLATEAU),
    _case("a takes exactly half as long", _HALF, a=PLATEAU, b=SLOW_PLATEAU),
    _case("a rises steeply, and is there when b, saturating, is", _SOONER, a=_STEEP, b=SATURATING),
    _varied("identical, saturating", _SOONER, a=saturates, b=saturates),
    _varied("identical plateaus", _SOONER, a=_plateau, b=_plateau),
    _varied("identical plateaus, a third of the noise", _SOONER, noise=1 / 3, a=_plateau, b=_plateau),
    _varied("identical plateaus, four times the noise", _SOONER, noise=4, a=_plateau, b=_plateau),
    _varied("identical plateaus, the same speed for both", _SOONER, alike=True, a=_plateau, b=_plateau),
    _varied("identical, rising, a third of the noise", _SOONER, noise=1 / 3, a=rises, b=rises),
    _varied("a takes twice as long to a plateau", _SOONER, a=_slow_plateau, b=_plateau),
    _varied("a takes exactly half as long, a third of the noise", _HALF, noise=1 / 3, a=_plateau, b=_slow_plateau),
    _varied("a takes half as long to the same plateau", _SOONER, True, a=_plateau, b=_slow_plateau),
    _varied("a takes half as long, and ends .002 above", _SOONER, True, a=_part_of(1.02, _plateau), b=_slow_plateau),
    _varied("a takes half as long, and ends .01 above", _SOONER, True, a=_part_of(1.1, _plateau), b=_slow_plateau),
    _hard("b is .001 short from 30% to 90%, a there at 60%", _SOONER, a=_JUMP, b=_SHORT),
    _hard("the same, twice the noise", _SOONER, {"a": 2.0, "b": 2.0}, a=_JUMP, b=_SHORT),
    Case(_SOONER, {"a": RISING, "b": RISING}, "identical, rising, levels vary by .005", levels=0.005),
    _case("equal gains", _MORE, a=FLAT, a2=FLAT + 0.02, b=FLAT, b2=FLAT + 0.02),
    _varied("equal gains", _MORE, a=saturates, a2=_above, b=saturates, b2=_above),
    _case("a gains .01 more", _MORE, True, a=FLAT, a2=FLAT + 0.03, b=FLAT, b2=FLAT + 0.02),
    _showing("exactly .005 worse in one round", _DIP),
    _showing("exactly .005 worse in one round, four times the noise", _DIP, noise=4),
    _showing("exactly .005 worse in one round, levels vary by .005", _DIP, levels=0.005),
    _showing("exactly .005 worse in all rounds", 0 * _DIP - 0.005),
    _showing("just no more than .005 worse in all rounds", 0 * _DIP - 0.005, True, hard=True),
    _showing("no different", 0 * _DIP, True),
    _showing("no different, four times the noise", 0 * _DIP, True, noise=4, hard=True),
    _showing("better by .01, ten times the noise", 0 * _DIP + 0.01, True, noise=10, hard=True),
    _showing("better by up to .02", 0.02 * SHARE[1:], True),
    Case(_ABOVE, {"a": FLAT, "b": FLAT}, "equal on average, skewed over repeats", uneven=skewed),
    Case(_ABOVE, {"a": FLAT, "b": FLAT}, "equal on average, one in ten collapses", uneven=collapses),
)


def main(repeats: tuple[int, ...] = (3, 5, 10, 30), trials: int = 2000) -> None:
    """Print the table: how often a claim is said to hold and, of one that is true, not to hold, at most."""
    print("| kind | lines | the claim is | " + " | ".join(f"n = {n}" for n in repeats) + " | does not hold |")
    print("|---|---|---|" + "---|" * (len(repeats) + 1))
    for case in CASES:
        held, refuted = zip(*(case.rates(n, trials) for n in repeats), strict=True)
        rates = " | ".join(f"{rate:.1%}" for rate in held)
        wrongly = f"{max(refuted):.1%}" if case.true else "–"
        truth = "true" if case.true else "false"
        print(f"| `{case.claim.kind}` | {case.about} | {truth} | {rates} | {wrongly} |", flush=True)


if __name__ == "__main__":
    main()
