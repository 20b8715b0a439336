"""Settings that are one number or several."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fultr.core.checks import SettingError
from fultr.core.settings import build, check, flatten, leaves, setting


@dataclass(frozen=True)
class Chances:
    """One number, or one per rank."""

    chances: tuple[float, ...] = setting((0.1,), "Chances.", least=0, most=1)

    def __post_init__(self) -> None:
        check(self)


@pytest.mark.parametrize(
    ("given", "kept"), [(0.5, (0.5,)), (1, (1.0,)), ([0, 1], (0.0, 1.0)), ("0.2, 0.3", (0.2, 0.3)), ((0.4,), (0.4,))]
)
def test_all_ways_to_write_them(given, kept):
    found = build(Chances, {"chances": given})
    assert found == Chances(kept)
    leaf = leaves(Chances)["chances"]
    written = leaf.write(flatten(found)["chances"])
    assert build(Chances, {"chances": written}) == found
    assert leaf.parse(str(written)) == kept


@pytest.mark.parametrize("given", [2, -0.1, [], [0.5, 2], "a", "0.5,", True, None, [[0.5]], {"a": 1}, float("nan")])
def test_what_is_refused(given):
    with pytest.raises(
        SettingError, match=r"^chances: expected a number, at least 0, at most 1, or several, with commas"
    ):
        build(Chances, {"chances": given})
