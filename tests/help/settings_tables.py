"""The tables of settings in the docs, made from the fields that declare them."""

from __future__ import annotations

import json

from fultr.core.settings import REQUIRED, Leaf, leaves


def settings_table(tree: type) -> str:
    """A row per setting, in Markdown: what to find in the docs."""
    rows = [f"| `{leaf.name}` | {_default(leaf)} | {_meaning(leaf)} |" for leaf in leaves(tree).values()]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def _default(leaf: Leaf) -> str:
    if leaf.default is REQUIRED:
        return "none: must be set"
    value = leaf.write(leaf.default)
    number = isinstance(value, float)
    return f"`{value:g}`" if number else f"`{json.dumps(value)}`"


def _meaning(leaf: Leaf) -> str:
    if leaf.words:
        return leaf.help  # it names them all
    if leaf.choices:
        allowed = ", ".join(f'`"{choice}"`' for choice in leaf.choices)
    else:
        allowed = leaf.expected if leaf.kind in (int, float) else ""
    return (f"{leaf.help} {allowed[:1].upper()}{allowed[1:]}." if allowed else leaf.help).replace("|", "\\|")
