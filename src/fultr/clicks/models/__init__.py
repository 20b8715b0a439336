"""How simulated users examine and click: one per file, one row each here."""

from __future__ import annotations

from fultr.core.kinds import Kinds

CLICK_MODELS = Kinds(
    "click_model",
    {
        "position-based": "fultr.clicks.models.position_based:PositionBased",
        "cascade": "fultr.clicks.models.cascade:Cascade",
        "dependent-click": "fultr.clicks.models.dependent_click:DependentClick",
        "trust": "fultr.clicks.models.trust:Trust",
        "contextual": "fultr.clicks.models.contextual:Contextual",
    },
)
