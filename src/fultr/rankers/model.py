"""Models: what a ranker's flat vector of weights means; one per file, one row each here and in `fultr.rankers.plain`.

Optimisers, aggregation, privacy, files and messages do not know what is in the vector.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from fultr.core.kinds import Kinds
from fultr.core.settings import check, either, setting

if TYPE_CHECKING:
    from fultr.clicks.log import Records
    from fultr.core.arrays import Float32s, Float64s
    from fultr.rankers.training import Training

MODELS = Kinds(
    "model",
    {
        "linear": "fultr.rankers.linear:Linear",
        "mlp": "fultr.rankers.mlp:MLP",
        "random-trees": "fultr.rankers.trees:RandomTrees",
        "histogram-trees": "fultr.rankers.trees:HistogramTrees",
    },
)

TREES = ("random-trees", "histogram-trees")
"""Models with trees, which grow on top of linear weights."""


@dataclass(frozen=True)
class ModelSettings:
    """What the weights of a ranker mean.

    A model is a frozen dataclass; its fields beyond `features` are the settings here that have their names, and the
    other settings make no difference to it.

    Attributes:
        kind: "linear"; "mlp": a linear ranker plus hidden layers (`fultr.rankers.mlp`); "random-trees" and
            "histogram-trees": a linear ranker plus boosted trees, whose splits are drawn, or found from sums per
            feature and bin (`fultr.rankers.trees`).
        hidden: units of each hidden layer ("mlp").
        hidden_layers: how many there are ("mlp").
        linear_rounds: that train the linear weights (trees).
        tree_rounds: that grow trees, after those (trees).
        depth: of a tree (trees).
        shrinkage: the share of a Newton step that leaf values are; trees that grow at once divide it by the root of
            their number (trees).
        leaf_penalty: added to a leaf's curvature, as a share of that of all documents of a cohort (trees).
        leaf_least: a leaf with a smaller share of that curvature has the value zero (trees).
        document_limit: of what a displayed document of an impression adds to a sum, in clicks with credit 1 (trees).
        trees: that grow at once, in one round ("random-trees").
        bins: of a feature ("histogram-trees").
        columns: share of the features that a tree may split by, drawn anew for each tree ("histogram-trees").
    """

    kind: str = setting("linear", "Model of the ranker.", choices=MODELS)
    hidden: int = setting(64, "Units of a hidden layer (mlp).", least=1, most=4096)
    hidden_layers: int = setting(1, "Hidden layers (mlp).", least=1, most=2)
    linear_rounds: int = setting(100, "Rounds of the linear ranker that trees grow on top of (trees).", least=0)
    tree_rounds: int = setting(200, "Rounds that grow trees (trees).", least=1, most=100_000)
    depth: int = setting(4, "Depth of a tree (trees).", least=1, most=8)
    shrinkage: float = setting(0.4, "Leaf values are this share of a Newton step (trees).", above=0, most=1)
    leaf_penalty: float = setting(
        0.025, "Added to a leaf's curvature, as a share of the cohort's (trees).", least=0, most=1
    )
    leaf_least: float = setting(
        0.012, "Leaves with a smaller share of the cohort's curvature have the value 0 (trees).", least=0, most=1
    )
    document_limit: float = setting(20.0, "Most that one displayed document adds to a sum (trees).", above=0)
    trees: int = setting(30, "Trees that grow at once (random-trees).", least=1, most=10_000)
    bins: int = setting(16, "Bins of a feature (histogram-trees).", least=2, most=256)
    columns: float = setting(1.0, "Share of the features that a tree may split by (histogram-trees).", above=0, most=1)

    def __post_init__(self) -> None:
        check(self)


def model_setting() -> Any:
    """Declare a field that is a `ModelSettings`; the model's name will do."""
    return either(ModelSettings(), "Model of the ranker.", ModelSettings, "kind", name="model")


class Model(Protocol):
    """What a ranker is made of: a flat vector of weights, and what it means; see `fultr.rankers.linear`."""

    @property
    def features(self) -> int:
        """Of a document."""

    @property
    def size(self) -> int:
        """How many weights it has."""

    @property
    def update_size(self) -> int:
        """How many numbers a client sends in a round."""

    def initial(self, seed: int = 0, linear: Float32s | None = None) -> Float32s:
        """Weights to start from.

        Args:
            seed: of what must be random if anything is to be learnt.
            linear: float32 [features], weights of a linear ranker that the model then ranks like; None: all scores
                are equal.
        """

    def scores(self, weights: Float32s, features: Float32s, threads: int | None = None) -> Float32s:
        """Scores [documents, rankers] of every row of `features` under each row of `weights`."""

    def add_updates(
        self,
        records: Records,
        credit: Float64s,
        weights: Float32s,
        training: Training,
        totals: Float64s,
        trained: Float64s,
    ) -> None:
        """Add what each client of the records sends, from the same weights, to its row of `totals`."""

    def stepped(self, weights: Float32s) -> int:
        """How many of the first weights the server optimiser moves in this round, by the update's first numbers."""

    def grown(self, weights: Float32s, update: Float64s) -> Float32s:
        """The weights after a round whose clients sent this on average, apart from what the server optimiser does."""


class Descended:
    """A model all of whose weights the server optimiser moves, and whose clients send changes of each."""

    @property
    def size(self) -> int:
        """How many weights it has."""
        raise NotImplementedError

    @property
    def update_size(self) -> int:
        """How many numbers a client sends in a round."""
        return self.size

    def stepped(self, weights: Float32s) -> int:
        """How many of the first weights the server optimiser moves in this round: all."""
        return self.size

    def grown(self, weights: Float32s, update: Float64s) -> Float32s:
        """The weights after a round, apart from what the server optimiser does: as they are."""
        return weights


def model_named(model: ModelSettings | str, features: int) -> Model:
    """A model for documents with this many features; its name will do if it has no settings, or their defaults.

    >>> model_named("linear", 64).size
    64
    """
    found: Model = built(MODELS, model, features)
    return found


def built(table: Kinds, model: ModelSettings | str, features: int) -> Any:
    """What a table has for a model, with the model's settings."""
    settings = model if isinstance(model, ModelSettings) else ModelSettings(model)
    kind = table[settings.kind]
    return kind(features, **{name: getattr(settings, name) for name in own_settings(kind)})


def own_settings(kind: Any) -> list[str]:
    """The settings of `ModelSettings` that a model's class takes."""
    return [field.name for field in fields(kind) if field.name != "features"]
