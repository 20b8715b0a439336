"""Stages: what happens to all that a client sends, between client and server; one per file, one row each here."""

from __future__ import annotations

from fultr.core.kinds import Kinds

STAGES = Kinds("stage", {"none": "fultr.federated.privacy.none:Unchanged"})
"""The stages that settings and messages can name: a device runs its own code for a name, never any that it is sent."""
