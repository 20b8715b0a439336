"""How often each kind of claim is wrongly said to hold, and how often rightly, on simulated learning curves.

`python -m fultr.study.error_rates` prints the table of docs/experiments.md. A case is a claim with lines of which it is
false (a null) or true (for power). Curves have noise of two kinds: each repeat lifts all lines alike, as their logging
policy does, and each line by itself at every measured point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fultr.core.arrays import Float64s
from fultr.study.claims import Claim, judge
from fultr.study.statistics import Measured

ROUNDS = np.arange(0, 501, 10)
SHARE = ROUNDS / 500
SHARED, OWN = 0.02, 0.003  # standard deviations over repeats: of what all lines share, and of each point

RISING = 0.5 + 0.1 * SHARE
SATURATING = 0.5 + 0.1 * (1 - np.exp(-5 * SHARE))
SLOWER = 0.5 + 0.1 * (1 - np.exp(-2.5 * SHARE))  # takes twice as long
LOGARITHMIC = 0.5 + 0.1 * np.log10(1 + 9 * SHARE)  # gains .011 in the last quarter


def levels_off(at: float) -> Float64s:
    """Rises evenly up to a share of the rounds, and no further."""
    return 0.5 + 0.1 * np.minimum(SHARE / at, 1)


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
    """

    claim: Claim
    curves: Mapping[str, Float64s]
    about: str
    true: bool = False
    noise: Mapping[str, float] | None = None

    def drawn(self, repeats: int, random: np.random.Generator) -> dict[str, Measured]:
        """Lines with noise."""
        lift = SHARED * random.standard_normal((repeats, 1))
        return {
            name: Measured(
                ROUNDS,
                curve + lift + OWN * (self.noise or {}).get(name, 1.0) * random.standard_normal((repeats, ROUNDS.size)),
            )
            for name, curve in self.curves.items()
        }

    def rate(self, repeats: int, trials: int) -> float:
        """In what share of trials the claim is said to hold."""
        random = np.random.default_rng(repeats)
        held = [judge(self.claim, self.drawn(repeats, random)).answer == "holds" for _ in range(trials)]
        return float(np.mean(held))


def _case(about: str, claim: Claim, /, true: bool = False, noise: float = 1.0, **curves: Float64s) -> Case:
    return Case(claim, curves, about, true, dict.fromkeys(curves, noise))


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
_LATE = 0.55 + 0.1 * (SHARE - 0.7)  # crosses FLAT at 70%
_EARLY = 0.55 + 0.1 * (SHARE - 0.1)
_RIGHT = 0.55 + 0.1 * (SHARE - 0.3)

_BARELY = levels_off(0.75) + 0.001 * np.clip((SHARE - 0.76) / 0.24, 0, 1)  # the first point after 75% is at 76%

CASES: tuple[Case, ...] = (
    _case("identical lines", _ABOVE, a=SATURATING, b=SATURATING),
    _case("a .003 above", _ABOVE, True, a=SATURATING + 0.003, b=SATURATING),
    _case("identical lines, margin .01", _WELL, a=RISING, b=RISING),
    _case("identical plateaus, margin .01, four times the noise", _WELL, noise=4, a=PLATEAU, b=PLATEAU),
    _case("a .015 above, margin .01", _WELL, True, a=PLATEAU + 0.015, b=PLATEAU),
    _case("a exactly .01 above", _LITTLE, a=SATURATING + 0.01, b=SATURATING),
    _case("a .004 above", _LITTLE, True, a=SATURATING + 0.004, b=SATURATING),
    _case("exactly 80%", _PART, a=FLAT + 0.04, b=FLAT, c=FLAT + 0.05),
    _case("95%", _PART, True, a=FLAT + 0.0475, b=FLAT, c=FLAT + 0.05),
    _case("level throughout", _GROWS, a=FLAT),
    _case("levels off at 50% of the rounds", _GROWS, a=levels_off(0.5)),
    _case("levels off at 60%", _GROWS, a=SLOW_PLATEAU),
    _case("levels off at 75%", _GROWS, a=levels_off(0.75)),
    _case("levels off at 75%, four times the noise", _GROWS, noise=4, a=levels_off(0.75)),
    _case("falls after 60%, but ends above its middle", _GROWS, a=FALLING),
    _case("gains exactly .001 in the last quarter", _GROWS, a=_BARELY),
    _case("gains .011 in the last quarter, as a logarithm does", _GROWS, True, a=LOGARITHMIC),
    _case("rises throughout", _GROWS, True, a=RISING),
    _case("identical lines", _LESS, a=RISING, b=RISING),
    _case("a saturates, b rises", _LESS, True, a=SATURATING, b=RISING),
    _case("equal drops", _DROPS, a=FLAT, a2=FLAT - 0.01, a3=FLAT - 0.02, b=FLAT, b2=FLAT - 0.02),
    _case("a collapses in the middle", _DROPS, a=FLAT, a2=FLAT - 0.02, a3=FLAT, b=FLAT, b2=FLAT - 0.02),
    _case("equal drops, four times the noise", _DROPS, noise=4, a=FLAT, a2=FLAT, a3=FLAT, b=FLAT, b2=FLAT),
    _case("b drops .02 more", _DROPS, True, a=FLAT, a2=FLAT - 0.01, a3=FLAT - 0.02, b=FLAT, b2=FLAT - 0.04),
    _case("equal noise", _NOISY, a=SATURATING, b=SATURATING),
    Case(_NOISY, {"a": SATURATING, "b": SATURATING}, "twice the noise", True, {"a": 2.0}),
    _case("identical lines", _CROSSES, a=FLAT, b=FLAT),
    _case("crosses at 70%", _CROSSES, a=_LATE, b=FLAT),
    _case("crosses at 10%", _CROSSES, a=_EARLY, b=FLAT),
    _case("crosses at 30%", _CROSSES, True, a=_RIGHT, b=FLAT),
    _case("identical, saturating", _SOONER, a=SATURATING, b=SATURATING),
    _case("identical plateaus", _SOONER, a=PLATEAU, b=PLATEAU),
    _case("identical, rising", _SOONER, a=RISING, b=RISING),
    _case("a takes twice as long, saturating", _SOONER, a=SLOWER, b=SATURATING),
    _case("a takes twice as long to a plateau", _SOONER, a=SLOW_PLATEAU, b=PLATEAU),
    _case("the same, four times the noise", _SOONER, noise=4, a=SLOW_PLATEAU, b=PLATEAU),
    _case("identical plateaus, four times the noise", _SOONER, noise=4, a=PLATEAU, b=PLATEAU),
    _case("a takes half as long to the same plateau", _SOONER, True, a=PLATEAU, b=SLOW_PLATEAU),
    _case("a takes half as long, and ends .01 above", _SOONER, True, a=1.02 * PLATEAU - 0.01, b=SLOW_PLATEAU),
    _case("a takes exactly half as long", _HALF, a=PLATEAU, b=SLOW_PLATEAU),
    _case("equal gains", _MORE, a=FLAT, a2=FLAT + 0.02, b=FLAT, b2=FLAT + 0.02),
    _case("a gains .01 more", _MORE, True, a=FLAT, a2=FLAT + 0.03, b=FLAT, b2=FLAT + 0.02),
)


def main(repeats: tuple[int, ...] = (3, 5, 10, 30), trials: int = 2000) -> None:
    """Print the table."""
    print("| kind | lines | the claim is | " + " | ".join(f"n = {n}" for n in repeats) + " |")
    print("|---|---|---|" + "---|" * len(repeats))
    for case in CASES:
        rates = " | ".join(f"{case.rate(n, trials):.1%}" for n in repeats)
        print(f"| `{case.claim.kind}` | {case.about} | {'true' if case.true else 'false'} | {rates} |")


if __name__ == "__main__":
    main()
