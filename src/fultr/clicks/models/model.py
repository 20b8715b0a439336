"""What a click model is: how the clicks of one impression are drawn, and what they say about examination.

Each model's file has a compiled function that draws the clicks of one impression,

    draw(parameters, state, query, base, attraction, clicks) -> state

- parameters: a tuple of the model's parameters.
- state: of the user's stream of random numbers (`fultr.core.streams`); its number is used up, so advance first.
- query: its number; with several versions of the logging policy, see `Display.versions`.
- base: float64 [K], the user's examination of each rank if nothing above it was clicked.
- attraction: float64 [K], probability of a click on each document if it is examined; 0 past the last document.
- clicks: uint8 [K], all of it is written: 1 where the document is clicked, else 0.

It returns the state of the stream afterwards.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol

from fultr.clicks.log import ClickLog
from fultr.clicks.models import CLICK_MODELS
from fultr.clicks.settings import ClickModel
from fultr.core.arrays import Float64s, Int64s


class Model(Protocol):
    """How users examine and click: a frozen dataclass of the model's parameters."""

    def run_sessions(self, users: Any, sessions: Any, key: Any, log: Any) -> None:
        """Run the sessions of clients: `fultr.clicks.sessions.run_sessions` with this model's way to draw clicks.

        The compiled function that does it is in the model's own file, where Numba caches it on disk for all processes.
        It does not cache a function that others are passed to; and a cache that named the class of someone's own model
        could not be read by a process without it.
        """

    def click_if_examined(self, attraction: Float64s) -> Float64s:
        """The probability of a click on an examined document, [..., K], by rank and attraction: mostly the latter."""

    def examination_given_clicks(self, base: Float64s, log: ClickLog) -> Float64s:
        """The probability that each rank of each impression is examined, given the clicks above it.

        It is the propensity of a click: a click divided by it has `click_if_examined` as its mean. Divide only clicks:
        where it is 0 there are none.

        Args:
            base: [clients, K], examination of each rank by a user who has clicked nothing above it.
            log: impressions of these clients.

        Returns:
            [impressions, K].
        """


def click_model_of(settings: ClickModel, query_ids: Int64s | None = None) -> Model:
    """The click model that settings ask for, with the parameters that it has a field for.

    Args:
        settings: of the click model.
        query_ids: of the displayed queries, in their order, for a model in which the query makes a difference. None:
            even and odd numbers of queries are different kinds.

    >>> click_model_of(ClickModel(click_model="cascade", continues=0.5))
    Cascade(continues=0.5)
    """
    kind = CLICK_MODELS[settings.click_model]
    names = [field.name for field in fields(kind)]
    parameters = {name: getattr(settings, name) for name in names if name != "kinds"}
    if "kinds" in names and query_ids is not None:
        parameters["kinds"] = kind.kinds_of(query_ids)
    model: Model = kind(**parameters)
    return model
