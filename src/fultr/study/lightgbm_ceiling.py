"""LambdaMART with full information, by LightGBM: what trees could learn from the grades themselves."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from fultr.core.arrays import Float64s
from fultr.core.errors import FultrError
from fultr.data.ranking import RankingData, Splits
from fultr.rankers.metrics import ndcg

_TREES, _PATIENCE = 600, 50
_PARAMETERS = {
    "objective": "lambdarank",
    "lambdarank_truncation_level": 10,
    "metric": "ndcg",
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 50,
    "feature_fraction": 0.5,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}


def lightgbm_ndcg(
    data: Splits, splits: Collection[str], *, k: int = 5, seed: int = 0, threads: int | None = None
) -> dict[str, Float64s]:
    """Mean NDCG@k, [1] per split, of trees that are trained on all grades; their number is chosen on validation.

    Args:
        data: a data set.
        splits: where it is measured.
        k: NDCG@k.
        seed: of which features a tree may use.
        threads: how many threads to use; all cores if None.
    """
    try:
        import lightgbm
    except ImportError:
        raise FultrError("lightgbm: not installed; pip install lightgbm") from None
    parameters = {**_PARAMETERS, "eval_at": [k], "seed": seed, "num_threads": threads or 0}

    def dataset(part: RankingData, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
        groups = np.diff(part.offsets)
        return lightgbm.Dataset(part.features, part.labels, group=groups, params=parameters, reference=reference)

    train = dataset(data.train)
    booster = lightgbm.train(
        parameters,
        train,
        num_boost_round=_TREES,
        valid_sets=[dataset(data.valid, train)],
        callbacks=[lightgbm.early_stopping(_PATIENCE, verbose=False)],
    )

    def level(part: RankingData) -> Float64s:
        scores = booster.predict(part.features, num_threads=threads or 0)
        return np.array([np.nanmean(ndcg(np.asarray(scores, np.float32), part, k=k))])

    return {split: level(getattr(data, split)) for split in splits}
