"""The docs list the settings as they are declared."""

from __future__ import annotations

from pathlib import Path

import pytest
from help.settings_tables import settings_table

from fultr.device.policy import DevicePolicy
from fultr.federated.federation import FederationSettings
from fultr.study.settings import RunSettings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "tree"),
    [("experiments.md", RunSettings), ("deploying.md", FederationSettings), ("device-log.md", DevicePolicy)],
)
def test_the_docs_list_every_setting(page, tree):
    table = settings_table(tree)
    assert table in (DOCS / page).read_text(encoding="utf-8"), f"the table for docs/{page} is now\n\n{table}"
