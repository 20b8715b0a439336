"""Values of every type that TOML has, and how they are written."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time
from typing import Any

from hypothesis import strategies as st

NASTY: list[Any] = [
    True,
    0,
    -1,
    1.5,
    1e308,
    10**30,
    float("nan"),
    float("inf"),
    "",
    "2",
    "1,0.5,x",
    "{gamma.real} {} {0} {nothing}",
    "[",
    date(1979, 5, 27),
    time(7, 32),
    datetime(1979, 5, 27, 7, 32),
    [],
    [True],
    [[1, 2], [3]],
    [1, "a", 1],
    ["*"],
    [{"a": 1}],
    {},
    {"a": {"b": [1]}},
]
"""What people and mistakes put in the place of something else."""

anything = st.recursive(
    st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.dates()
    | st.times()
    | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1, max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)


def written_toml(value: Any) -> str:
    """A value in TOML, on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case float() if math.isnan(value) or math.isinf(value):
            return str(value)
        case str():
            return json.dumps(value).replace("\x7f", "\\u007f")
        case date() | time():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(written_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{json.dumps(key)} = {written_toml(entry)}' for key, entry in value.items())}}}"
        case _:
            return repr(value)


def written_document(content: dict[str, Any]) -> str:
    """A document with a line for each key: tables and lists of tables under their headings."""
    lines = [f"{json.dumps(k)} = {written_toml(v)}" for k, v in content.items() if not _is_headed(v)]
    for key, value in content.items():
        for table in (value if isinstance(value, list) else [value]) if _is_headed(value) else []:
            lines += [f"[[{key}]]" if isinstance(value, list) else f"[{key}]"]
            lines += [f"{name} = {written_toml(entry)}" for name, entry in table.items()]
    return "\n".join([*lines, ""])


def _is_headed(value: Any) -> bool:
    tables = value if isinstance(value, list) else [value]
    return bool(tables) and all(isinstance(table, dict) and table for table in tables)
