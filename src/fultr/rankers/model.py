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

MODELS = Kinds("model", {"linear": "fultr.rankers.linear:Linear", "mlp": "fultr.rankers.mlp:MLP"})


@dataclass(frozen=True)
class ModelSettings:
    """What the weights of a ranker mean.

    A model is a frozen dataclass; its fields beyond `features` are the settings here that have their names, and the
    other settings make no difference to it.

    Attributes:
        kind: "linear", or "mlp": a linear ranker plus hidden layers (`fultr.rankers.mlp`).
        hidden: units of each hidden layer ("mlp").
        hidden_layers: how many there are ("mlp").
    """

    kind: str = setting("linear", "Model of the ranker.", choices=MODELS)
    hidden: int = setting(64, "Units of a hidden layer (mlp).", least=1, most=4096)
    hidden_layers: int = setting(1, "Hidden layers (mlp).", least=1, most=2)

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
        """Train each client of the records from the same weights; add its update to its row of `totals`."""


def model_named(model: ModelSettings | str, features: int) -> Model:
    """A model for documents with so many features; its name will do if it has no settings, or their defaults.

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
