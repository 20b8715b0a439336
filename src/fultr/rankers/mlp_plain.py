"""What the weights of a neural ranker mean, in NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fultr.core.arrays import Float64s
from fultr.rankers.plain import Node, Parts, rows_times


@dataclass(frozen=True)
class PlainMLP:
    """A linear ranker plus hidden layers, see `fultr.rankers.mlp`.

    >>> PlainMLP(2, hidden=3, hidden_layers=1).parts
    {'weights': (2,), 'hidden': (3, 2), 'hidden_bias': (3,), 'output': (3,)}
    """

    features: int
    hidden: int
    hidden_layers: int

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """The skip connection's weights; rows of weights and a bias of each hidden layer; the last layer's weights."""
        units = self.hidden
        second = {"second": (units, units), "second_bias": (units,)} if self.hidden_layers == 2 else {}
        return {
            "weights": (self.features,),
            "hidden": (units, self.features),
            "hidden_bias": (units,),
            **second,
            "output": (units,),
        }

    def sums(self, parts: Parts, features: Float64s) -> Float64s:
        """W . x + v . relu(...), unit by unit, so that each row is summed by itself in the same order."""
        units = features
        for layer in self._layers():
            sums = [rows_times(units, row) for row in parts[layer]]
            units = np.maximum(0.0, np.stack(sums, axis=1) + parts[f"{layer}_bias"])
        return rows_times(features, parts["weights"]) + rows_times(units, parts["output"])

    def magnitudes(self, parts: Parts, features: Float64s) -> Float64s:
        """The same with the sizes of all numbers: no unit is larger."""
        return self.sums({name: np.abs(part) for name, part in parts.items()}, np.abs(features))

    def graph(self) -> list[Node]:
        """Per layer a product, a sum and the larger of 0; then two products and their sum."""
        nodes, units = [Node("MatMul", ("x", "weights"), "linear")], "x"
        for layer in self._layers():
            nodes += [
                Node("Transpose", (layer,), f"{layer}_columns", {"perm": [1, 0]}),
                Node("MatMul", (units, f"{layer}_columns"), f"{layer}_products"),
                Node("Add", (f"{layer}_products", f"{layer}_bias"), f"{layer}_sums"),
                Node("Relu", (f"{layer}_sums",), f"{layer}_units"),
            ]
            units = f"{layer}_units"
        return [*nodes, Node("MatMul", (units, "output"), "bent"), Node("Add", ("linear", "bent"), "sums")]

    def words(self) -> list[str]:
        """How to go from the values to the units, and to the score."""
        said = [
            "There is a unit for each row of hidden: the sum over the features of the row's number times value, plus "
            "the unit's number in hidden_bias; a unit below 0 becomes 0."
        ]
        if self.hidden_layers == 2:
            said.append(
                "There is a second unit for each row of second: the sum over the units of the row's number times unit, "
                "plus the second unit's number in second_bias; a second unit below 0 becomes 0."
            )
        last = "second units" if self.hidden_layers == 2 else "units"
        return [
            *said,
            "A document's score is the sum over the features of weight times value, plus the sum over the "
            f"{last} of the unit's number in output times unit.",
        ]

    def _layers(self) -> tuple[str, ...]:
        return ("hidden", "second")[: self.hidden_layers]
