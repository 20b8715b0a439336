"""What every loss implements: one function, compiled for the type of the loss."""

from __future__ import annotations

from typing import Any

from fultr.core.arrays import Float32s


def loss_and_pulls(loss: Any, scores: Float32s, documents: int, clicked: int, pulls: Float32s) -> float:
    """Return h of the clicked document; write minus its derivative by each document's score to `pulls`.

    Called from compiled code alone. A loss's file gives the code for its type by `fultr.core.compiled.implements`.

    Args:
        loss: which loss, and its parameters.
        scores: of the documents, the first `documents` of them.
        documents: how many there are, the clicked one included.
        clicked: which of them was clicked.
        pulls: written.
    """
    raise NotImplementedError(f"{loss!r}: only compiled code calls this")
