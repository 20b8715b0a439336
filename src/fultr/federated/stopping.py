"""When trees have grown enough: what held-out clicks say of the last ones.

Trees are added one after the other, so a ranker that stopped growing earlier is the same one without its last trees.
Devices compare the two by the same held-out clicks, which is more precise than comparing rounds with each other: those
have other clicks, and after a release other results to click on.
"""

from __future__ import annotations

from collections.abc import Callable

from fultr.core.arrays import Float32s
from fultr.federated.judging import Comparison
from fultr.rankers.forest import first_trees, read_forest

_PARTS = 4  # of the trees; the last of them is taken off, and again


def fewest_trees(
    weights: Float32s, features: int, depth: int, compare: Callable[[Float32s, Float32s], Comparison | None]
) -> tuple[Float32s, str]:
    """Take off the last quarter of the trees for as long as clicked documents stand no higher with it than without.

    Args:
        weights: of a ranker with trees.
        features: of a document.
        depth: of a tree.
        compare: what devices find of a candidate, with a quarter more, and a ranker without it; None: too few do.

    Returns:
        The ranker that is left, and what there is to say: "" if all its trees are.
    """
    grown = read_forest(weights, features, depth).grown
    kept, left = weights, grown
    for part in reversed(range(_PARTS)):
        count = grown * part // _PARTS
        if count == left:
            continue
        fewer = first_trees(weights, features, depth, count)
        found = compare(kept, fewer)
        if found is None or found.difference > 0:
            break
        kept, left = fewer, count
    if left == grown:
        return kept, ""
    return kept, f"trees: held-out clicks stand no higher with the last {grown - left:,} of {grown:,}: left out"
